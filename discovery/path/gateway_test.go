package path_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

// gateway simulates a whole gateway: a machine with its driver, and enough of WireGuard to see
// whether packets get through.
type gateway struct {
	w    *world
	name string
	site site
	low  bool
	nat  *simnet.NAT
	host *simnet.Host
	conn *simnet.Conn
	wake chan struct{}
	done chan struct{}
	peer *gateway // for the test's own goroutine

	mu        sync.Mutex
	m         *path.Machine
	boot      uint64
	peerBoot  uint64
	ready     bool // the peer is configured
	stopped   bool // the process is suspended
	began     time.Time
	next      time.Time
	tx        uint64
	routing   path.Routing
	announced map[netip.AddrPort]string
	vias      map[string]*viaRelay
	seen      bool // a server returned our address
	switches  int  // changes from one path to another, or to none
	doubts    int  // how often the allocations were to be checked

	asked  int      // ports of a relay that were probed
	events []string // of all notes

	strangers atomic.Int64 // packets from the other gateway's NAT that are not probes

	// The tunnel.
	session    time.Time // when the last handshake was completed; zero = none
	initiated  time.Time
	initSeq    uint64
	unanswered int
	answered   uint64    // initSeq of the last answered initiation
	heardAt    time.Time // last tunnel packet
	sentData   time.Time // the last
	sentSince  time.Time // first data sent since
	traffic    bool      // data flows, ten packets a second
	received   []time.Time
	dataSize   int
	blockData  bool // arriving data is lost, probes and handshakes are not
}

// Kinds of packet, in the first byte.
const (
	kProbe byte = iota + 1
	kAnswer
	kInitiation
	kResponse
	kConfirm
	kData
	kLetter
	kWhoAmI
	kYouAre
	kAllocate
	kAllocated
	kPermit
	kSend
	kDelivered
)

// Sizes of UDP payloads in bytes, as of the real packets.
const (
	probeSize      = 84
	answerSize     = 60
	initiationSize = 148
	responseSize   = 92
	confirmSize    = 32
	dataSize       = 128
)

func (g *gateway) newMachine() {
	g.m = path.New(path.Options{Low: g.low, Boot: g.boot, Epoch: time.Now(), OverlayMTU: g.site.overlay, Rand: rand.New(rand.NewPCG(g.w.seed, g.boot<<8|uint64(g.name[len(g.name)-1])))})
	g.routing, g.next = path.Routing{}, time.Now()
	g.session, g.initiated, g.sentSince, g.peerBoot = time.Time{}, time.Time{}, time.Time{}, 0
}

func (g *gateway) kick() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// run polls the machine and drives the tunnel until the internet closes.
func (g *gateway) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-g.done:
			return
		case <-timer.C:
		case <-g.wake:
		}
		g.mu.Lock()
		next := g.step(time.Now())
		g.mu.Unlock()
		timer.Reset(time.Until(next))
	}
}

// step does what is due. Here and below g.mu is held, except in functions that lock it.
func (g *gateway) step(now time.Time) time.Time {
	if !g.ready || g.stopped {
		return now.Add(time.Hour)
	}
	if g.site.noProbe {
		return g.stepTunnel(now)
	}
	for {
		a, next := g.m.Poll(now)
		if !next.After(now) {
			g.w.t.Errorf("%s: the next deadline %v is not after %v", g.name, next, now)
			next = now.Add(time.Millisecond)
		}
		g.next = next
		g.do(now, a)
		if len(a.Probes) == 0 {
			break
		}
	}
	if tunnel := g.stepTunnel(now); tunnel.Before(g.next) {
		return tunnel
	}
	return g.next
}

func (g *gateway) do(now time.Time, a path.Actions) {
	for _, p := range a.Probes {
		g.w.checkFrozen(g, p)
		if p.ID == 0 {
			g.asked++
		}
		g.tx++
		b := packet(kProbe, max(probeSize, p.Size), g.tx)
		b[1] = p.Flags
		binary.BigEndian.PutUint64(b[16:], g.boot)
		copy(b[24:], g.name)
		g.m.Sent(now, p.ID, txID(g.tx), nil)
		if err := g.send(b, p.Path, p.TTL, p.DontFragment); err != nil {
			g.m.Sent(now, p.ID, txID(g.tx), err)
		}
	}
	if a.Routing != nil {
		if g.routing.Selected.IsValid() && a.Routing.Selected != g.routing.Selected {
			g.switches++
		}
		g.routing = *a.Routing
	}
	if a.Permit != nil {
		g.permit(a.Permit)
	}
	if a.CheckRelays {
		g.doubts++
	}
	if a.Handshake {
		g.initiate(now)
	}
	for _, m := range a.Messages {
		g.w.mail.post(g, m)
	}
	for _, n := range a.Notes {
		g.events = append(g.events, n.Event)
	}
}

// checkFrozen checks that no probe goes to a frozen pair, except openers.
func (w *world) checkFrozen(g *gateway, p path.Probe) {
	if p.TTL != 0 || !w.traced {
		return
	}
	for _, c := range g.m.Snapshot().Candidates {
		if c.Path == p.Path && c.State == path.Frozen {
			w.t.Errorf("%s: full-TTL probe to the frozen pair %v", g.name, p.Path)
		}
	}
}

func txID(n uint64) (tx stunwire.TxID) {
	binary.BigEndian.PutUint64(tx[:], n)
	return tx
}

// packet returns a packet with a number in bytes 8 to 15.
func packet(kind byte, size int, n uint64) []byte {
	b := make([]byte, size)
	b[0] = kind
	binary.BigEndian.PutUint64(b[8:], n)
	return b
}

// putAddr and getAddr encode an address in 19 bytes.
func putAddr(b []byte, a netip.AddrPort) {
	ip := a.Addr().As16()
	copy(b, ip[:])
	binary.BigEndian.PutUint16(b[16:], a.Port())
}

func getAddr(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), binary.BigEndian.Uint16(b[16:]))
}

func (g *gateway) read() {
	defer close(g.done)
	buf := make([]byte, 10_000)
	for {
		n, from, err := g.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		g.mu.Lock()
		g.receive(buf[:n], peer.Path{Remote: from})
		g.mu.Unlock()
	}
}

// receive handles a packet, perhaps unwrapped from a relay's.
func (g *gateway) receive(b []byte, from peer.Path) {
	if g.stopped {
		return
	}
	if b[0] == kWhoAmI {
		g.strangers.Add(1)
		return
	}
	if g.fromServer(b, from) || !g.ready {
		return
	}
	now, n := time.Now(), binary.BigEndian.Uint64(b[8:])
	switch b[0] {
	case kProbe:
		if g.site.noProbe || string(b[24:25+len(g.name)]) == g.name+"\x00" { // our own ones use the key of the other direction
			return
		}
		reply := packet(kAnswer, answerSize, n)
		putAddr(reply[16:], from.Remote)
		_ = g.send(reply, from, 0, false)
		boot := binary.BigEndian.Uint64(b[16:])
		rebooted := g.peerBoot != 0 && boot > g.peerBoot
		g.peerBoot = max(g.peerBoot, boot)
		g.m.Requested(now, from, rebooted)
		if b[1]&path.FlagDeaf != 0 {
			g.m.Deserted(now, from)
		}
	case kAnswer:
		g.m.Answered(now, txID(n), from, getAddr(b[16:]))
	default:
		g.receiveTunnel(now, b, n, from)
	}
	g.kick()
}

func (g *gateway) send(b []byte, to peer.Path, ttl int, df bool) error {
	if to.Via != "" {
		return g.sendVia(b, to, df)
	}
	_, err := g.conn.WriteWith(b, to.Remote, ttl, df)
	return err
}

// publicAddr is the gateway's public address.
func (g *gateway) publicAddr() netip.AddrPort { return netip.AddrPortFrom(g.site.wan, port) }

func (g *gateway) status() (path.Snapshot, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m.Snapshot(), !g.session.IsZero()
}

// tell changes the machine's inputs under the lock.
func (g *gateway) tell(f func(now time.Time, m *path.Machine)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(time.Now(), g.m)
	g.kick()
}

// stop suspends or resumes the process.
func (g *gateway) stop(stopped bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = stopped
	g.kick()
}

// ticket returns the candidates that the gateway would put into a ticket.
func (g *gateway) ticket() []path.Candidate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.candidates()
}

// restart recreates the gateway, like a restarted process that kept its peer's candidates.
func (g *gateway) restart() {
	known := g.peer.ticket()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.boot++
	g.newMachine()
	now := time.Now()
	g.setLocal(now)
	g.m.SetRemote(now, known, false)
	g.kick()
}
