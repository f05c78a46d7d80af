package underlay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// secondLoopback is an address of every Linux host that the kernel never chooses itself.
var secondLoopback = netip.MustParseAddr("127.0.0.2")

// stunMessage returns a binding message of a type and transaction.
func stunMessage(typ uint16, tx byte) []byte {
	b := stunRequest()
	binary.BigEndian.PutUint16(b, typ)
	b[stunHeaderSize-1] = tx
	return b
}

// answering returns a bind that answers each request at once, and a channel that reports each
// answer that arrived.
func answering(t *testing.T) (r *running, came <-chan struct{}) {
	t.Helper()
	var b *Bind
	answers := make(chan struct{}, 100)
	b = New(Options{OnSTUN: func(packet []byte, from peer.Path) {
		if packet[0] == stunAnswerByte {
			answers <- struct{}{}
			return
		}
		answer := append([]byte(nil), packet...)
		answer[0] = stunAnswerByte
		if err := b.WriteTo(answer, from); err != nil {
			t.Errorf("answer to %s: %v", from, err)
		}
	}})
	return start(t, b), answers
}

// await waits for a report.
func await(t *testing.T, came <-chan struct{}) {
	t.Helper()
	select {
	case <-came:
	case <-time.After(patience.Left()):
		t.Fatal("what was sent to the bind did not come")
	}
}

// ask sends a request to one of the bind's addresses and expects the answer from there.
func ask(t *testing.T, r *running, c *net.UDPConn, at netip.Addr, tx byte) {
	t.Helper()
	to := netip.AddrPortFrom(at, r.port)
	write(t, c, stunMessage(stunBindingRequest, tx), to)
	got, from := read(t, c)
	if from != to || got[0] != stunAnswerByte {
		t.Fatalf("a request to %s is answered from %s (%x)", to, from, got[:2])
	}
}

// wantSource reads a datagram of the bind, and checks its source address.
func wantSource(t *testing.T, c *net.UDPConn, want netip.Addr, what string) []byte {
	t.Helper()
	p, from := read(t, c)
	if from.Addr() != want {
		t.Errorf("%s came from %s, want %s", what, from.Addr(), want)
	}
	return p
}

func TestAnAnswerLeavesFromTheAddressThatWasAsked(t *testing.T) {
	r, _ := answering(t)
	c := plain(t, loopback4)
	for i, at := range []netip.Addr{loopback4, secondLoopback, loopback4, netip.MustParseAddr("127.0.0.3")} {
		ask(t, r, c, at, byte(i))
	}
	c6 := plain(t, loopback6)
	ask(t, r, c6, loopback6, 9)
}

func TestAPeerIsSpokenToFromTheAddressThatItSpeaksTo(t *testing.T) {
	r, _ := answering(t)
	c := plain(t, loopback4)
	path := peer.Direct(localAddr(c))
	r.Manage("x")
	r.SetCandidates("x", []peer.Path{path})
	r.SetSelected("x", path)
	ep, err := r.ParseEndpoint("peer:x")
	if err != nil {
		t.Fatal(err)
	}
	send := func(p []byte, want netip.Addr, what string) {
		t.Helper()
		if err := r.Send([][]byte{p}, ep); err != nil {
			t.Fatal(err)
		}
		wantSource(t, c, want, what)
	}
	send(data(1, 100), loopback4, "data before the peer was heard")
	ask(t, r, c, secondLoopback, 1)
	send(data(2, 100), secondLoopback, "data")
	send(initiation(5), secondLoopback, "an initiation")
	for _, o := range []SendOptions{{}, {TTL: 9}, {DontFragment: true}} {
		if err := r.WriteProbe(stunMessage(stunBindingRequest, 40), path, o); err != nil {
			t.Fatal(err)
		}
		wantSource(t, c, secondLoopback, "a request")
	}
	// It sends to both addresses: the source does not change.
	ask(t, r, c, loopback4, 2)
	send(data(3, 100), secondLoopback, "data to a peer that speaks to both addresses")
	// A path that is set again keeps its source.
	r.SetSelected("x", peer.Path{})
	r.SetSelected("x", path)
	send(data(4, 100), secondLoopback, "data over the path that was told again")
}

func TestWithoutAnswersTheSystemChoosesTheSourceAgain(t *testing.T) {
	r, came := answering(t)
	c := plain(t, loopback4)
	path := peer.Direct(localAddr(c))
	r.Manage("x")
	r.SetSelected("x", path)
	ep, err := r.ParseEndpoint("peer:x")
	if err != nil {
		t.Fatal(err)
	}
	request := func(tx byte, want netip.Addr) []byte {
		t.Helper()
		if err := r.WriteTo(stunMessage(stunBindingRequest, tx), path); err != nil {
			t.Fatal(err)
		}
		return wantSource(t, c, want, "a request")
	}
	answer := func(tx byte) {
		t.Helper()
		write(t, c, stunMessage(stunAnswerByte<<8|1, tx), netip.AddrPortFrom(secondLoopback, r.port))
		await(t, came)
	}
	ask(t, r, c, secondLoopback, 1)
	for tx := range byte(4 * spokenDoubt) { // each is answered
		request(10+tx, secondLoopback)
		answer(10 + tx)
	}
	began := time.Now()
	at := func(since time.Duration) {
		r.spoken.mu.Lock()
		r.spoken.now = func() time.Time { return began.Add(since) }
		r.spoken.mu.Unlock()
	}
	const every = 300 * time.Millisecond
	for tx := range byte(spokenAsked) { // a slow path: each answer comes after four more requests
		at(time.Duration(tx) * every)
		request(40+tx, secondLoopback)
		if tx >= 4 {
			answer(40 + tx - 4)
		}
	}
	answer(40 + spokenAsked - 1)
	const last = byte(spokenDoubtFor / every)
	for tx := range last + 1 {
		at(time.Minute + time.Duration(tx)*every)
		request(100+tx, secondLoopback)
		answer(200) // answers no request
	}
	at(time.Minute + spokenDoubtFor)
	request(120, loopback4)
	if err := r.Send([][]byte{data(1, 100)}, ep); err != nil {
		t.Fatal(err)
	}
	wantSource(t, c, loopback4, "data")
	ask(t, r, c, secondLoopback, 2)
	request(111, secondLoopback)
}

func TestRequestsThatNobodyAnswersLeaveNoTrace(t *testing.T) {
	came := make(chan struct{}, 100)
	b := New(Options{OnSTUN: func([]byte, peer.Path) { came <- struct{}{} }})
	r := start(t, b)
	c := plain(t, loopback4)
	for tx := range byte(100) {
		write(t, c, stunMessage(stunBindingRequest, tx), netip.AddrPortFrom(secondLoopback, r.port))
	}
	for range 100 {
		await(t, came)
	}
	b.spoken.mu.Lock()
	known := len(b.spoken.young) + len(b.spoken.old)
	b.spoken.mu.Unlock()
	if known != 0 {
		t.Errorf("%d remote addresses are remembered, want none", known)
	}
	if err := r.WriteTo(stunMessage(stunAnswerByte<<8|1, 7), peer.Direct(localAddr(c))); err != nil {
		t.Fatal(err)
	}
	wantSource(t, c, loopback4, "an answer after the request was handled")
}

func TestWhatIsKnownOfRemoteAddressesIsBounded(t *testing.T) {
	var s spoken
	s.init()
	own := netip.MustParseAddr("192.0.2.1")
	for i := range 10 * spokenKept {
		remote := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(i+1))
		done := s.received(stunMessage(stunBindingRequest, 1), newLeanEndpoint(remote, own))
		if ep, _ := s.answering(stunMessage(stunAnswerByte<<8|1, 1), remote); ep == nil {
			t.Fatal("the answer has no endpoint")
		}
		done()
	}
	if n := len(s.young) + len(s.old); n > 2*spokenKept || len(s.handled) != 0 {
		t.Errorf("%d addresses and %d requests are remembered, want at most %d and none", n, len(s.handled), 2*spokenKept)
	}
}
