package scale

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/blake2s"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Flood is the effect of strangers' handshake initiations on a transfer.
type Flood struct {
	// Kind says who sends the flood: see floods.
	Kind string `json:"kind"`
	// Sent is the number of initiations sent each second.
	Sent float64 `json:"sentPerSecond"`
	// Alone is the transfer's rate before and after the flood, Under that during the flood, in
	// bit/s.
	Alone float64 `json:"aloneBitsPerSecond"`
	Under float64 `json:"underBitsPerSecond"`
	// AnonAlone and AnonUnder are the highest anonymous memory of the hub that was sampled before
	// and during the flood, in bytes.
	AnonAlone uint64 `json:"anonAloneBytes"`
	AnonUnder uint64 `json:"anonUnderBytes"`
	// HubAlone and HubUnder are the hub's processor time, in cores. Sender is that of the sender,
	// including the kernel's on its behalf: on the loopback interface the sender delivers
	// packets. Cores is the machine's number of cores.
	HubAlone float64 `json:"hubAloneCores"`
	HubUnder float64 `json:"hubUnderCores"`
	Sender   float64 `json:"senderCores"`
	Cores    int     `json:"cores"`
}

// Kept is the share of the rate that remains.
func (f Flood) Kept() float64 {
	if f.Alone == 0 {
		return 0
	}
	return f.Under / f.Alone
}

// KeptOfRest is the share that remains of the rate possible with the cores that the sender
// leaves: a real attacker uses another machine.
func (f Flood) KeptOfRest() float64 {
	rest := float64(f.Cores) - f.Sender
	if rest <= 0 {
		return 0
	}
	return f.Kept() * float64(f.Cores) / rest
}

// FloodOptions configure the measurement of a flood.
type FloodOptions struct {
	Options
	// Rate is the number of initiations each second.
	Rate int
	// Window is the length of each measurement, without and with the flood.
	Window time.Duration
}

const (
	// blob is the hub's service for downloads.
	blob     = "blob"
	blobPort = 7000
	block    = 128 << 10 // bytes in a write or a read

	// initiationSize is the size of the message and macOffset that of mac1 in it, in bytes
	// (WireGuard whitepaper §5.4.2).
	initiationSize = 148
	macOffset      = 116
	labelMAC1      = "mac1----"
	// messages is the number of different initiations, which are sent repeatedly. It exceeds all
	// caches of the gateway.
	messages = 8192
	// burst is the number of messages sent at once.
	burst = 50
)

// floods are the kinds of senders. All messages have a valid mac1.
var floods = []struct {
	kind    string
	sources int // addresses of the loopback network
}{
	{"one stranger", 1},
	{"250 strangers", 250},
}

// MeasureFlood floods a hub while a peer downloads through it.
func MeasureFlood(ctx context.Context, o FloodOptions) (out []Flood, err error) {
	source, err := startBlob(ctx)
	if err != nil {
		return nil, err
	}
	defer source.close()
	w, err := newWorld(o.Options, 1, []api.NamedService{{Name: blob, Port: blobPort, Address: source.address()}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	w.local = map[string]api.ListenAddress{blob: {Addr: loopback, Ports: api.PortsOf(0)}}
	if _, err := w.up(ctx); err != nil {
		return nil, err
	}
	d, err := startDownload(ctx, w.fleet.peers[0])
	if err != nil {
		return nil, err
	}
	defer d.close()
	for _, f := range floods {
		r, err := w.flood(ctx, o, d, f.sources)
		if err != nil {
			return out, fmt.Errorf("flood by %s: %w", f.kind, err)
		}
		r.Kind = f.kind
		w.say("%s: %.0f initiations/s, the transfer keeps %.2f (%.2f of what the sender leaves), %.1f MB against %.1f",
			r.Kind, r.Sent, r.Kept(), r.KeptOfRest(), mb(r.AnonUnder), mb(r.AnonAlone))
		out = append(out, r)
	}
	return out, nil
}

// flood measures the transfer before, during and after the flood.
func (w *world) flood(ctx context.Context, o FloodOptions, d *download, sources int) (Flood, error) {
	if err := sleep(ctx, o.Window/2); err != nil { // TCP's window grows
		return Flood{}, err
	}
	before, err := w.rate(ctx, d, o.Window)
	if err != nil {
		return Flood{}, err
	}
	s, err := startStrangers(w.hub, sources, o.Rate)
	if err != nil {
		return Flood{}, err
	}
	begun := time.Now()
	under, err := w.rate(ctx, d, o.Window)
	sent, flooded := s.stop(), time.Since(begun)
	if err := errors.Join(err, sent.err); err != nil {
		return Flood{}, err
	}
	after, err := w.rate(ctx, d, o.Window)
	if err != nil {
		return Flood{}, err
	}
	return Flood{
		Sent: float64(sent.messages) / flooded.Seconds(), Alone: (before.bits + after.bits) / 2, Under: under.bits,
		AnonAlone: before.anon, AnonUnder: under.anon, HubAlone: (before.hub + after.hub) / 2, HubUnder: under.hub,
		Sender: float64(sent.took) / float64(flooded), Cores: runtime.NumCPU(),
	}, nil
}

// rate is a download's rate in a window.
type rate struct {
	bits float64 // per second
	anon uint64  // the hub's peak memory, in bytes
	hub  float64 // the hub's processor time, in cores
}

func (w *world) rate(ctx context.Context, d *download, window time.Duration) (r rate, err error) {
	const samples = 20
	first, err := w.hub.usage()
	if err != nil {
		return rate{}, err
	}
	begun, before, last := time.Now(), d.bytes.Load(), first
	for range samples {
		if err := sleep(ctx, window/samples); err != nil {
			return rate{}, err
		}
		if last, err = w.hub.usage(); err != nil {
			return rate{}, err
		}
		r.anon = max(r.anon, last.Anon)
	}
	took := time.Since(begun)
	r.bits, r.hub = 8*float64(d.bytes.Load()-before)/took.Seconds(), float64(last.CPU-first.CPU)/float64(took)
	return r, nil
}

// source sends endlessly on every connection.
type source struct {
	listener net.Listener
	workers  sync.WaitGroup
}

func startBlob(ctx context.Context) (*source, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		return nil, fmt.Errorf("listen for the download: %w", err)
	}
	s := &source{listener: l}
	s.workers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			s.workers.Go(func() {
				defer c.Close()
				for zeros := make([]byte, block); ; {
					if _, err := c.Write(zeros); err != nil {
						return // the other end has closed
					}
				}
			})
		}
	})
	return s, nil
}

func (s *source) address() string { return s.listener.Addr().String() }

// close must be called when the hub has ended, and with it the connections.
func (s *source) close() {
	s.listener.Close()
	s.workers.Wait()
}

// download reads from the hub's service through the peer's local listener, as programs do.
type download struct {
	conn  net.Conn
	bytes atomic.Uint64
	ended chan struct{}
}

func startDownload(ctx context.Context, p *Peer) (*download, error) {
	h, err := p.hub(ctx)
	if err != nil {
		return nil, err
	}
	if len(h.Local) != 1 {
		return nil, fmt.Errorf("the peer listens at %v, want one address", h.Local)
	}
	d := &download{ended: make(chan struct{})}
	if d.conn, err = new(net.Dialer).DialContext(ctx, "tcp", h.Local[0].Address); err != nil {
		return nil, fmt.Errorf("connect for the download: %w", err)
	}
	go func() {
		defer close(d.ended)
		for b := make([]byte, block); ; {
			n, err := d.conn.Read(b)
			d.bytes.Add(uint64(n))
			if err != nil {
				return // missing data shows in the rate
			}
		}
	}()
	return d, nil
}

func (d *download) close() { d.conn.Close(); <-d.ended }

// strangers send initiations that the hub can only reject after computing a shared secret.
type strangers struct {
	quit chan struct{}
	done chan sent
}

// sent is the number of messages sent, and the processor time used.
type sent struct {
	messages int
	took     time.Duration
	err      error
}

// startStrangers starts sending rate initiations a second from the given number of addresses.
func startStrangers(h *Hub, sources, rate int) (*strangers, error) {
	all := initiations(h.public, messages)
	var conns []*net.UDPConn
	closeAll := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	for i := range sources {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1 + byte(i/250), 1 + byte(i%250)}), 0)
		c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(h.at))
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("send from %v: %w", from, err)
		}
		conns = append(conns, c)
	}
	s := &strangers{quit: make(chan struct{}), done: make(chan sent, 1)}
	go func() {
		defer closeAll()
		runtime.LockOSThread() // so that the thread's time is the sender's
		defer runtime.UnlockOSThread()
		before, err := threadTime()
		n := s.send(conns, all, rate)
		after, errAfter := threadTime()
		s.done <- sent{n, after - before, errors.Join(err, errAfter)}
	}()
	return s, nil
}

// send sends until quit, and returns the number of messages.
func (s *strangers) send(conns []*net.UDPConn, all [][]byte, rate int) (n int) {
	for begun := time.Now(); ; {
		for n < int(time.Since(begun).Seconds()*float64(rate)) {
			for range burst {
				// Replies are not read. Go on if the hub's port is closed.
				_, err := conns[n%len(conns)].Write(all[n%len(all)])
				if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
					return n
				}
				n++
			}
		}
		select {
		case <-s.quit:
			return n
		case <-time.After(burst * time.Second / time.Duration(rate)):
		}
	}
}

// stop stops sending.
func (s *strangers) stop() sent {
	close(s.quit)
	return <-s.done
}

// initiations returns n initiations to the owner of a key, with a valid mac1 and random content
// otherwise: the hub must compute a shared secret to find out that they are not genuine.
func initiations(to peer.PublicKey, n int) [][]byte {
	key := blake2s.Sum256(append([]byte(labelMAC1), to[:]...))
	random := rand.NewChaCha8([32]byte(to))
	out := make([][]byte, n)
	for i := range out {
		m := make([]byte, initiationSize)
		if _, err := io.ReadFull(random, m[:macOffset]); err != nil {
			panic(err) // ChaCha8 never fails
		}
		binary.LittleEndian.PutUint32(m, 1) // type
		mac, err := blake2s.New128(key[:])
		if err != nil {
			panic(err) // the key has a valid length
		}
		mac.Write(m[:macOffset])
		copy(m[macOffset:], mac.Sum(nil))
		out[i] = m
	}
	return out
}
