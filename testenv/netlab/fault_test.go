//go:build linux && e2e

package netlab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
)

// awaits polls until ok returns true, for conditions without an event.
func awaits(t *testing.T, what string, ok func(context.Context) bool) {
	t.Helper()
	ctx := deadline(t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timeout: %s", what)
		}
	}
}

// isStray reports whether a datagram from outside to a mapping is dropped as unsolicited.
func (b *natBench) isStray(t *testing.T, c *net.UDPConn, mapped netip.AddrPort) bool {
	t.Helper()
	before := b.strays(t)
	send(t, c, "late", mapped)
	// The datagram ends either in the counter or in the inside's socket, so check both.
	if err := b.inside.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	stray := false
	awaits(t, "the datagram ends somewhere", func(context.Context) bool {
		if b.strays(t) > before {
			stray = true
			return true
		}
		if err := b.inside.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, _, err := b.inside.ReadFromUDPAddrPort(make([]byte, 16))
		return err == nil
	})
	return stray
}

func TestMappingsExpireAsAsked(t *testing.T) {
	b := newNATBench(t, PortRestricted)
	m := b.mappedTo(t, b.a1)
	if b.isStray(t, b.a1, m) {
		t.Fatal("a fresh mapping lets nothing in")
	}
	b.nat.SetTimeouts(1, 2) // not before: a busy machine takes longer to look
	b.mappedTo(t, b.a1)
	awaits(t, "the mapping has expired", func(ctx context.Context) bool {
		flows, err := b.nat.Run(ctx, "conntrack", "-L", "-p", "udp")
		return err == nil && !strings.Contains(flows, insideAddr)
	})
	if !b.isStray(t, b.a1, m) {
		t.Error("a datagram gets in through an expired mapping")
	}
}

func TestForgottenMappingsLetNothingIn(t *testing.T) {
	b := newNATBench(t, PortRestricted)
	m := b.mappedTo(t, b.a1)
	b.nat.Restart()
	if !b.isStray(t, b.a1, m) {
		t.Error("a datagram gets in after all mappings were dropped")
	}
	if again := b.mappedTo(t, b.a1); again != m {
		t.Errorf("mapped to %s afterwards, want %s again", again, m)
	}
}

func TestRebindingChangesThePort(t *testing.T) {
	b := newNATBench(t, PortRestricted)
	m := b.mappedTo(t, b.a1)
	b.nat.Rebind(30000, 30999)
	if !b.isStray(t, b.a1, m) {
		t.Error("a datagram gets in through the previous port")
	}
	if p := b.mappedTo(t, b.a1).Port(); p < 30000 || p > 30999 {
		t.Errorf("mapped to port %d, want one of 30000-30999", p)
	}
}

func TestAddressesChange(t *testing.T) {
	b := newNATBench(t, FullCone)
	b.mappedTo(t, b.a1)
	const other = "198.51.100.77"
	b.nat.ChangeWANAddress(addr(other))
	send(t, b.inside, "out", local(b.a1))
	if d := receive(t, b.a1); d.from != netip.MustParseAddrPort(other+":51820") {
		t.Errorf("the inside appears as %s, want %s with the port kept", d.from, other)
	}
	if !b.passes(t, b.b1, b.a1, netip.MustParseAddrPort(other+":51820")) {
		t.Error("a full cone with another address lets no stranger in")
	}
	if err := Do(b.insideHost.namespace, b.inside.Close); err != nil {
		t.Fatal(err)
	}
	b.insideHost.ChangeAddress("eth0", addr("192.168.7.9"))
	c, err := b.insideHost.ListenUDP(netip.MustParseAddrPort("192.168.7.9:7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send(t, c, "moved", local(b.a1)) // over the default route, which must still exist
	if d := receive(t, b.a1); d.text != "moved" || d.from.Addr() != addr(other) {
		t.Errorf("received %q from %s, want \"moved\" from %s", d.text, d.from, other)
	}
}

func TestHairpin(t *testing.T) {
	for _, on := range []bool{false, true} {
		b := newNATBench(t, PortRestricted, func(o *NATOptions) { o.Hairpin = on })
		second, err := b.secondHost.ListenUDP(netip.MustParseAddrPort("192.168.7.3:9000"))
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		m := b.mappedTo(t, b.a1)
		send(t, second, "out", local(b.a2))
		receive(t, b.a2)
		send(t, second, "round", m)
		send(t, b.a1, "answer", m)
		d := receive(t, b.inside)
		if !on && d.text != "answer" {
			t.Errorf("without hairpin the inside received %q from %s", d.text, d.from)
		}
		if on && (d.text != "round" || d.from != netip.MustParseAddrPort(natOutside+":9000")) {
			t.Errorf("with hairpin the inside received %q from %s, want it from the other's outside address", d.text, d.from)
		}
	}
}

func TestTwoNATsInARow(t *testing.T) {
	lab := New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	shared := lab.Network("shared", netip.MustParsePrefix("100.64.0.0/10"))
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	lab.NAT("carrier", NATOptions{Kind: PortChanging, WAN: wan, WANAddr: addr(natOutside), LAN: shared, LANAddr: addr("100.64.0.1")})
	home := lab.NAT("home", NATOptions{Kind: PortRestricted, WAN: shared, WANAddr: addr("100.64.0.2"), LAN: lan, LANAddr: addr(natInside)})
	home.DefaultRoute(addr("100.64.0.1"))
	inside, outside := lab.Host("inside"), lab.Host("outside")
	inside.Attach("eth0", lan, addr(insideAddr))
	inside.DefaultRoute(addr(natInside))
	outside.Attach("eth0", wan, addr(outsideA))
	in, out := listenAt(t, inside, insideAddr, insidePort), listenAt(t, outside, outsideA, 7001)
	send(t, in, "out", local(out))
	d := receive(t, out)
	if p := d.from.Port(); d.from.Addr() != addr(natOutside) || p < 20000 || p > 29999 {
		t.Errorf("the inside appears as %s, want the carrier's address and ports", d.from)
	}
	send(t, out, "answer", d.from)
	if got := receive(t, in); got.text != "answer" {
		t.Errorf("the inside received %q, want the answer", got.text)
	}
}

func TestFiltersDropUntilTheyAreRemoved(t *testing.T) {
	b := newNATBench(t, FullCone)
	m := b.mappedTo(t, b.a1)
	for _, f := range []struct {
		name string
		make func() *Filter
	}{
		{"on a network, by the first byte of UDP's payload", func() *Filter { return b.wan.Drop("ip protocol udp @th,64,8 4") }},
		{"on a network, by address", func() *Filter { return b.wan.Drop("ip saddr " + outsideB) }},
		{"on a router", func() *Filter { return b.nat.Drop("ip saddr " + outsideB + " udp dport 51820") }},
	} {
		filter := f.make()
		send(t, b.b1, "\x04 dropped", m)
		send(t, b.a1, "passes", m)
		if d := receive(t, b.inside); d.text != "passes" {
			t.Errorf("%s: the inside received %q", f.name, d.text)
		}
		if n, err := filter.Dropped(deadline(t)); err != nil || n.Packets != 1 {
			t.Errorf("%s: counted %d dropped, %v; want 1", f.name, n.Packets, err)
		}
		filter.Remove()
		send(t, b.b1, "\x04 passes", m)
		if d := receive(t, b.inside); d.text != "\x04 passes" {
			t.Errorf("%s: after its removal the inside received %q", f.name, d.text)
		}
	}
}

func TestSentDatagramsAreMeteredEvenToOneself(t *testing.T) {
	lab := New(t)
	h := lab.Host("h")
	m := h.MeterSent("ip daddr { 127.0.0.0/8, 169.254.0.0/16 }", "ip6 daddr ::1")
	c := listenAt(t, h, "127.0.0.1", 9)
	send(t, c, "x", netip.MustParseAddrPort("127.0.0.1:9"))
	c6 := listenAt(t, h, "::1", 9)
	send(t, c6, "x", netip.MustParseAddrPort("[::1]:9"))
	if _, out, err := m.Read(deadline(t)); err != nil || out.Packets != 2 {
		t.Errorf("metered %d datagrams, %v; want 2", out.Packets, err)
	}
}

// narrowPath is a host on either side of a network with an MTU of 1280.
type narrowPath struct {
	left, right   *Host // routers
	near, far     *net.UDPConn
	nearHost      *Host
	tooLarge, fit []byte
}

func newNarrowPath(t *testing.T) *narrowPath {
	t.Helper()
	lab := New(t)
	a := lab.Network("a", netip.MustParsePrefix("192.0.2.0/24"))
	narrow := lab.NarrowNetwork("narrow", netip.MustParsePrefix("203.0.113.0/24"), 1280)
	z := lab.Network("z", netip.MustParsePrefix("198.51.100.0/24"))
	p := &narrowPath{left: lab.Router("left"), right: lab.Router("right"), fit: make([]byte, 1252), tooLarge: make([]byte, 1253)}
	p.left.Attach("eth0", a, addr("192.0.2.1"))
	p.left.Attach("eth1", narrow, addr("203.0.113.1"))
	p.right.Attach("eth1", narrow, addr("203.0.113.2"))
	p.right.Attach("eth0", z, addr("198.51.100.1"))
	p.left.DefaultRoute(addr("203.0.113.2"))
	p.right.DefaultRoute(addr("203.0.113.1"))
	near, far := lab.Host("near"), lab.Host("far")
	near.Attach("eth0", a, addr("192.0.2.2"))
	near.DefaultRoute(addr("192.0.2.1"))
	far.Attach("eth0", z, addr("198.51.100.2"))
	far.DefaultRoute(addr("198.51.100.1"))
	p.near, p.far, p.nearHost = listenAt(t, near, "192.0.2.2", 7), listenAt(t, far, "198.51.100.2", 7), near
	return p
}

// setDiscover sets a socket's IP_MTU_DISCOVER (ip(7)). IP_PMTUDISC_PROBE always sets the
// don't-fragment bit, regardless of the route's MTU, and IP_PMTUDISC_DONT never does.
func setDiscover(t *testing.T, c *net.UDPConn, mode int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		sockErr = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, mode),
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_RECVERR, 1),
		)
	})
	if err := errors.Join(err, sockErr); err != nil {
		t.Fatal(err)
	}
}

func (p *narrowPath) arrives(t *testing.T, b []byte) bool {
	t.Helper()
	for _, x := range [][]byte{b, []byte("end")} {
		if _, err := p.near.WriteToUDPAddrPort(x, local(p.far)); err != nil {
			t.Fatal(err)
		}
	}
	first := receive(t, p.far)
	if first.text == "end" {
		return false
	}
	receive(t, p.far)
	return true
}

func TestANarrowNetworkCutsOrDrops(t *testing.T) {
	t.Run("cuts", func(t *testing.T) {
		p := newNarrowPath(t)
		setDiscover(t, p.near, syscall.IP_PMTUDISC_DONT)
		if !p.arrives(t, p.tooLarge) {
			t.Error("a datagram that may be fragmented does not arrive")
		}
	})
	t.Run("tells the sender", func(t *testing.T) {
		p := newNarrowPath(t)
		setDiscover(t, p.near, syscall.IP_PMTUDISC_PROBE)
		send(t, p.near, string(p.tooLarge), local(p.far))
		if err := p.near.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.near.ReadFromUDPAddrPort(make([]byte, 16)); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("the sender got %v, want EMSGSIZE", err)
		}
	})
	t.Run("black hole", func(t *testing.T) {
		p := newNarrowPath(t)
		p.left.DropICMPErrors()
		p.right.DropFragments()
		setDiscover(t, p.near, syscall.IP_PMTUDISC_PROBE)
		if !p.arrives(t, p.fit) {
			t.Error("a datagram of the path's MTU does not arrive")
		}
		if p.arrives(t, p.tooLarge) {
			t.Error("a datagram above the path's MTU with the don't-fragment bit arrives")
		}
		setDiscover(t, p.near, syscall.IP_PMTUDISC_DONT)
		if p.arrives(t, p.tooLarge) {
			t.Error("fragments arrive")
		}
	})
}

func TestAForwardedPortLetsEverybodyIn(t *testing.T) {
	b := newNATBench(t, Symmetric)
	outside := netip.AddrPortFrom(addr(natOutside), 40000)
	if !b.isStray(t, b.a1, outside) {
		t.Fatal("a datagram gets in through a port that is not forwarded")
	}
	inside := netip.AddrPortFrom(addr(insideAddr), insidePort)
	b.nat.Forward(outside.Port(), inside)
	if b.isStray(t, b.a1, outside) {
		t.Error("no datagram gets in through the forwarded port")
	}
}
