package netstack

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// synFrom returns a SYN from a port of any source to port 80 of b6.
func synFrom(source netip.Addr, port uint16) []byte {
	p := synMSS(source, b6, 1360)
	binary.BigEndian.PutUint16(p[ipv6HeaderLen:], port)
	return p
}

// A peer can have a quarter of the undecided requests, however many it makes. Repeated SYNs are
// neither counted nor dropped, and a decision makes room.
func TestOnePeerCannotUseUpThePendingRequests(t *testing.T) {
	const limit = 16
	requests := make(chan *Incoming, limit)
	quit := make(chan struct{})
	s, err := New(Options{Addresses: []netip.Addr{b6}, MaxPendingTCP: limit, OnTCP: func(in *Incoming) {
		requests <- in
		<-quit
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(quit)
	peer := a6
	for i := range 3 {
		for port := range uint16(10) {
			inject(t, s, synFrom(peer, 1000+port))
		}
		if got, want := s.Stats().Dropped[DropPending], uint64(i+1)*(10-limit/4); got != want {
			t.Errorf("after %d peers' 10 requests each %d were dropped, want %d", i+1, got, want)
		}
		peer = peer.Next().Next()
	}
	inject(t, s, synFrom(a6, 1000), synFrom(a6, 1001))
	if got := s.Stats().Dropped[DropPending]; got != 18 {
		t.Errorf("repeated requests were counted as dropped: %d, want 18", got)
	}
	var firsts []*Incoming
	for range 12 {
		if in := next(t, requests); in.Remote().Addr() == a6 {
			firsts = append(firsts, in)
		}
	}
	if len(firsts) != limit/4 {
		t.Fatalf("%d requests of the first peer, want %d", len(firsts), limit/4)
	}
	firsts[0].Drop()
	inject(t, s, synFrom(a6, 2000), synFrom(a6, 2001))
	if in := next(t, requests); in.Remote().Port() != 2000 {
		t.Errorf("the next request is from port %d, want 2000", in.Remote().Port())
	}
	if got := s.Stats().Dropped[DropPending]; got != 19 {
		t.Errorf("%d requests were dropped, want 19", got)
	}
	// Peers together are still bound by the whole: 12 are undecided, 4 more fit.
	for i := range 2 {
		for port := range uint16(4) {
			inject(t, s, synFrom(peer, 1000+port))
		}
		if got, want := s.Stats().Dropped[DropPending], uint64(19+4*i); got != want {
			t.Errorf("%d requests were dropped, want %d", got, want)
		}
		peer = peer.Next().Next()
	}
}

// The addresses of one peer share its quarter.
func TestThePendingRequestsOfAPeersAddressesAreItsOwn(t *testing.T) {
	const limit = 16
	quit := make(chan struct{})
	s, err := New(Options{
		Addresses: []netip.Addr{b6}, MaxPendingTCP: limit, OnTCP: func(*Incoming) { <-quit },
		Owner: func(remote netip.Addr) netip.Addr { return netip.PrefixFrom(remote, 64).Masked().Addr() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(quit)
	from := netip.MustParseAddr("2001:db8::1")
	for range limit {
		inject(t, s, synFrom(from, 1000))
		from = from.Next()
	}
	if got, want := s.Stats().Dropped[DropPending], uint64(limit-limit/4); got != want {
		t.Errorf("of %d requests from as many addresses of a peer %d were dropped, want %d", limit, got, want)
	}
	inject(t, s, synFrom(netip.MustParseAddr("2001:db8:0:1::1"), 1000))
	if got, want := s.Stats().Dropped[DropPending], uint64(limit-limit/4); got != want {
		t.Errorf("the request of another peer was dropped")
	}
}

// Segments other than well-formed SYNs leave no entry.
func TestOtherSegmentsAreNoRequests(t *testing.T) {
	s, err := New(Options{Addresses: []netip.Addr{b6}, OnTCP: func(in *Incoming) { in.Drop() }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, flags := range []byte{0x10, 0x04, 0x12, 0x01} {
		p := synFrom(a6, 1000)
		p[ipv6HeaderLen+tcpFlags] = flags
		inject(t, s, p)
	}
	inject(t, s, synFrom(a6, 1001))
	eventually(t, "the account is empty", func() bool {
		s.pending.mu.Lock()
		defer s.pending.mu.Unlock()
		return len(s.pending.requests) == 0 && len(s.pending.byPeer) == 0
	})
}
