package discovery_test

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/simnet"
)

// relayHost stands in for a TURN server: each gateway has a control port and a relayed port. A
// packet that the gateway sends to the control port, with a destination as header, leaves from
// the relayed port. A packet that arrives there from a permitted IP address comes back with its
// source as header.
type relayHost struct {
	host    *simnet.Host
	addr    netip.Addr
	running sync.WaitGroup
	conns   []*simnet.Conn
}

// allocation is one gateway's on a relayHost.
type allocation struct {
	control, relayed *simnet.Conn
	relay            *relayHost

	mu        sync.Mutex
	client    netip.AddrPort // where the gateway was last seen
	permitted []netip.Addr
}

const relayAddr = "192.0.2.50"

func newRelayHost(t *testing.T, in *simnet.Internet) *relayHost {
	t.Helper()
	r := &relayHost{addr: netip.MustParseAddr(relayAddr)}
	var err error
	r.host, err = in.AddHost(simnet.HostOptions{
		Name: "relay", Addrs: []netip.Addr{r.addr},
		Link: simnet.Both(simnet.Conditions{Delay: 10 * time.Millisecond}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *relayHost) close() {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.running.Wait()
}

// allocate creates the nth allocation.
func (r *relayHost) allocate(t *testing.T, n int) *allocation {
	t.Helper()
	listen := func(port int) *simnet.Conn {
		c, err := r.host.ListenUDP(uint16(port))
		if err != nil {
			t.Fatal(err)
		}
		r.conns = append(r.conns, c)
		return c
	}
	a := &allocation{relay: r, control: listen(4000 + n), relayed: listen(5000 + n)}
	r.running.Go(func() { read(a.control, a.outward) })
	r.running.Go(func() { read(a.relayed, a.inward) })
	return a
}

// relayedAddr is the address for peers, controlAddr the one for the gateway.
func (a *allocation) relayedAddr() netip.AddrPort { return a.at(a.relayed) }
func (a *allocation) controlAddr() netip.AddrPort { return a.at(a.control) }

func (a *allocation) at(c *simnet.Conn) netip.AddrPort {
	return netip.AddrPortFrom(a.relay.addr, portOf(c))
}

// permit lets addresses in, besides the relay's own.
func (a *allocation) permit(addrs []netip.Addr) {
	a.mu.Lock()
	a.permitted = slices.Clone(addrs)
	a.mu.Unlock()
}

func (a *allocation) permits(addr netip.Addr) bool {
	return addr == a.relay.addr || slices.Contains(a.permitted, addr)
}

func (a *allocation) outward(b []byte, from netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = from
	if to, payload, ok := behead(b); ok && a.permits(to.Addr()) {
		_, _ = a.relayed.WriteToUDPAddrPort(payload, to)
	}
}

func (a *allocation) inward(b []byte, from netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client.IsValid() && a.permits(from.Addr()) {
		_, _ = a.control.WriteToUDPAddrPort(head(from, b), a.client)
	}
}

// head puts an address before a datagram, behead removes it.
func head(a netip.AddrPort, b []byte) []byte {
	text, _ := a.MarshalBinary() // never fails
	return append(append([]byte{byte(len(text))}, text...), b...)
}

func behead(b []byte) (a netip.AddrPort, payload []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) || a.UnmarshalBinary(b[1:1+b[0]]) != nil {
		return a, nil, false
	}
	return a, b[1+b[0]:], true
}

// read passes on what a socket receives until it is closed.
func read(c *simnet.Conn, take func(b []byte, from netip.AddrPort)) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		take(buf[:n], from)
	}
}
