package lan

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wireNet is a simulated network segment: a message to the group reaches every socket on it,
// including the sender's.
type wireNet struct {
	mu    sync.Mutex
	conns []*wireConn
	log   []sent
	cut   map[netip.Addr]bool // nothing from these arrives any more
}

type sent struct {
	at     time.Time
	family Family
	from   netip.AddrPort
	to     netip.AddrPort // invalid: the group
	data   []byte
}

func (s sent) msg(t *testing.T) *dns.Msg {
	t.Helper()
	m, err := parse(s.data)
	if err != nil {
		t.Fatalf("a message that nobody understands was sent: %v: %x", err, s.data)
	}
	return m
}

type wireConn struct {
	wire   *wireNet
	family Family
	addr   netip.AddrPort
	in     chan sent
	closed chan struct{}
	once   sync.Once
}

func (w *wireNet) listen(f Family, addr netip.AddrPort) *wireConn {
	c := &wireConn{wire: w, family: f, addr: addr, in: make(chan sent, 4096), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c
}

func (c *wireConn) ReadFrom(b []byte) (int, netip.AddrPort, error) {
	select {
	case s := <-c.in:
		return copy(b, s.data), s.from, nil
	case <-c.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (c *wireConn) Multicast(b []byte) error { return c.WriteTo(b, netip.AddrPort{}) }

func (c *wireConn) WriteTo(b []byte, to netip.AddrPort) error {
	select {
	case <-c.closed:
		return net.ErrClosed
	default:
	}
	w := c.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	s := sent{time.Now(), c.family, c.addr, to, slices.Clone(b)}
	if w.cut[c.addr.Addr()] {
		return nil
	}
	w.log = append(w.log, s)
	for _, o := range w.conns {
		if o.family != c.family || w.cut[o.addr.Addr()] || to.IsValid() && to != o.addr || !to.IsValid() && o.addr.Port() != mdnsPort {
			continue
		}
		select {
		case o.in <- s:
		default:
		}
	}
	return nil
}

func (c *wireConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.wire.mu.Lock()
		defer c.wire.mu.Unlock()
		c.wire.conns = slices.DeleteFunc(c.wire.conns, func(o *wireConn) bool { return o == c })
	})
	return nil
}

// since lists what was sent by an address, or by anyone (invalid), after a time.
func (w *wireNet) since(from netip.Addr, at time.Time) []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []sent
	for _, s := range w.log {
		if s.at.After(at) && (!from.IsValid() || s.from.Addr() == from) {
			out = append(out, s)
		}
	}
	return out
}

func (w *wireNet) kill(a ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil {
		w.cut = map[netip.Addr]bool{}
	}
	for _, x := range a {
		w.cut[x] = true
	}
}

// host is a simulated gateway.
type host struct {
	*Finder
	t    *testing.T
	key  peer.PublicKey
	stop func()

	mu      sync.Mutex
	ifs     []Interface
	wires   map[int]*wireNet
	port    uint16
	changes int
}

// plug gives a host an interface on a wire. It may be called while the host runs.
func (h *host) plug(index int, w *wireNet, prefixes ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := Interface{Index: index, Name: "eth" + string(rune('0'+index))}
	for _, p := range prefixes {
		i.Prefixes = append(i.Prefixes, netip.MustParsePrefix(p))
	}
	h.ifs = slices.DeleteFunc(h.ifs, func(o Interface) bool { return o.Index == index })
	if w != nil {
		h.ifs = append(h.ifs, i)
		h.wires[index] = w
	}
}

func (h *host) interfaces() ([]Interface, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ifs), nil
}

func (h *host) open(i Interface, f Family) (Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range i.Prefixes {
		if familyOf(p.Addr()) == f {
			return h.wires[i.Index].listen(f, netip.AddrPortFrom(p.Addr(), mdnsPort)), nil
		}
	}
	return nil, errors.New("no address")
}

func (h *host) setPort(port uint16) {
	h.mu.Lock()
	h.port = port
	h.mu.Unlock()
	h.PortChanged()
}

// keyOfTest returns a key that is the same in every run.
func keyOfTest(n byte) peer.PublicKey {
	return peer.PrivateKeyFromBytes([32]byte{1, n, 2, 3}).Public()
}

// newHost returns a gateway that does not run yet; its key follows from its number.
func newHost(t *testing.T, name string, number byte, configure ...func(*Options)) *host {
	t.Helper()
	h := &host{t: t, key: keyOfTest(number), wires: map[int]*wireNet{}, port: 51820}
	o := Options{
		Name: name, PublicKey: h.key, Interfaces: h.interfaces, Listen: h.open,
		Port:    func() uint16 { h.mu.Lock(); defer h.mu.Unlock(); return h.port },
		Changed: func() { h.mu.Lock(); defer h.mu.Unlock(); h.changes++ },
	}
	for _, c := range configure {
		c(&o)
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.Finder = f
	return h
}

// run starts a gateway; it ends with the test or by stop.
func (h *host) run() *host {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.Run(ctx); !errors.Is(err, context.Canceled) {
			h.t.Errorf("Run: %v", err)
		}
	})
	h.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	h.t.Cleanup(h.stop)
	return h
}

// names lists the gateways found, as NAME@INTERFACE.
func (h *host) names() []string {
	out := []string{}
	for _, i := range h.Found() {
		out = append(out, i.Name.String()+"@"+i.Interface)
	}
	return out
}

func (h *host) want(names ...string) {
	h.t.Helper()
	if got := h.names(); !slices.Equal(got, names) {
		h.t.Errorf("%v after the start %s has found %q, want %q", time.Since(h.Status().Since), h.o.Name, got, names)
	}
}

// segment returns a wire with gateways on it, with addresses from 192.168.1.1 and fd12:: on.
func segment(t *testing.T, names ...string) (*wireNet, []*host) {
	t.Helper()
	w := &wireNet{}
	var hosts []*host
	for n, name := range names {
		h := newHost(t, name, byte(n+1))
		h.plug(1, w, v4(n+1)+"/24", v6(n+1)+"/64", linkLocal(n+1)+"/64")
		hosts = append(hosts, h)
	}
	return w, hosts
}

func v4(n int) string { return netip.AddrFrom4([4]byte{192, 168, 1, byte(n)}).String() }
func v6(n int) string {
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: byte(n)}).String()
}
func linkLocal(n int) string {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: byte(n)}).String()
}

// inTime runs a test in virtual time and ends its gateways.
func inTime(t *testing.T, do func(t *testing.T)) { t.Helper(); synctest.Test(t, do) }

// pass lets virtual time pass, with everything that happens then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// asker is a socket whose messages the test writes.
type asker struct {
	*wireConn
	t *testing.T
}

func newAsker(t *testing.T, w *wireNet, port uint16) *asker {
	t.Helper()
	c := w.listen(IPv4, netip.MustParseAddrPort("192.168.1.200:"+portText(port)))
	return &asker{c, t}
}

func portText(p uint16) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), p).String()[len("0.0.0.0:"):]
}

func (a *asker) say(m *dns.Msg) {
	a.t.Helper()
	b, err := m.Pack()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.Multicast(b); err != nil {
		a.t.Fatal(err)
	}
}

// heard returns the responses that arrived since the last call.
func (a *asker) heard() []*dns.Msg {
	a.t.Helper()
	synctest.Wait()
	var out []*dns.Msg
	for {
		select {
		case s := <-a.in:
			if m := s.msg(a.t); m.Response && s.from != a.addr {
				out = append(out, m)
			}
		default:
			return out
		}
	}
}

func question(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: name, Qtype: qtype, Qclass: dns.ClassINET}}
	return m
}

func mustRR(t testing.TB, s string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(s)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}
