package underlay

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestInitiationsGoToAllCandidates(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := start(t, make(Options{}))
		first, second := plain(t, loopback4), plain(t, loopback4)
		gone := plain(t, loopback4)
		dead := localAddr(gone)
		gone.Close()
		mapped := netip.AddrPortFrom(netip.AddrFrom16(loopback4.As16()), localAddr(second).Port())
		b.SetCandidates("x", direct(
			localAddr(first), dead, localAddr(first), localAddr(second), mapped,
			netip.AddrPortFrom(loopback4, 0), netip.MustParseAddrPort("0.0.0.0:9"), netip.MustParseAddrPort("224.0.0.1:9"), netip.AddrPort{},
		))
		ep, err := b.ParseEndpoint("peer:x")
		if err != nil {
			t.Fatal(err)
		}
		if ep.DstToString() != "peer:x" || ep.DstIP() != loopback4 {
			t.Errorf("endpoint is %s at %v, want peer:x at the first candidate", ep.DstToString(), ep.DstIP())
		}
		if err := b.Send([][]byte{initiation(7)}, ep); err != nil {
			t.Errorf("send: %v", err)
		}
		if err := b.Send([][]byte{data(1, 48), data(2, 48)}, ep); err != nil {
			t.Errorf("send: %v", err)
		}
		for _, want := range [][]byte{initiation(7), data(1, 48), data(2, 48)} {
			if got, _ := read(t, first); !bytes.Equal(got, want) {
				t.Errorf("first candidate: got %.20x, want %.20x", got, want)
			}
		}
		if got, _ := read(t, second); !bytes.Equal(got, initiation(7)) {
			t.Errorf("second candidate: got %.20x, want the initiation", got)
		}
		expectSilence(t, first) // No duplicate.
		expectSilence(t, second)

		// The endpoint that the device holds follows later changes.
		b.SetCandidates("x", direct(localAddr(second)))
		if err := b.Send([][]byte{data(3, 48)}, ep); err != nil {
			t.Error(err)
		}
		if got, _ := read(t, second); !bytes.Equal(got, data(3, 48)) {
			t.Errorf("second candidate: got %.20x, want the data", got)
		}
		b.SetCandidates("x", nil)
		if err := b.Send([][]byte{initiation(8)}, ep); !errors.Is(err, ErrNoCandidates) {
			t.Errorf("send without candidates: got %v, want %v", err, ErrNoCandidates)
		}
		if _, err := b.ParseEndpoint("peer:x"); err == nil {
			t.Error("a forgotten id still parses")
		}
	})
}

func TestCandidatesAreBounded(t *testing.T) {
	b := NewPacket(listenLoopback, Options{})
	var addrs []netip.AddrPort
	for port := range uint16(100) {
		addrs = append(addrs, netip.AddrPortFrom(loopback4, port+1))
	}
	b.SetCandidates("x", direct(addrs...))
	if got := len(*b.candidates["x"].targets.Load()); got != maxCandidates {
		t.Errorf("got %d candidates, want %d", got, maxCandidates)
	}
}

// errorConn is a socket whose every write fails for the addresses given.
type errorConn struct {
	PacketConn
	unroutable map[netip.AddrPort]bool
}

var errNoRoute = errors.New("no route")

func (c errorConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if c.unroutable[to] {
		return 0, errNoRoute
	}
	return c.PacketConn.WriteToUDPAddrPort(b, to)
}

func TestFanOutFailsOnlyWhenNoCandidateCanBeSentTo(t *testing.T) {
	c := plain(t, loopback4)
	dark := netip.MustParseAddrPort("[2001:db8::1]:1")
	b := start(t, NewPacket(func(port uint16) (PacketConn, error) {
		inner, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
		return errorConn{inner, map[netip.AddrPort]bool{dark: true}}, err
	}, Options{}))
	for _, test := range []struct {
		addrs []netip.AddrPort
		want  error
	}{
		{[]netip.AddrPort{dark, localAddr(c)}, nil},
		{[]netip.AddrPort{dark}, errNoRoute},
	} {
		b.SetCandidates("x", direct(test.addrs...))
		ep, err := b.ParseEndpoint("peer:x")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Send([][]byte{initiation(1)}, ep); !errors.Is(err, test.want) {
			t.Errorf("%v: got %v, want %v", test.addrs, err, test.want)
		}
	}
}
