package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

const (
	// retestAfter is when a test that came to nothing is tried again: it may have met
	// losses.
	retestAfter = 5 * time.Minute
	// noTest says why filtering is unknown where nothing can be tested.
	noTest = "no STUN server here offers the tests of RFC 5780 (OTHER-ADDRESS) with a second address that this gateway has never sent to"
)

// behaviourTest finds out with one server how the NAT maps and filters (RFC 5780 §4):
// [behaviour.Test].
type behaviourTest interface {
	Poll(now time.Time) (send []datagram, next time.Time)
	Handle(now time.Time, packet []byte, from netip.AddrPort) bool
	Result() (mapping, filtering string, done bool, reason string)
}

// natTests has the NAT tested once after gathering and again when it may be another.
type natTests struct {
	start func(server netip.AddrPort) behaviourTest // nil = no tests

	running behaviourTest
	server  netip.AddrPort   // of the running test
	tried   []netip.AddrPort // since due
	due     time.Time        // no test before; zero = as soon as gathering is complete
	done    bool             // nothing is due

	mapping, filtering string // "" = not known
	reason             string // why filtering is not known
}

// reset forgets what was found: the NAT may be another one.
func (n *natTests) reset() { *n = natTests{start: n.start} }

// pollTests starts what is due and drives what runs. It gives the time of the next step.
func (g *gatherer) pollTests(now time.Time, do *actions) (next time.Time) {
	n := &g.tests
	if n.start == nil || len(g.pending()) > 0 {
		return time.Time{}
	}
	if n.running == nil && (n.done || now.Before(n.due)) {
		return n.due
	}
	for {
		if n.running == nil && !g.startTest() {
			n.done, n.tried = true, nil
			if n.filtering == "" && n.reason != noTest {
				n.done, n.due = false, now.Add(retestAfter)
			}
			return n.due
		}
		send, at := n.running.Poll(now)
		do.send = append(do.send, send...)
		mapping, filtering, done, reason := n.running.Result()
		if !done {
			return at
		}
		n.take(mapping, filtering, reason)
	}
}

// take ends the running test. The first server that can tell decides.
func (n *natTests) take(mapping, filtering, reason string) {
	if mapping != BehaviourUnknown && mapping != "" {
		n.mapping = mapping
	}
	if filtering != BehaviourUnknown && filtering != "" {
		n.filtering, n.reason = filtering, ""
	} else {
		n.reason = fmt.Sprintf("STUN server %v: %s", n.server, reason)
	}
	n.running = nil
}

// startTest starts a test with the next server that offers one; false when no more need
// be asked.
func (g *gatherer) startTest() bool {
	n := &g.tests
	if n.filtering != "" {
		return false
	}
	for _, s := range g.servers {
		for _, t := range s.targets {
			if slices.Contains(n.tried, t.addr) || !g.testable(t) {
				continue
			}
			n.tried = append(n.tried, t.addr)
			n.server, n.running = t.addr, n.start(t.addr)
			return true
		}
	}
	if n.reason == "" {
		n.reason = noTest
	}
	return false
}

// testable says whether a server can tell filtering: it has a second address, which is
// none of those that this gateway has sent to. What a NAT lets in from where one has sent
// to says nothing.
func (g *gatherer) testable(t *target) bool {
	if !t.other.IsValid() || t.other.Addr() == t.addr.Addr() || !t.mapped.IsValid() {
		return false
	}
	for _, s := range g.servers {
		for _, o := range s.targets {
			if o.addr.Addr() == t.other.Addr() {
				return false
			}
		}
	}
	return t.addr.Addr().Is4() == g.decidingFamily4()
}

// decidingFamily4 says whether IPv4 answers tell of the NAT, as in classify.
func (g *gatherer) decidingFamily4() bool {
	seen := g.observations()
	return len(seen) == 0 || slices.ContainsFunc(seen, func(o observation) bool { return o.mapped.Addr().Is4() })
}

// nat is what the servers' answers and the tests say together.
func (g *gatherer) nat() NAT {
	nat := classify(g.observations(), g.own)
	n := &g.tests
	if n.filtering != "" {
		nat.Filtering = n.filtering
	}
	switch {
	case n.mapping == "":
	case nat.Mapping == BehaviourUnknown:
		nat.Mapping = n.mapping
	case nat.Mapping == MappingEndpointDependent && endpointDependent(n.mapping):
		nat.Mapping = n.mapping
	}
	return nat
}

// filteringReason says why filtering is not known; empty when it is.
func (g *gatherer) filteringReason() string {
	switch n := &g.tests; {
	case n.filtering != "":
		return ""
	case n.reason != "":
		return n.reason
	case n.running != nil:
		return fmt.Sprintf("being tested with STUN server %v", n.server)
	case len(g.servers) == 0:
		return noTest
	}
	return "not tested yet"
}
