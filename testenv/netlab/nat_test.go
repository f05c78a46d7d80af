//go:build linux && e2e

package netlab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
)

// Addresses of every NAT test: a host behind the router, and one outside with two addresses.
const (
	insideAddr = "192.168.7.2"
	secondAddr = "192.168.7.3"
	natInside  = "192.168.7.1"
	natOutside = "198.51.100.20"
	outsideA   = "198.51.100.10"
	outsideB   = "198.51.100.11"
	insidePort = 51820
)

// datagram is what a socket received.
type datagram struct {
	text string
	from netip.AddrPort
}

// receive waits for one datagram.
func receive(t *testing.T, c *net.UDPConn) datagram {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2048)
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatalf("receive at %s: %v", c.LocalAddr(), err)
	}
	return datagram{string(b[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
}

func send(t *testing.T, c *net.UDPConn, text string, to netip.AddrPort) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatalf("send %q from %s to %s: %v", text, c.LocalAddr(), to, err)
	}
}

func readAll(r io.Reader) (int64, error) { return io.Copy(io.Discard, r) }

// natBench is a NAT with a socket inside, a second host there, and three sockets outside.
type natBench struct {
	lab                    *Lab
	wan                    *Network
	nat                    *NAT
	insideHost, secondHost *Host
	inside                 *net.UDPConn
	// a1 and a2 share address A, b1 has address B and the port of a1.
	a1, a2, b1 *net.UDPConn
}

func newNATBench(t *testing.T, kind NATKind, change ...func(*NATOptions)) *natBench {
	t.Helper()
	lab := New(t)
	b := &natBench{lab: lab, wan: lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))}
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	o := NATOptions{
		Kind: kind, WAN: b.wan, WANAddr: addr(natOutside), LAN: lan, LANAddr: addr(natInside),
		Inside: netip.AddrPortFrom(addr(insideAddr), insidePort),
	}
	for _, c := range change {
		c(&o)
	}
	b.nat = lab.NAT("nat", o)
	b.insideHost, b.secondHost = lab.Host("inside"), lab.Host("second")
	outside := lab.Host("outside")
	for h, a := range map[*Host]string{b.insideHost: insideAddr, b.secondHost: secondAddr} {
		h.Attach("eth0", lan, addr(a))
		h.DefaultRoute(addr(natInside))
	}
	outside.Attach("eth0", b.wan, addr(outsideA))
	outside.AddAddress("eth0", netip.MustParsePrefix(outsideB+"/24"))
	b.inside = listenAt(t, b.insideHost, insideAddr, insidePort)
	b.a1, b.a2, b.b1 = listenAt(t, outside, outsideA, 7001), listenAt(t, outside, outsideA, 7002), listenAt(t, outside, outsideB, 7001)
	return b
}

// listenAt opens a socket that is closed with the test.
func listenAt(t *testing.T, h *Host, a string, port uint16) *net.UDPConn {
	t.Helper()
	c, err := h.ListenUDP(netip.AddrPortFrom(addr(a), port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func local(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// mappedTo sends from inside to an outside socket and returns the source address seen there.
func (b *natBench) mappedTo(t *testing.T, c *net.UDPConn) netip.AddrPort {
	t.Helper()
	send(t, b.inside, "out", local(c))
	d := receive(t, c)
	if d.from.Addr() != addr(natOutside) {
		t.Errorf("inside appears as %s, want address %s", d.from, natOutside)
	}
	return d.from
}

// passes reports whether an unsolicited datagram from c reaches the inside: it sends one, then
// one from a socket that is allowed, and checks which arrive.
func (b *natBench) passes(t *testing.T, c *net.UDPConn, allowed *net.UDPConn, mapped netip.AddrPort) bool {
	t.Helper()
	before := b.strays(t)
	send(t, c, "stray", mapped)
	// Packets of one socket stay in order. Those of different sockets nearly always do, and the
	// counter of strays covers the rest.
	send(t, allowed, "answer", mapped)
	first := receive(t, b.inside)
	if first.text == "stray" {
		if second := receive(t, b.inside); second.text != "answer" {
			t.Errorf("inside received %q, want the answer", second.text)
		}
		return true
	}
	if got := b.strays(t); got == before {
		t.Error("the stray neither arrived nor was counted as dropped")
	}
	return false
}

func (b *natBench) strays(t *testing.T) uint64 {
	t.Helper()
	traffic, err := b.nat.Traffic(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return traffic.Strays.Packets
}

func TestNATKindsMapAndFilterAsNamed(t *testing.T) {
	const kept, changed, perRemote = "kept", "changed", "per remote"
	for _, c := range []struct {
		kind              NATKind
		port              string
		otherPort, anyone bool // whether a stranger passes, by kind of stranger
	}{
		{FullCone, kept, true, true},
		{AddressRestricted, kept, true, false},
		{PortRestricted, kept, false, false},
		{PortRestrictedStray, kept, false, false},
		{Symmetric, perRemote, false, false},
		{PortChanging, changed, false, false},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			b := newNATBench(t, c.kind)
			first := b.mappedTo(t, b.a1)
			if got := b.passes(t, b.a2, b.a1, first); got != c.otherPort {
				t.Errorf("a datagram from another port of an address that was sent to: passes %v, want %v", got, c.otherPort)
			}
			if got := b.passes(t, b.b1, b.a1, first); got != c.anyone {
				t.Errorf("a datagram from an address never sent to: passes %v, want %v", got, c.anyone)
			}

			fresh := newNATBench(t, c.kind) // without strays that may have changed mappings
			seen := []netip.AddrPort{fresh.mappedTo(t, fresh.a1), fresh.mappedTo(t, fresh.a2), fresh.mappedTo(t, fresh.b1)}
			same := seen[0] == seen[1] && seen[1] == seen[2]
			switch c.port {
			case kept:
				if !same || seen[0].Port() != insidePort {
					t.Errorf("mapped to %v, want port %d towards everybody", seen, insidePort)
				}
			case changed:
				if p := seen[0].Port(); !same || p < 20000 || p > 29999 {
					t.Errorf("mapped to %v, want one port of 20000-29999 towards everybody", seen)
				}
			case perRemote:
				if seen[0] == seen[1] || seen[1] == seen[2] || seen[0] == seen[2] {
					t.Errorf("mapped to %v, want a port for each remote", seen)
				}
			}
		})
	}
}

func TestOnlyTheStrayKindAnswersAndIsPoisoned(t *testing.T) {
	for _, c := range []struct {
		kind     NATKind
		poisoned bool
	}{{PortRestricted, false}, {PortRestrictedStray, true}} {
		t.Run(c.kind.String(), func(t *testing.T) {
			b := newNATBench(t, c.kind)
			send(t, b.a1, "stray", netip.AddrPortFrom(addr(natOutside), insidePort))
			for b.strays(t) == 0 { // not counted yet
				if err := deadline(t).Err(); err != nil {
					t.Fatal(err)
				}
			}
			got := b.mappedTo(t, b.a1)
			if poisoned := got.Port() != insidePort; poisoned != c.poisoned {
				t.Errorf("after a stray the mapping is %s: poisoned %v, want %v", got, poisoned, c.poisoned)
			}
		})
	}
}

func TestStraysAreAnsweredByTheStrayKindAlone(t *testing.T) {
	b := newNATBench(t, PortRestrictedStray)
	raw, err := b.a1.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// IP_RECVERR passes ICMP errors to an unconnected socket.
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		sockErr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_RECVERR, 1)
	}); err != nil || sockErr != nil {
		t.Fatal(err, sockErr)
	}
	send(t, b.a1, "stray", netip.AddrPortFrom(addr(natOutside), 4242))
	if err := b.a1.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.a1.ReadFromUDPAddrPort(make([]byte, 16)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a stray got %v, want ECONNREFUSED", err)
	}
}

func TestCountersTellUDPFromTCP(t *testing.T) {
	b := newNATBench(t, PortRestricted)
	m := b.mappedTo(t, b.a1)
	send(t, b.a1, "answer", m)
	receive(t, b.inside)
	traffic, err := b.nat.Traffic(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	// 20 bytes of IP, 8 of UDP.
	if want := (Traffic{UDPOut: Count{1, 31}, UDPIn: Count{1, 34}}); traffic != want {
		t.Errorf("counted %+v, want %+v", traffic, want)
	}
	// A refused TCP connection still crosses the router: SYN out, RST in.
	var d net.Dialer
	err = Do(b.nat.namespace, func() error {
		_, err := d.DialContext(deadline(t), "tcp", outsideA+":1")
		return err
	})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial a closed port: %v", err)
	}
	if traffic, err = b.nat.Traffic(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if traffic.TCPOut.Packets != 1 || traffic.TCPIn.Packets != 1 {
		t.Errorf("counted %+v, want one TCP packet each way", traffic)
	}
}

func TestMeterCountsOnePortAndRemote(t *testing.T) {
	lab := New(t)
	n := lab.Network("lan", netip.MustParsePrefix("192.0.2.0/24"))
	a, b := lab.Host("a"), lab.Host("b")
	a.Attach("eth0", n, addr("192.0.2.1"))
	b.Attach("eth0", n, addr("192.0.2.2"))
	meter := b.MeterUDP(51820, "192.0.2.1")
	in, err := b.ListenUDP(netip.MustParseAddrPort("192.0.2.2:51820"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := a.ListenUDP(netip.MustParseAddrPort("192.0.2.1:5000"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for range 3 {
		send(t, out, "x", local(in))
		receive(t, in)
	}
	send(t, in, "y", local(out))
	receive(t, out)
	rx, tx, err := meter.Read(deadline(t))
	if err != nil || rx.Packets != 3 || tx.Packets != 1 {
		t.Errorf("metered %+v in, %+v out, %v; want 3 and 1 packets", rx, tx, err)
	}
}
