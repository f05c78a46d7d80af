package path

import (
	"net/netip"
	"testing"
	"time"
)

// TestTheOrderOfRecords has two addresses of one class, of which the slower one is preferred: it
// is used while it answers, and again once it answers again.
func TestTheOrderOfRecords(t *testing.T) {
	const ms = time.Millisecond
	b := newBench(t, true)
	b.rtt[to(direct1)], b.rtt[to(direct2)] = 90*ms, 10*ms
	b.m.SetOrder(b.now, map[netip.AddrPort]uint8{direct2: 1})
	given(b, Candidate{direct1, SourceDNS}, Candidate{direct2, SourceDNS})
	b.run(5 * time.Minute)
	b.want(to(direct1), Selected, "")
	b.want(to(direct2), Valid, "the selected path comes before it in the order of the peer's records")

	delete(b.rtt, to(direct1))
	b.run(10 * time.Second)
	b.want(to(direct2), Selected, "instead of")

	b.rtt[to(direct1)] = 90 * ms
	b.run(2 * time.Minute)
	b.want(to(direct1), Selected, "preferred to "+direct2.String()+" by the order")
	if b.routing.Selected != to(direct1) {
		t.Errorf("routing is %+v, want %v", b.routing, direct1)
	}

	// Without an order the round trip decides.
	b.m.SetOrder(b.now, nil)
	b.run(2 * time.Minute)
	b.want(to(direct2), Selected, "faster")
}

// TestAnOrderIsForAClass has an address of a better class with a later order.
func TestAnOrderIsForAClass(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)], b.rtt[to(lan1)] = 10*time.Millisecond, 20*time.Millisecond
	b.m.SetOrder(b.now, map[netip.AddrPort]uint8{lan1: 1})
	given(b, Candidate{direct1, SourceDNS}, Candidate{lan1, SourceDNS})
	b.run(time.Minute)
	b.want(to(lan1), Selected, "")
}
