package underlay

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
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
		expectSilence(t, first) // no duplicate
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
	if got := len(*b.candidates["x"].targets.Load()); got != peer.MaxPaths {
		t.Errorf("got %d candidates, want %d", got, peer.MaxPaths)
	}
}

// Rebuilding the book of paths is expensive. Every change of the paths must cause it, and nothing
// else may.
func TestBookOfPathsIsMadeAnewForChangesOnly(t *testing.T) {
	b := NewPacket(listenLoopback, Options{})
	at := func(n byte) peer.Path {
		return peer.Direct(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 1))
	}
	b.Manage("x")
	f := b.candidates["x"]
	learn := func(n byte) func() { return func() { f.setLearned(b.endpointOf(at(n))) } }
	for _, step := range []struct {
		what   string
		do     func()
		want   []byte
		remake bool
	}{
		{"candidates", func() { b.SetCandidates("x", []peer.Path{at(1), at(2)}) }, []byte{1, 2}, true},
		{"the same", func() { b.SetCandidates("x", []peer.Path{at(1), at(2)}) }, []byte{1, 2}, false},
		{"the same in another order", func() { b.SetCandidates("x", []peer.Path{at(2), at(1)}) }, []byte{1, 2}, false},
		{"a handshake over one", learn(1), []byte{1, 2}, false},
		{"the next over the other", learn(2), []byte{1, 2}, false},
		{"one over a new path", learn(3), []byte{1, 2, 3}, true},
		{"the next over it", learn(3), []byte{1, 2, 3}, false},
		{"one over a candidate", learn(1), []byte{1, 2}, true},
		{"a candidate is selected", func() { b.SetSelected("x", at(2)) }, []byte{1, 2}, false},
		{"a new path is selected", func() { b.SetSelected("x", at(4)) }, []byte{1, 2, 4}, true},
		{"as many other candidates", func() { b.SetCandidates("x", []peer.Path{at(5), at(2)}) }, []byte{1, 2, 4, 5}, true},
		{"none is selected", func() { b.SetSelected("x", peer.Path{}) }, []byte{1, 2, 5}, true},
		{"it is forgotten", func() { b.Forget("x") }, nil, true},
	} {
		before := b.paths.book()
		step.do()
		after := b.paths.book()
		if again := after != before; again != step.remake {
			t.Errorf("%s: the book was recreated: %v, want %v", step.what, again, step.remake)
		}
		want := make(map[peer.Path]struct{})
		for _, n := range step.want {
			want[at(n)] = struct{}{}
		}
		if !maps.Equal(after.paths, want) {
			t.Errorf("%s: got %v, want %v", step.what, after.paths, want)
		}
	}
}

// errorConn is a socket whose writes to the given addresses fail.
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
