package probe

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

var source = netip.MustParseAddrPort("203.0.113.9:51820")

func newProber(t testing.TB, own peer.PrivateKey, boot uint64, random io.Reader, peers ...Peer) *Prober {
	t.Helper()
	p, err := New(own, boot, random)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetPeers(peers); err != nil {
		t.Fatal(err)
	}
	return p
}

func newKey(t testing.TB) peer.PrivateKey {
	t.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// side is one gateway of a pair.
type side struct {
	*Prober
	t     testing.TB
	key   peer.PrivateKey
	other peer.PublicKey
	psk   peer.PresharedKey
}

// newPair returns two gateways that are peers, with boot id 1.
func newPair(t testing.TB) (a, b *side) {
	t.Helper()
	psk, err := peer.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	ka, kb := newKey(t), newKey(t)
	a = &side{t: t, key: ka, other: kb.Public(), psk: psk}
	b = &side{t: t, key: kb, other: ka.Public(), psk: psk}
	a.restart(1)
	b.restart(1)
	return a, b
}

// restart drops all state.
func (s *side) restart(boot uint64) {
	s.t.Helper()
	s.Prober = newProber(s.t, s.key, boot, nil, Peer{s.other, s.psk})
}

func (s *side) request(o RequestOptions) []byte {
	s.t.Helper()
	b, _, err := s.Request(s.other, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// takes fails the test unless the packet is handled as the given kind.
func (s *side) takes(b []byte, kind Kind) Result {
	s.t.Helper()
	r, ok := s.Handle(b, source)
	if !ok || r.Kind != kind || (r.Reply != nil) != (kind == Request || r.Reason == ReasonTwoLives || r.Reason == ReasonRemoved) || (r.Reason != "") != (kind == Drop) {
		s.t.Fatalf("handled as %v %q, reply %x, %v; want a %v", r.Kind, r.Reason, r.Reply, ok, kind)
	}
	return r
}

// ignores fails the test if the packet is answered or accepted.
func (s *side) ignores(what string, b []byte) {
	s.t.Helper()
	if r, _ := s.Handle(b, source); r.Kind != Drop || r.Reply != nil {
		s.t.Errorf("%s: handled as %v from %s, reply %x", what, r.Kind, r.Peer, r.Reply)
	}
}

// exchange sends a request from a to b and its answer back.
func exchange(a, b *side) (request, response Result) {
	a.t.Helper()
	request = b.takes(a.request(RequestOptions{}), Request)
	return request, a.takes(request.Reply, Response)
}

func TestAnExchangeTellsEachSideWhatItWants(t *testing.T) {
	a, b := newPair(t)
	packet, tx, err := a.Request(a.other, RequestOptions{PathID: 7, Flags: 0x81})
	if err != nil {
		t.Fatal(err)
	}
	r := b.takes(packet, Request)
	if r.Peer != b.other || r.PathID != 7 || r.Flags != 0x81 || r.TxID != tx || r.BootID != 1 || r.Rebooted {
		t.Errorf("the request is %+v", r)
	}
	r = a.takes(r.Reply, Response)
	if r.Peer != a.other || r.PathID != 7 || r.Flags != 0x81 || r.TxID != tx || r.Mapped != source {
		t.Errorf("the response is %+v", r)
	}
}

func TestSizes(t *testing.T) {
	a, b := newPair(t)
	for _, c := range []struct {
		size, request, response int
		from                    string
	}{
		{0, 80, 56, "203.0.113.9:51820"},
		{80, 80, 56, "[::ffff:203.0.113.9]:51820"},
		{81, 84, 68, "[2001:db8::9]:51820"},
		{1232, 1232, 56, "203.0.113.9:51820"},
		{1452, 1452, 68, "[2001:db8::9]:51820"},
		{1472, 1472, 56, "203.0.113.9:51820"},
	} {
		packet := a.request(RequestOptions{Size: c.size})
		from := netip.MustParseAddrPort(c.from)
		r, ok := b.Handle(packet, from)
		if !ok || r.Kind != Request || len(packet) != c.request || len(r.Reply) != c.response {
			t.Errorf("size %d: %v, %d and %d bytes, want %d and %d", c.size, r.Kind, len(packet), len(r.Reply), c.request, c.response)
		}
		r, ok = a.Handle(r.Reply, source)
		if !ok || r.Kind != Response || r.Mapped != netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) {
			t.Errorf("size %d: %v with mapped address %v, want %v", c.size, r.Kind, r.Mapped, from)
		}
	}
	const day, spacing, headers = 86400, 20, 28 // seconds, bytes of IPv4 and UDP
	if perDay := day / spacing * (80 + 56 + 2*headers); perDay > 1e6 {
		t.Errorf("an idle path costs %d bytes a day, want 1 MB at most", perDay)
	}
	for _, size := range []int{-1, stunwire.MaxSize + 1} {
		if _, _, err := a.Request(a.other, RequestOptions{Size: size}); !errors.Is(err, ErrSize) {
			t.Errorf("size %d: %v, want ErrSize", size, err)
		}
	}
}

func TestARequestIsAnsweredOnce(t *testing.T) {
	a, b := newPair(t)
	packet := a.request(RequestOptions{})
	reply := b.takes(packet, Request).Reply
	if r := b.takes(packet, Drop); r.Reason != ReasonReplay {
		t.Errorf("the second copy is dropped as %q, want a replay", r.Reason)
	}
	a.takes(reply, Response)
	a.ignores("a second copy of the response", reply)
	if _, ok := a.Handle(reply, source); ok {
		t.Error("a second copy of the response is still of a transaction")
	}
}

func TestOvertakenRequestsAreAnswered(t *testing.T) {
	a, b := newPair(t)
	var packets [][]byte
	for range windowSize + 1 {
		packets = append(packets, a.request(RequestOptions{}))
	}
	for i := len(packets) - 1; i > 0; i-- {
		b.takes(packets[i], Request)
	}
	if r := b.takes(packets[0], Drop); r.Reason != ReasonReplay {
		t.Errorf("one behind the window is dropped as %q, want a replay", r.Reason)
	}
	for _, p := range packets {
		b.takes(p, Drop)
	}
}

func TestOldTransactionsMakeRoom(t *testing.T) {
	a, b := newPair(t)
	var replies [][]byte
	for range 3 * maxPending {
		replies = append(replies, b.takes(a.request(RequestOptions{}), Request).Reply)
	}
	if n := len(a.pending); n != maxPending {
		t.Errorf("%d transactions are open, want %d", n, maxPending)
	}
	for i, r := range replies {
		if i < 2*maxPending {
			a.ignores("the answer to a request that was given up", r)
		} else {
			a.takes(r, Response)
		}
	}
	if n := len(a.pending); n != 0 {
		t.Errorf("%d transactions are open, want none", n)
	}
}

func TestAStunServersAnswerIsNotOurs(t *testing.T) {
	a, _ := newPair(t)
	answer, err := stunwire.BindingResponse(stunwire.NewTxID(), source)
	if err != nil {
		t.Fatal(err)
	}
	failure, err := stunwire.BindingError(stunwire.NewTxID(), 420, "no")
	if err != nil {
		t.Fatal(err)
	}
	request, err := stunwire.Encode(&stunwire.Message{Class: stunwire.Request, Username: "evtj:h6vY"}, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"answer": answer, "error": failure, "plain request": stunwire.BindingRequest(stunwire.NewTxID()), "request": request,
	} {
		if r, ok := a.Handle(b, source); ok || r.Reply != nil {
			t.Errorf("%s: handled as %+v, want it passed on", name, r)
		}
	}
}

func TestSetPeersRefusesKeysThatAuthenticateNobody(t *testing.T) {
	own, good := newKey(t), newKey(t).Public()
	p := newProber(t, own, 1, nil)
	// Points of low order, RFC 7748 §6.1 and the list at https://cr.yp.to/ecdh.html.
	lowOrder := []peer.PublicKey{
		{}, {1},
		{0xec, 31: 0x7f}, {0xed, 31: 0x7f}, {0xee, 31: 0x7f},
		{0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
		{0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57},
	}
	for i := 2; i < 5; i++ { // p-1, p, p+1
		for j := 1; j < 31; j++ {
			lowOrder[i][j] = 0xff
		}
	}
	for _, k := range append(lowOrder, own.Public()) {
		err := p.SetPeers([]Peer{{Key: k}, {Key: good}})
		if !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), k.String()) {
			t.Errorf("%s: %v, want ErrKey with the key", k, err)
		}
		if _, _, err := p.Request(k, RequestOptions{}); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("%s: a request to it: %v, want ErrUnknownPeer", k, err)
		}
		if _, _, err := p.Request(good, RequestOptions{}); err != nil {
			t.Errorf("beside %s: %v", k, err)
		}
	}
	if err := p.SetPeers([]Peer{{Key: good}, {Key: good}}); !errors.Is(err, ErrKey) {
		t.Errorf("a key named twice: %v, want ErrKey", err)
	}
	if _, err := New(peer.PrivateKey{}, 1, nil); !errors.Is(err, ErrKey) {
		t.Errorf("without a private key: %v, want ErrKey", err)
	}
}

func TestSetPeersKeepsWhatStays(t *testing.T) {
	a, b := newPair(t)
	exchange(a, b)
	third := Peer{Key: newKey(t).Public()}
	answered := b.takes(a.request(RequestOptions{}), Request).Reply
	inFlight := b.request(RequestOptions{})
	for _, s := range []*side{a, b} {
		if err := s.SetPeers([]Peer{third, {s.other, s.psk}}); err != nil {
			t.Fatal(err)
		}
	}
	a.takes(answered, Response)
	a.takes(inFlight, Request)
	b.takes(a.request(RequestOptions{}), Request)

	removed, pending := b.request(RequestOptions{}), b.takes(a.request(RequestOptions{}), Request).Reply
	if err := a.SetPeers([]Peer{third}); err != nil {
		t.Fatal(err)
	}
	if r := a.takes(removed, Drop); r.Reason != ReasonRemoved {
		t.Errorf("a removed peer's request: got %q, want %q", r.Reason, ReasonRemoved)
	}
	a.ignores("a removed peer's answer", pending)
	if len(a.pending) != 0 || len(a.byID) > 5 || len(a.peers) != 1 {
		t.Errorf("%d transactions, %d key ids and %d peers are left, want 0, 1 of the one, 4 at most of the other, and 1", len(a.pending), len(a.byID), len(a.peers))
	}
}

func TestAnotherPresharedKeyBeginsAnew(t *testing.T) {
	a, b := newPair(t)
	exchange(a, b)
	exchange(b, a)
	old := a.request(RequestOptions{})
	a.psk = peer.PresharedKeyFromBytes([32]byte{1})
	if err := a.SetPeers([]Peer{{a.other, a.psk}}); err != nil {
		t.Fatal(err)
	}
	b.ignores("a request by the new key", a.request(RequestOptions{}))
	a.ignores("a request by the old key", b.request(RequestOptions{}))
	b.psk = a.psk
	if err := b.SetPeers([]Peer{{b.other, b.psk}}); err != nil {
		t.Fatal(err)
	}
	b.ignores("a request from before", old)
	for range 3 {
		for _, r := range []func() (Result, Result){
			func() (Result, Result) { return exchange(a, b) }, func() (Result, Result) { return exchange(b, a) },
		} {
			if request, _ := r(); request.Rebooted {
				t.Error("the same process counts as restarted")
			}
		}
	}
}

func TestTheRandomSourcesErrorIsTold(t *testing.T) {
	p := newProber(t, newKey(t), 1, bytes.NewReader(nil), Peer{Key: newKey(t).Public()})
	for k := range p.peers {
		if _, _, err := p.Request(k, RequestOptions{}); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the source's error", err)
		}
	}
}

// A removed peer is told so, once for each request and as long as it is stored; if it joins again
// it is a peer again.
func TestAFormerPeerIsTold(t *testing.T) {
	a, b := newPair(t)
	b.takes(a.request(RequestOptions{}), Request)
	replayed := a.request(RequestOptions{})
	b.takes(replayed, Request)
	if err := b.SetPeers(nil); err != nil {
		t.Fatal(err)
	}
	if r := b.takes(replayed, Drop); r.Reason != ReasonReplay {
		t.Errorf("a replay: got %q, want %q and no answer", r.Reason, ReasonReplay)
	}
	for range 3 * rotateAfter { // with other keys as well
		request := a.request(RequestOptions{})
		told := b.takes(request, Drop)
		if told.Reason != ReasonRemoved || len(told.Reply) > len(request) {
			t.Fatalf("got %q and %d bytes for %d, want %q and no more bytes", told.Reason, len(told.Reply), len(request), ReasonRemoved)
		}
		forged := bytes.Clone(told.Reply)
		forged[len(forged)-1] ^= 1
		if r, _ := a.Handle(forged, source); r.Kind != Drop {
			t.Fatalf("a forged answer: got %v", r.Kind)
		}
		if r := a.takes(told.Reply, Removed); r.Peer != a.other {
			t.Fatalf("of %v, want the peer", r.Peer)
		}
	}
	again := Peer{b.other, b.psk}
	if err := b.SetPeers([]Peer{again}); err != nil {
		t.Fatal(err)
	}
	b.ignores("a replay of before", replayed)
	a.restart(2)
	b.takes(a.request(RequestOptions{}), Request)
}

func TestFormerPeersAreForgotten(t *testing.T) {
	a, b := newPair(t)
	for range maxGone + 1 {
		if err := b.SetPeers(nil); err != nil {
			t.Fatal(err)
		}
		if err := b.SetPeers([]Peer{{Key: newKey(t).Public()}}); err != nil {
			t.Fatal(err)
		}
	}
	b.ignores("a request of one who was a peer long ago", a.request(RequestOptions{}))
	if len(b.former) > maxGone {
		t.Errorf("%d are remembered, want %d at most", len(b.former), maxGone)
	}
}
