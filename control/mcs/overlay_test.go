package mcs

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

func TestOverlayPortsAreSticky(t *testing.T) {
	now := since
	free := func(api.Ports) bool { return false }
	o := NewOverlay(nil)
	lease := func(key string, n int) (api.Ports, bool) { return o.Lease(key, api.TCP, n, now, free) }
	first := map[string]api.Ports{}
	used := map[uint16]string{}
	for i := 0; ; i++ {
		key := fmt.Sprint("service-", i)
		p, ok := lease(key, 1+i%3*(Spread-1)/2)
		if !ok {
			break
		}
		first[key] = p
		for n := range p.Len() {
			at := p.First + uint16(n)
			if other := used[at]; other != "" || at < FirstPort || at > LastPort {
				t.Fatalf("%s has port %d (%s)", key, at, other)
			}
			used[at] = key
		}
	}
	if len(used) < LastPort-FirstPort+1-Spread {
		t.Errorf("only %d ports were found", len(used))
	}
	if p, ok := o.Lease("service-0", api.UDP, 1, now, free); !ok || p.First != FirstPort {
		t.Errorf("UDP has ports of its own: %v", p)
	}
	// A restart knows them, and those in quarantine.
	o.Retain(map[string]bool{"service-0": true}, now)
	o = NewOverlay(o.Leases(now))
	if p, ok := lease("service-0", 1); !ok || p != first["service-0"] {
		t.Errorf("it has %v after a restart, and had %v", p, first["service-0"])
	}
	if p, ok := lease("somebody else", 1); ok {
		t.Errorf("port %s was another's a moment ago", p)
	}
	if p, ok := lease("service-3", 1); !ok || p != first["service-3"] {
		t.Errorf("what comes back has %v, and had %v", p, first["service-3"])
	}
	now = now.Add(quarantine)
	if p, ok := lease("somebody else", Spread); !ok || p.Overlaps(first["service-0"]) || p.Overlaps(first["service-3"]) {
		t.Errorf("after the rest it gets %v", p)
	}
}

// A port that the configuration gives to another service is released.
func TestOverlayPortsGiveWay(t *testing.T) {
	o := NewOverlay(nil)
	p, _ := o.Lease("a", api.TCP, 1, since, func(api.Ports) bool { return false })
	taken := func(q api.Ports) bool { return q.Overlaps(p) }
	q, ok := o.Lease("a", api.TCP, 1, since, taken)
	if !ok || q == p {
		t.Errorf("it keeps %v", q)
	}
	if r, ok := o.Lease("b", api.TCP, 1, since, func(api.Ports) bool { return false }); !ok || r == p || r == q {
		t.Errorf("another one gets %v at once", r)
	}
	if again, _ := o.Lease("a", api.TCP, 1, since.Add(time.Minute), taken); again != q {
		t.Errorf("it moves again, to %v", again)
	}
}

// One namespace gets at most a share of the ports, including those of its removed services.
func TestNoNamespaceTakesAllPorts(t *testing.T) {
	free := func(api.Ports) bool { return false }
	o := NewOverlay(nil)
	lease := func(now time.Time, namespace string, i int) bool {
		_, ok := o.Lease(LeaseKey(namespace, fmt.Sprint("uid-", i), "", Port{"http", api.TCP, 80, ""}), api.TCP, 1, now, free)
		return ok
	}
	n := 0
	for lease(since, "shop", n) {
		n++
	}
	if n < MaxServices || n > (LastPort-FirstPort+1)*2/3 {
		t.Errorf("a namespace has %d ports", n)
	}
	o.Retain(map[string]bool{}, since)
	o = NewOverlay(o.Leases(since)) // a restart
	if lease(since, "shop", n) {
		t.Error("what rests does not count")
	}
	if !lease(since, "bank", 0) {
		t.Error("another namespace gets none")
	}
	if !lease(since.Add(quarantine), "shop", n) {
		t.Error("what has rested counts")
	}
}

// Nor do a few namespaces together.
func TestAFewNamespacesLeavePortsForOthers(t *testing.T) {
	o := NewOverlay(nil)
	lease := func(namespace string, i int) bool {
		_, ok := o.Lease(LeaseKey(namespace, fmt.Sprint("uid-", i), "", Port{"http", api.TCP, 80, ""}), api.TCP, 1, since, func(api.Ports) bool { return false })
		return ok
	}
	for i := range 6 {
		for n := 0; lease(fmt.Sprint("greedy-", i), n); n++ {
		}
	}
	n := 0
	for lease("shop", n) {
		n++
	}
	if n < 40 {
		t.Errorf("after six namespaces that take what they get, another one gets %d ports", n)
	}
}

// What cannot be leased together leaves nothing: neither ports, nor a reason to store them.
func TestPortsAreLeasedTogether(t *testing.T) {
	o := NewOverlay(nil)
	free := func(api.Ports) bool { return false }
	a, _ := o.Lease("a", api.TCP, 1, since, free)
	b, _ := o.Lease("b", api.TCP, 1, since, free)
	o.Retain(map[string]bool{"a": true}, since)
	o.Saved()
	before := o.Leases(since)
	if o.Atomically(func() bool {
		for _, key := range []string{"a", "b", "c"} { // one moves, one comes back, and one is new
			if _, ok := o.Lease(key, api.TCP, 1, since, func(p api.Ports) bool { return p == a }); !ok {
				t.Errorf("no port for %s", key)
			}
		}
		return false
	}) {
		t.Error("they are leased")
	}
	order := func(l []Lease) []Lease {
		return slices.SortedFunc(slices.Values(l), func(a, b Lease) int { return cmp.Compare(a.Key, b.Key) })
	}
	if got := o.Leases(since); !reflect.DeepEqual(order(got), order(before)) || o.Retain(map[string]bool{"a": true}, since) {
		t.Errorf("there is %v, and was %v", got, before)
	}
	if p, ok := o.Lease("b", api.TCP, 1, since, free); !ok || p != b {
		t.Errorf("what comes back has %v, and had %v", p, b)
	}
	if p, ok := o.Lease("d", api.TCP, 1, since, free); !ok || p.Overlaps(a) || p.Overlaps(b) {
		t.Errorf("another one has %v", p)
	}
}

// Leases are dropped when each one's quarantine is over, and not looked at before one is: for each
// export without a port that would take as long as there are leases.
func TestLeasesAreLookedAtWhenOneIsDue(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	o := NewOverlay(nil)
	for i, freed := range []time.Duration{0, time.Minute} {
		o.Lease(fmt.Sprint("key-", i), api.TCP, 1, start, func(api.Ports) bool { return false })
		o.Retain(nil, start.Add(freed))
	}
	for _, step := range []struct {
		at    time.Duration
		due   bool
		there int
	}{
		{quarantine - time.Second, false, 2}, {quarantine, true, 1}, {quarantine + time.Second, false, 1}, {quarantine + time.Minute, true, 0}, {2 * quarantine, false, 0},
	} {
		if due := o.prune(start.Add(step.at)); due != step.due || len(o.leases) != step.there {
			t.Errorf("after %s: some are due: %v, %d are left", step.at, due, len(o.leases))
		}
	}
}
