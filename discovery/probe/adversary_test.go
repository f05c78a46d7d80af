package probe

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestEveryBitIsAuthenticated(t *testing.T) {
	a, b := newPair(t)
	exchange(a, b)
	exchange(a, b) // with the keys of a generation, too
	packet := a.request(RequestOptions{Size: 100})
	forEachFlippedBit(packet, func(c []byte) { b.ignores("a flipped bit in a request", c) })
	reply := b.takes(packet, Request).Reply // the forgeries had no effect
	forEachFlippedBit(reply, func(c []byte) { a.ignores("a flipped bit in a response", c) })
	a.takes(reply, Response)
}

func forEachFlippedBit(b []byte, f func([]byte)) {
	for bit := range len(b) * 8 {
		c := bytes.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		f(c)
	}
}

func TestTruncatedAndExtendedPacketsGetSilence(t *testing.T) {
	a, b := newPair(t)
	packet := a.request(RequestOptions{})
	for n := range packet {
		b.ignores("a truncated request", packet[:n])
		shorter := bytes.Clone(packet[:n]) // with a matching header
		if n >= stunwire.HeaderSize {
			binary.BigEndian.PutUint16(shorter[2:], uint16(n-stunwire.HeaderSize))
		}
		b.ignores("a request cut short", shorter)
	}
	b.ignores("a byte behind", append(bytes.Clone(packet), 0))
	longer := append(bytes.Clone(packet), 0x80, 0x22, 0, 0) // SOFTWARE after the MAC
	binary.BigEndian.PutUint16(longer[2:], uint16(len(longer)-stunwire.HeaderSize))
	b.ignores("an attribute behind", longer)
	reply := b.takes(packet, Request).Reply
	for n := range reply {
		a.ignores("a truncated response", reply[:n])
	}
	a.takes(reply, Response)
}

func TestReflectedPacketsGetSilence(t *testing.T) {
	a, b := newPair(t)
	for range 3 {
		packet := a.request(RequestOptions{})
		a.ignores("our own request", packet)
		reply := b.takes(packet, Request).Reply
		b.ignores("our own response", reply)
		a.takes(reply, Response)
		exchange(b, a)
	}
}

// A request of a, with its type changed to a response's, or a response to a request's, by someone
// who cannot make a MAC.
func TestARequestIsNoResponse(t *testing.T) {
	a, b := newPair(t)
	packet := a.request(RequestOptions{})
	reply := b.takes(packet, Request).Reply
	asResponse, asRequest := bytes.Clone(packet), bytes.Clone(reply)
	asResponse[0], asResponse[1] = 1, 1
	asRequest[0], asRequest[1] = 0, 1
	a.ignores("a request as response", asResponse)
	b.ignores("a response as request", asRequest)
	a.takes(reply, Response)
}

func TestAPeersPacketsAreNobodyElses(t *testing.T) {
	keys := []peer.PrivateKey{newKey(t), newKey(t), newKey(t)}
	psk := peer.PresharedKeyFromBytes([32]byte{1}) // the same for all, as a careless operator would do
	var sides []*Prober
	for i, k := range keys {
		var others []Peer
		for j, o := range keys {
			if i != j {
				others = append(others, Peer{o.Public(), psk})
			}
		}
		sides = append(sides, newProber(t, k, 1, nil, others...))
	}
	toB, _, err := sides[0].Request(keys[1].Public(), RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	toC, _, err := sides[0].Request(keys[2].Public(), RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := sides[2].Handle(toB, source); ok || r.Reply != nil {
		t.Errorf("the third handles a request to the second as %+v", r)
	}
	rb, _ := sides[1].Handle(toB, source)
	rc, _ := sides[2].Handle(toC, source)
	if rb.Kind != Request || rc.Kind != Request {
		t.Fatalf("the requests are handled as %+v and %+v", rb, rc)
	}
	// The second peer's MAC on the third's transaction.
	swapped := append(bytes.Clone(rc.Reply[:len(rc.Reply)-20]), rb.Reply[len(rb.Reply)-20:]...)
	if r, _ := sides[0].Handle(swapped, source); r.Kind != Drop || r.Reason != ReasonUnauthenticated {
		t.Errorf("a response by the wrong peer is handled as %+v", r)
	}
	for i, want := range map[int]Result{1: rb, 2: rc} {
		if r, _ := sides[0].Handle(want.Reply, source); r.Kind != Response || r.Peer != keys[i].Public() {
			t.Errorf("the response of %d is handled as %+v", i, r)
		}
	}
}

func TestAnotherPresharedKeyGetsSilence(t *testing.T) {
	a, b := newPair(t)
	a.psk = peer.PresharedKey{}
	a.restart(2)
	if r, ok := b.Handle(a.request(RequestOptions{}), source); ok || r.Reply != nil {
		t.Errorf("handled as %+v", r)
	}
	if r, ok := a.Handle(b.request(RequestOptions{}), source); ok || r.Reply != nil {
		t.Errorf("handled as %+v", r)
	}
}

// signed returns a request with the right key and arbitrary content.
func signed(t *testing.T, a *side, attr []byte, change stunwire.Change) []byte {
	t.Helper()
	k := a.peers[a.other].out.initial
	b, err := stunwire.Encode(&stunwire.Message{
		Class: stunwire.Request, TxID: stunwire.NewTxID(), Username: string(k.id[:]),
		Probe: attr, Change: change, NoFingerprint: true,
	}, k.request[:])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVersions(t *testing.T) {
	a, b := newPair(t)
	counter := uint64(100)
	next := func(f func([]byte) []byte) []byte {
		counter++
		return signed(t, a, f(attribute{counter: counter, boot: 1}.encode()), 0)
	}
	same := func(b []byte) []byte { return b }
	for name, c := range map[string]struct {
		change func([]byte) []byte
		want   Reason // empty = accepted
	}{
		"this one":               {same, ""},
		"a newer minor":          {func(b []byte) []byte { b[0] = 0x17; return b }, ""},
		"a newer minor, longer":  {func(b []byte) []byte { b[0] = 0x11; return append(b, "more"...) }, ""},
		"a newer minor, shorter": {func(b []byte) []byte { b[0] = 0x11; return b[:16] }, ReasonMalformed},
		"this one, longer":       {func(b []byte) []byte { return append(b, "more"...) }, ReasonMalformed},
		"this one, shorter":      {func(b []byte) []byte { return b[:16] }, ReasonMalformed},
		"a newer major":          {func(b []byte) []byte { b[0] = 0x20; return b }, ReasonVersion},
		"major 0":                {func(b []byte) []byte { b[0] = 0x00; return b }, ReasonVersion},
		"an empty attribute":     {func([]byte) []byte { return []byte{} }, ReasonMalformed},
		"no attribute":           {func([]byte) []byte { return nil }, ReasonMalformed},
	} {
		r, ok := b.Handle(next(c.change), source)
		if !ok || r.Reason != c.want || (r.Kind == Request) != (c.want == "") {
			t.Errorf("%s: handled as %v %q, want %q", name, r.Kind, r.Reason, c.want)
		}
	}
}

func TestWhatIsAuthenticButWrongGetsSilence(t *testing.T) {
	a, b := newPair(t)
	exchange(a, b)
	b.takes(signed(t, a, attribute{counter: 50, boot: 1}.encode(), stunwire.ChangePort), Request) // understood, but without meaning

	// Keys of one generation, with the attribute of another.
	k := a.peers[a.other].out.current
	for name, attr := range map[string]attribute{
		"another generation": {counter: 60, boot: 1, generation: 1},
		"another boot id":    {counter: 60, boot: 2},
	} {
		packet, err := stunwire.Encode(&stunwire.Message{
			Class: stunwire.Request, TxID: stunwire.NewTxID(), Username: string(k.id[:]),
			Probe: attr.encode(), NoFingerprint: true,
		}, k.request[:])
		if err != nil {
			t.Fatal(err)
		}
		if r := b.takes(packet, Drop); r.Reason != ReasonMalformed {
			t.Errorf("%s: dropped as %q, want malformed", name, r.Reason)
		}
	}
	for _, from := range []netip.AddrPort{{}, netip.AddrPortFrom(source.Addr(), 0)} {
		packet := a.request(RequestOptions{})
		if r, _ := b.Handle(packet, from); r.Kind != Drop || r.Reply != nil {
			t.Errorf("from %v: handled as %+v", from, r)
		}
		b.takes(packet, Request) // nothing was used up
	}
}

// junk returns packets that a stranger, or someone on the path, may send.
func junk(rng *rand.Rand, request, reply []byte) []byte {
	b := make([]byte, rng.IntN(200))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	switch rng.IntN(6) {
	case 0:
		return b
	case 1: // a plain STUN request
		return stunwire.BindingRequest(stunwire.TxID(append(b, make([]byte, 12)...)[:12]))
	case 2: // truncated
		return request[:rng.IntN(len(request))]
	case 3: // the right layout with an unknown id
		c := bytes.Clone(request)
		binary.BigEndian.PutUint64(c[24:], rng.Uint64())
		return c
	case 4: // forged with the right id
		c := bytes.Clone(request)
		c[32+rng.IntN(len(c)-32)] ^= byte(1 + rng.IntN(255))
		return c
	default: // a response to nothing
		c := bytes.Clone(reply)
		binary.BigEndian.PutUint64(c[8:], rng.Uint64())
		return c
	}
}

func TestFloodOfJunkGetsSilenceAndLeavesNothing(t *testing.T) {
	a, b := newPair(t)
	exchange(a, b)
	replayed := a.request(RequestOptions{})
	reply := b.takes(replayed, Request).Reply
	fresh := a.request(RequestOptions{})
	ids, pending := len(b.byID), len(b.pending)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		if i%10 == 0 {
			b.ignores("a replay", replayed)
		}
		b.ignores("junk", junk(rng, fresh, reply))
	}
	if len(b.byID) != ids || len(b.pending) != pending || len(b.peers) != 1 {
		t.Errorf("%d key ids, %d transactions, %d peers, want %d, %d, 1", len(b.byID), len(b.pending), len(b.peers), ids, pending)
	}
	b.takes(fresh, Request)
}

func TestStrangersPacketsAllocateNothing(t *testing.T) {
	a, b := newPair(t)
	unknown := a.request(RequestOptions{})
	unknown[24] ^= 1
	answer, err := stunwire.BindingResponse(stunwire.NewTxID(), source)
	if err != nil {
		t.Fatal(err)
	}
	for name, packet := range map[string][]byte{
		"an unknown key id": unknown, "an unknown transaction": answer, "noise": []byte("no STUN"), "nothing": nil,
	} {
		if n := testing.AllocsPerRun(1000, func() { b.ignores(name, packet) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	a, b := newPair(t)
	const workers, rounds = 4, 300 // fewer are in flight than the replay window spans
	third := Peer{Key: newKey(t).Public()}
	var wg sync.WaitGroup
	answered := make([]int, workers)
	for w := range workers {
		wg.Go(func() {
			for range rounds {
				packet, _, err := a.Request(a.other, RequestOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				r, _ := b.Handle(packet, source)
				if r, _ = a.Handle(r.Reply, source); r.Kind == Response {
					answered[w]++
				}
			}
		})
	}
	wg.Go(func() {
		for i := range rounds {
			peers := []Peer{{a.other, a.psk}, third}
			if err := a.SetPeers(peers[:1+i%2]); err != nil {
				t.Error(err)
			}
			a.Rotate()
			b.SetBootID(b.other, 1)
		}
	})
	wg.Wait()
	// A key id that is replaced between its lookup and the MAC's check is refused, which rarely
	// costs a request at a rotation.
	for w, n := range answered {
		if n < rounds*9/10 {
			t.Errorf("worker %d: %d of %d requests were answered", w, n, rounds)
		}
	}
}

// Copies that arrive at the same time on several paths count once in total.
func TestConcurrentCopiesCountOnce(t *testing.T) {
	a, b := newPair(t)
	for range 50 {
		packet := a.request(RequestOptions{})
		reply := concurrently(b, packet, Request)
		if len(reply) != 1 {
			t.Fatalf("%d copies of a request were answered, want 1", len(reply))
		}
		if n := len(concurrently(a, reply[0].Reply, Response)); n != 1 {
			t.Fatalf("%d copies of a response counted, want 1", n)
		}
	}
}

// concurrently handles a packet eight times and returns the results of a kind.
func concurrently(s *side, packet []byte, kind Kind) []Result {
	var wg sync.WaitGroup
	results := make([]Result, 8)
	start := make(chan struct{})
	for i := range results {
		wg.Go(func() {
			<-start
			results[i], _ = s.Handle(packet, source)
		})
	}
	close(start)
	wg.Wait()
	var out []Result
	for _, r := range results {
		if r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

// TestALifeThatGoesOnIsToldFromAReplay: the process before a restart continues to send, as with a
// copied key, and someone replays its packets.
func TestALifeThatGoesOnIsToldFromAReplay(t *testing.T) {
	a, b := newPair(t)
	var old [][]byte
	for range 3 {
		old = append(old, a.request(RequestOptions{}))
		b.takes(old[len(old)-1], Request)
	}
	first := a.Prober
	a.restart(2)
	b.takes(a.request(RequestOptions{}), Request)
	for _, packet := range old {
		if r := b.takes(packet, Drop); r.Reason != ReasonStaleBoot || r.BootID != 0 {
			t.Errorf("a replay: got %q with boot %d, want %q", r.Reason, r.BootID, ReasonStaleBoot)
		}
	}
	second := a.Prober
	a.Prober = first
	on := a.request(RequestOptions{})
	told := b.takes(on, Drop)
	if told.Reason != ReasonTwoLives || told.BootID != 1 {
		t.Errorf("what the first life sends on: got %q with boot %d, want %q", told.Reason, told.BootID, ReasonTwoLives)
	}
	if r := b.takes(on, Drop); r.Reason != ReasonStaleBoot || r.Reply != nil {
		t.Errorf("its replay: got %q and the answer %x, want %q and none", r.Reason, r.Reply, ReasonStaleBoot)
	}
	a.learnsOfALaterLife(on, told.Reply)
	// If it wins in-band, what was seen of it is still known.
	b.SetBootID(b.other, 1)
	if r := b.takes(on, Drop); r.Reason != ReasonReplay {
		t.Errorf("its replay when it counts again: got %q, want %q", r.Reason, ReasonReplay)
	}
	b.takes(a.request(RequestOptions{}), Request)
	a.Prober = second
	b.takes(a.request(RequestOptions{}), Request)
}

// A copy that is itself restarted does not make an earlier life a replay, unless it starts too often.
func TestALifeThatGoesOnIsToldFromAReplayAfterMoreStarts(t *testing.T) {
	a, b := newPair(t)
	b.takes(a.request(RequestOptions{}), Request)
	first := a.Prober
	for boot := range uint64(maxPrevious + 1) {
		a.restart(2 + boot)
		b.takes(a.request(RequestOptions{}), Request)
		later := a.Prober
		a.Prober = first
		want := ReasonTwoLives
		if boot == maxPrevious {
			want = ReasonStaleBoot
		}
		if r := b.takes(a.request(RequestOptions{}), Drop); r.Reason != want {
			t.Errorf("after %d more starts: got %q, want %q", boot+1, r.Reason, want)
		}
		a.Prober = later
	}
	if n := b.peers[b.other].in.previous; len(n) != maxPrevious {
		t.Errorf("%d boot ids are remembered, want %d", len(n), maxPrevious)
	}
}

// Once an earlier life counts again, replayed packets of the later one change nothing.
func TestReplaysOfALifeThatEndedDoNotReviveIt(t *testing.T) {
	a, b := newPair(t)
	b.takes(a.request(RequestOptions{}), Request)
	first := a.Prober
	a.restart(2)
	later := a.request(RequestOptions{})
	b.takes(later, Request)
	a.Prober = first
	b.SetBootID(b.other, 1)
	if r := b.takes(later, Drop); r.Reason != ReasonReplay {
		t.Errorf("a replay of the later life: got %q, want %q", r.Reason, ReasonReplay)
	}
	if boot := b.BootID(b.other); boot != 1 {
		t.Errorf("the boot id is %d, want 1", boot)
	}
	b.takes(a.request(RequestOptions{}), Request)
}

// learnsOfALaterLife handles the answer to a request of the first run, after forgeries of it.
func (s *side) learnsOfALaterLife(request, answer []byte) {
	s.t.Helper()
	if len(answer) == 0 || len(answer) > len(request) {
		s.t.Fatalf("the answer has %d bytes, the request %d", len(answer), len(request))
	}
	for i := range answer {
		forged := bytes.Clone(answer)
		forged[i] ^= 1
		if r, _ := s.Handle(forged, source); r.Kind != Drop {
			s.t.Errorf("with another byte %d: got %v", i, r.Kind)
		}
	}
	if r := s.takes(answer, Superseded); r.BootID != 2 || r.Peer != s.other {
		s.t.Errorf("got boot %d of %v, want 2 of the peer", r.BootID, r.Peer)
	}
	if r, ours := s.Handle(answer, source); ours {
		s.t.Errorf("the answer again: got %+v", r)
	}
}

// TestEachPeerHasItsOwnWindow: a busy gateway with many peers must not make its requests to one
// look old by sending to others.
func TestEachPeerHasItsOwnWindow(t *testing.T) {
	a, b := newPair(t)
	other := newKey(t).Public()
	if err := a.SetPeers([]Peer{{a.other, a.psk}, {other, peer.PresharedKey{}}}); err != nil {
		t.Fatal(err)
	}
	slow := a.request(RequestOptions{})
	for range 2 * windowSize {
		if _, _, err := a.Request(other, RequestOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.takes(a.request(RequestOptions{}), Request)
	b.takes(slow, Request)
	// A peer that is removed and added again goes on numbering.
	last := a.peers[a.other].out.counter
	if err := a.SetPeers(nil); err != nil {
		t.Fatal(err)
	}
	if err := a.SetPeers([]Peer{{a.other, a.psk}}); err != nil {
		t.Fatal(err)
	}
	b.takes(a.request(RequestOptions{}), Request)
	if got := a.peers[a.other].out.counter; got <= last {
		t.Errorf("the counter of a peer that came back is %d, want more than %d", got, last)
	}
}
