package path_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

// relayServer is a STUN server and a TURN server: it returns a sender's address, and relays. An
// allocation is a socket of its own, and lets in permitted addresses.
type relayServer struct {
	w    *world
	host *simnet.Host
	addr netip.AddrPort
	conn *simnet.Conn

	mu          sync.Mutex
	allocations map[netip.AddrPort]*allocation // by client
	// dice choose the ports of later allocations; nil = consecutive ports.
	dice  *rand.Rand
	ports [2]int // the lowest, and how many
}

type allocation struct {
	server    *relayServer
	client    netip.AddrPort
	conn      *simnet.Conn
	relayed   netip.AddrPort
	permitted map[netip.Addr]bool // guarded by the server's mu
}

func (w *world) relayServer(name string, addr netip.Addr) *relayServer {
	h, err := w.net.AddHost(simnet.HostOptions{
		Name: name, Addrs: []netip.Addr{addr}, Link: simnet.Both(simnet.Conditions{Delay: 5 * time.Millisecond}),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	s := &relayServer{w: w, host: h, addr: netip.AddrPortFrom(addr, serverPort), allocations: make(map[netip.AddrPort]*allocation), ports: [2]int{49152, 1 << 14}}
	if s.conn, err = h.ListenUDP(serverPort); err != nil {
		w.t.Fatal(err)
	}
	w.running.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := s.conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			s.receive(buf[:n], from)
		}
	})
	return s
}

// Offsets of the parts of a packet to and from a server.
const (
	serverAddr    = 16 // 18 bytes
	serverPayload = 36 // a TURN Send indication has the same overhead
)

func (s *relayServer) receive(b []byte, from netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch b[0] {
	case kWhoAmI:
		reply := packet(kYouAre, serverPayload, binary.BigEndian.Uint64(b[8:]))
		putAddr(reply[serverAddr:], from)
		_, _ = s.conn.WriteToUDPAddrPort(reply, from)
	case kAllocate:
		a := s.allocate(from)
		if a == nil {
			return
		}
		reply := packet(kAllocated, serverPayload, 0)
		putAddr(reply[serverAddr:], a.relayed)
		_, _ = s.conn.WriteToUDPAddrPort(reply, from)
	case kPermit:
		if a := s.allocations[from]; a != nil {
			a.permitted[getAddr(b[serverAddr:]).Addr()] = true
		}
	case kSend:
		to := getAddr(b[serverAddr:])
		if a := s.allocations[from]; a != nil && a.permitted[to.Addr()] {
			_, _ = a.conn.WriteWith(b[serverPayload:], to, 0, b[1] == 1)
		}
	}
}

func (s *relayServer) allocate(client netip.AddrPort) *allocation {
	if a := s.allocations[client]; a != nil {
		return a
	}
	at := 0
	if s.dice != nil {
		at = s.ports[0] + s.dice.IntN(s.ports[1])
	}
	conn, err := s.host.ListenUDP(uint16(at))
	if err != nil {
		return nil
	}
	local := netip.MustParseAddrPort(conn.LocalAddr().String())
	a := &allocation{
		server: s, client: client, conn: conn, relayed: netip.AddrPortFrom(s.addr.Addr(), local.Port()),
		permitted: map[netip.Addr]bool{s.addr.Addr(): true},
	}
	s.allocations[client] = a
	s.w.running.Go(a.read)
	return a
}

// lose drops all allocations, like a restarted server that assigns random ports.
func (s *relayServer) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dice = rand.New(rand.NewChaCha8([32]byte{byte(s.w.seed), 11}))
	for c, a := range s.allocations {
		_ = a.conn.Close()
		delete(s.allocations, c)
	}
}

func (a *allocation) read() {
	buf := make([]byte, 2048)
	for {
		n, from, err := a.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		a.server.mu.Lock()
		permitted := a.permitted[from.Addr()]
		a.server.mu.Unlock()
		if !permitted {
			continue
		}
		b := packet(kDelivered, serverPayload, 0)
		putAddr(b[serverAddr:], from)
		_, _ = a.server.conn.WriteToUDPAddrPort(append(b, buf[:n]...), a.client)
	}
}

// viaRelay is a gateway's allocation.
type viaRelay struct {
	id      string
	server  netip.AddrPort
	relayed netip.AddrPort
}

// gatherEvery refreshes mappings and allocations, as the agent and the TURN client do.
const (
	gatherEvery  = 25 * time.Second
	gatherRepeat = 300 * time.Millisecond
)

// gather asks the servers for our own address and for an allocation until the gateway closes.
func (g *gateway) gather() {
	for {
		g.mu.Lock()
		for _, s := range g.w.servers {
			_, _ = g.conn.WriteToUDPAddrPort(packet(kWhoAmI, serverPayload, 0), s.addr)
		}
		if g.site.relay {
			_, _ = g.conn.WriteToUDPAddrPort(packet(kAllocate, serverPayload, 0), g.w.servers[0].addr)
		}
		wait := gatherEvery
		if !g.gathered() {
			wait = gatherRepeat
		}
		g.mu.Unlock()
		select {
		case <-g.done:
			return
		case <-time.After(wait):
		}
	}
}

// gathered reports whether the servers have answered. g is locked.
func (g *gateway) gathered() bool {
	return g.seen && (!g.site.relay || len(g.vias) > 0)
}

// fromServer handles packets from servers; false for anything else.
func (g *gateway) fromServer(b []byte, from peer.Path) bool {
	switch b[0] {
	case kYouAre:
		g.seen = true
		at := getAddr(b[serverAddr:])
		if source := path.SourceSTUN; g.announced[at] == "" && at.Addr() != g.site.host {
			g.announced[at] = source
			g.setLocal(time.Now())
		}
	case kAllocated:
		at := getAddr(b[serverAddr:])
		id := fmt.Sprintf("relay-%s-%d", g.name, at.Port())
		if g.vias[id] == nil {
			clear(g.vias)
			g.vias[id] = &viaRelay{id: id, server: from.Remote, relayed: at}
			g.setLocal(time.Now())
		}
	case kDelivered:
		for _, v := range g.vias {
			if v.server == from.Remote && len(b) > serverPayload+16 {
				g.receive(b[serverPayload:], peer.Path{Via: v.id, Remote: getAddr(b[serverAddr:])})
			}
		}
	default:
		return false
	}
	g.kick()
	return true
}

// setLocal gives the machine our candidates and relays.
func (g *gateway) setLocal(now time.Time) {
	l := path.Local{Hosts: []netip.Addr{g.site.host}, Candidates: g.candidates(), NAT: path.NAT{Mapping: g.site.mapping}}
	if !g.site.blind {
		l.NAT.Filtering, l.NAT.Strays = g.site.filtering, g.site.strays
	}
	for _, v := range g.vias {
		l.Relays = append(l.Relays, path.Relay{Via: v.id, Addr: v.relayed, Server: v.server.String()})
	}
	g.m.SetLocal(now, l)
}

// candidates returns what the gateway announces.
func (g *gateway) candidates() []path.Candidate {
	source := path.SourceHost
	if g.site.stable {
		source = path.SourceAdvertised
	}
	out := []path.Candidate{{Addr: netip.AddrPortFrom(g.site.host, port), Source: source}}
	for at, source := range g.announced {
		out = append(out, path.Candidate{Addr: at, Source: source})
	}
	for _, v := range g.vias {
		out = append(out, path.Candidate{Addr: v.relayed, Source: path.SourceRelay})
	}
	slices.SortFunc(out, func(a, b path.Candidate) int { return a.Addr.Compare(b.Addr) })
	return out
}

// permit sets the addresses that the allocations let in.
func (g *gateway) permit(addrs []netip.Addr) {
	for _, v := range g.vias {
		for _, a := range addrs {
			b := packet(kPermit, serverPayload, 0)
			putAddr(b[serverAddr:], netip.AddrPortFrom(a, 1))
			_, _ = g.conn.WriteToUDPAddrPort(b, v.server)
		}
	}
}

// sendVia wraps a packet for the server of an allocation.
func (g *gateway) sendVia(b []byte, to peer.Path, df bool) error {
	v := g.vias[to.Via]
	if v == nil {
		return fmt.Errorf("no allocation %s", to.Via)
	}
	out := packet(kSend, serverPayload, 0)
	if df {
		out[1] = 1
	}
	putAddr(out[serverAddr:], to.Remote)
	_, err := g.conn.WriteWith(append(out, b...), v.server, 0, df)
	return err
}
