package underlay

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// observing returns an observed whose peers have the given paths.
func observing(known ...netip.AddrPort) *observed {
	return &observed{paths: &pathBook{all: func() map[peer.Path]struct{} {
		all := make(map[peer.Path]struct{})
		for _, a := range known {
			all[peer.Direct(a)] = struct{}{}
		}
		return all
	}}}
}

func (o *observed) observations() (all Observations) {
	o.read(&all)
	return all
}

// begin is when the tests begin; event n of a test comes n seconds later.
var begin = time.Unix(1_800_000_000, 0)

func second(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }

// stranger returns the n-th address that is no peer's.
func stranger(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), uint16(1000+n))
}

var known = netip.MustParseAddrPort("198.51.100.7:51820")

func TestLastInitiationOfEachSourceIsKept(t *testing.T) {
	o := observing(known)
	other := netip.AddrPortFrom(known.Addr(), 1)
	from := []netip.AddrPort{known, other, stranger(1), stranger(2), netip.AddrPortFrom(stranger(1).Addr(), 9), known}
	for i, a := range from {
		o.initiationCame(initiation(uint32(i)), peer.Direct(a), true, false, second(i))
	}
	var got []InitiationSeen
	for _, i := range []int{1, 3, 4, 5} { // another port of a stranger counts as the same stranger
		got = append(got, InitiationSeen{second(i), from[i], i != 1 && i != 5, [sizeInitiation]byte(initiation(uint32(i))), false})
	}
	if all := o.observations(); !slices.Equal(all.Initiations, got) {
		t.Errorf("got %v, want %v", all.Initiations, got)
	}
}

func TestFloodsDoNotWashPeersOut(t *testing.T) {
	o := observing(known)
	o.initiationCame(initiation(7), peer.Direct(known), false, false, begin)
	o.responseCame(response(7), peer.Direct(known), "", time.Time{}, begin)
	o.responseCame(response(8), peer.Direct(stranger(0)), "cloud", begin, begin)
	o.unreachableCame(known, icmpError{reason: portUnreachable}, begin)
	o.initiationCame(initiation(9), peer.Direct(stranger(0)), true, false, begin)
	for i := range 200 {
		from := peer.Direct(stranger(i + 1))
		o.initiationCame(initiation(1), from, false, false, second(i+1))
		o.responseCame(response(1), from, "", time.Time{}, second(i+1))
		o.unreachableCame(netip.AddrPortFrom(known.Addr(), uint16(i+1)), icmpError{reason: hostUnreachable}, second(i+1))
	}
	all := o.observations()
	if got, want := len(all.Initiations), 2+othersKept; got != want {
		t.Errorf("got %d initiations, want %d", got, want)
	}
	if !slices.Contains(all.Initiations, InitiationSeen{begin, known, false, [sizeInitiation]byte(initiation(7)), false}) {
		t.Error("the peer's initiation for another key is gone")
	}
	if !slices.Contains(all.Initiations, InitiationSeen{begin, stranger(0), true, [sizeInitiation]byte(initiation(9)), false}) {
		t.Error("a stranger's initiation for our key is gone, for many that are not for it")
	}
	if !slices.Contains(all.Responses, ResponseSeen{begin, known, "", time.Time{}, [sizeResponse]byte(response(7))}) {
		t.Error("the peer's response is gone")
	}
	if !slices.Contains(all.Responses, ResponseSeen{begin, stranger(0), "cloud", begin, [sizeResponse]byte(response(8))}) {
		t.Error("the response to an initiation of ours is gone")
	}
	if !slices.Contains(all.Unreachable, Unreachable{At: begin, To: known, Reason: portUnreachable}) {
		t.Error("the peer's ICMP error is gone")
	}
	if got, want := len(all.Unreachable), 1+othersKept; got != want {
		t.Errorf("got %d ICMP errors, want %d", got, want)
	}
}

// Someone who forges a peer's source address must not make it seem as if only their own
// initiations came from there.
func TestForgedInitiationTakesNoPlaceOfAGenuineOne(t *testing.T) {
	for name, forge := range map[string]func(o *observed, now time.Time){
		"for another key": func(o *observed, now time.Time) {
			o.initiationCame(initiation(9), peer.Direct(known), false, false, now)
		},
		"for our key": func(o *observed, now time.Time) {
			o.initiationCame(initiation(9), peer.Direct(known), true, false, now)
			o.initiationAnswered(7, peer.Direct(known), "cloud") // a copy was answered again
		},
	} {
		for _, id := range []string{"", "cloud"} {
			t.Run(name+" "+id, func(t *testing.T) {
				o := observing(known)
				o.initiationCame(initiation(7), peer.Direct(known), true, false, begin)
				o.initiationAnswered(7, peer.Direct(known), id)
				forge(o, second(1))
				want := []InitiationSeen{
					{begin, known, false, [sizeInitiation]byte(initiation(7)), false},
					{second(1), known, false, [sizeInitiation]byte(initiation(9)), false},
				}
				if got := o.observations().Initiations; !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		}
	}
}

// Another initiation arrived from the same source just before the device answered.
func TestWhatIsNotAnsweredIsNotTakenForGenuine(t *testing.T) {
	o := observing(known)
	for i, from := range []netip.AddrPort{known, stranger(1)} {
		o.initiationAnswered(7, peer.Direct(from), "") // nothing arrived
		o.initiationCame(initiation(8), peer.Direct(from), true, false, second(2*i))
		o.initiationAnswered(7, peer.Direct(from), "")
		o.initiationCame(initiation(9), peer.Direct(from), true, false, second(2*i+1))
	}
	want := []InitiationSeen{
		{second(1), known, false, [sizeInitiation]byte(initiation(9)), false},
		{second(3), stranger(1), true, [sizeInitiation]byte(initiation(9)), false},
	}
	if got := o.observations().Initiations; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The index of a response shows which initiation the device answered, whether the response goes
// to peer:ID or to an address.
func TestAnsweredInitiationsAreKept(t *testing.T) {
	for name, managed := range map[string]bool{"managed": true, "not managed": false} {
		t.Run(name, func(t *testing.T) {
			b, c := start(t, New(Options{})), plain(t, loopback4)
			b.SetCandidates("cloud", direct(localAddr(c)))
			to := b.inner.endpoint(localAddr(c))
			if managed {
				b.Manage("cloud")
				var err error
				if to, err = b.ParseEndpoint("peer:cloud"); err != nil {
					t.Fatal(err)
				}
			}
			write(t, c, initiation(5), b.addr())
			b.next(t)
			if err := b.Send([][]byte{response(5)}, to); err != nil {
				t.Fatal(err)
			}
			write(t, c, initiation(6), b.addr())
			b.next(t)
			got := b.Observations().Initiations
			if len(got) != 2 || got[0].Data != [sizeInitiation]byte(initiation(5)) || got[1].Data != [sizeInitiation]byte(initiation(6)) {
				t.Errorf("got %+v, want the one that was answered and the one after it", got)
			}
		})
	}
}

func TestForgedResponseTakesNoPlaceOfOneThatFits(t *testing.T) {
	o := observing(known)
	o.responseCame(response(7), peer.Direct(known), "cloud", begin, begin)
	o.responseCame(response(1), peer.Direct(known), "", time.Time{}, second(1))
	want := []ResponseSeen{
		{begin, known, "cloud", begin, [sizeResponse]byte(response(7))},
		{second(1), known, "", time.Time{}, [sizeResponse]byte(response(1))},
	}
	if got := o.observations().Responses; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A peer can respond from any number of forged sources, since it knows the index.
func TestResponsesOfOnePeerTakeOnePlace(t *testing.T) {
	o := observing(known)
	o.responseCame(response(7), peer.Direct(known), "cloud", begin, begin)
	o.responseCame(response(8), peer.Direct(known), "", time.Time{}, begin)
	var last netip.AddrPort
	for i := range knownKept + 100 {
		last = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7)
		o.responseCame(response(9), peer.Direct(last), "hostile", begin, second(i+1))
	}
	want := []ResponseSeen{
		{begin, known, "cloud", begin, [sizeResponse]byte(response(7))},
		{begin, known, "", time.Time{}, [sizeResponse]byte(response(8))},
		{second(knownKept + 100), last, "hostile", begin, [sizeResponse]byte(response(9))},
	}
	got := o.observations().Responses
	slices.SortFunc(got[:2], func(a, b ResponseSeen) int { return strings.Compare(b.Peer, a.Peer) }) // both have the same time
	if !slices.Equal(got, want) {
		t.Errorf("got %d responses, %v, want %v", len(got), got[:min(len(got), 3)], want)
	}
}

func TestKnownSourcesAreBounded(t *testing.T) {
	var all []netip.AddrPort
	for i := range knownKept + 100 {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7))
	}
	o := observing(all...)
	for i, a := range all {
		o.initiationCame(initiation(1), peer.Direct(a), true, false, second(i))
	}
	got := o.observations().Initiations
	if len(got) != knownKept || got[0].From != all[100] {
		t.Errorf("got %d, the oldest of %v, want %d, the oldest of %v", len(got), got[0].From, knownKept, all[100])
	}
}

func TestObservingAllocatesNothing(t *testing.T) {
	o := observing(known)
	i := 0
	observe := func() {
		from, m, r := peer.Direct(stranger(i%100)), initiation(1), response(1)
		i++
		o.initiationCame(m, from, true, false, begin)
		o.initiationCame(m, peer.Direct(known), true, false, begin)
		o.responseCame(r, from, "", time.Time{}, begin)
		o.unreachableCame(from.Remote, icmpError{reason: portUnreachable}, begin)
	}
	if got := testing.AllocsPerRun(1000, observe); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}

func TestHandshakesThatCameAreObserved(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b, c := start(t, make(Options{})), plain(t, loopback4)
		b.Manage("cloud")
		b.SetCandidates("cloud", direct(localAddr(c)))
		to, err := b.ParseEndpoint("peer:cloud")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Send([][]byte{initiation(77)}, to); err != nil {
			t.Fatal(err)
		}
		read(t, c)
		before := time.Now()
		write(t, c, initiation(5), b.addr())
		b.next(t)
		write(t, c, response(77), b.addr())
		b.next(t)
		write(t, c, data(1, 32), b.addr())
		b.next(t)
		got := b.Observations()
		if len(got.Initiations) != 1 || len(got.Responses) != 1 {
			t.Fatalf("got %d initiations and %d responses, want one of each", len(got.Initiations), len(got.Responses))
		}
		i, r := got.Initiations[0], got.Responses[0]
		if i.From != localAddr(c) || [sizeInitiation]byte(initiation(5)) != i.Data || i.At.Before(before) {
			t.Errorf("initiation: got %+v", i)
		}
		if r.From != localAddr(c) || [sizeResponse]byte(response(77)) != r.Data || r.Peer != "cloud" || r.At.Before(i.At) || r.Asked.After(before) || r.Asked.IsZero() {
			t.Errorf("response: got %+v", r)
		}
	})
}

func TestWhatCameOverARelayIsObserved(t *testing.T) {
	b := start(t, New(Options{}))
	deliver, _ := b.AddRelay("relay-1", func([][]byte, netip.AddrPort) error { return nil })
	deliver(initiation(5), known)
	b.next(t)
	if got := b.Observations().Initiations; len(got) != 1 || got[0].From != known {
		t.Errorf("got %+v, want one from %v", got, known)
	}
}
