package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/discovery/behaviour"
	"github.com/postern-dev/postern/discovery/path"
)

const (
	// retestAfter is when a test without a result is repeated: there may have been losses, or
	// addresses that had recently been sent to. NATs forget within that time.
	retestAfter = 5 * time.Minute
	// noTest says why filtering is unknown if no test is possible.
	noTest = "no STUN server here offers the tests of RFC 5780 (it tells no OTHER-ADDRESS)"
)

// natTests tests the NAT (RFC 5780 §4) once after gathering and again when it may have changed. The
// zero value has no result and is due.
type natTests struct {
	running *behaviour.Test
	server  netip.AddrPort   // of the running test
	tried   []netip.AddrPort // in this round
	due     time.Time        // no round before
	done    bool             // no round is due

	mapping, filtering, strays string // "" = unknown
	reason                     string // why filtering is unknown
}

// pollTests starts what is due and advances the running test. It returns the time of the next step;
// zero if there is none.
func (g *gatherer) pollTests(now time.Time, do *actions) (next time.Time) {
	n := &g.tests
	if len(g.pending()) > 0 || n.done || n.running == nil && now.Before(n.due) {
		return n.due
	}
	for n.running != nil || g.startTest() {
		g.testedAt = now
		send, at := n.running.Poll(now)
		for _, d := range send {
			do.send = append(do.send, datagram{to: d.To, packet: d.Packet})
		}
		mapping, filtering, done, reason := n.running.Result()
		if !done {
			return at
		}
		n.take(mapping, filtering, reason)
	}
	n.tried, n.due, n.done = nil, now.Add(retestAfter), n.filtering != ""
	if n.reason == noTest {
		n.due = now.Add(refreshAfter) // one that has not answered yet may offer it
	}
	return n.due
}

// take records the result of the running test.
func (n *natTests) take(mapping, filtering, reason string) {
	if mapping != behaviour.Unknown {
		n.mapping = mapping
	}
	if filtering != behaviour.Unknown {
		n.filtering = filtering
	}
	switch n.running.Strays() {
	case behaviour.StraysIgnored:
		n.strays = path.StraysDropped
	case behaviour.StraysKept:
		n.strays = path.StraysAnswered
	case behaviour.StraysUnknown:
	}
	n.reason = fmt.Sprintf("STUN server %v: %s", n.server, reason)
	n.running = nil
}

// startTest starts a test with the next server that offers one; it returns false if none is left.
// Servers whose second address was never sent to come first: packets from an address that we have
// sent to say nothing about a NAT's filtering.
func (g *gatherer) startTest() bool {
	n := &g.tests
	if n.filtering != "" {
		return false
	}
	v4 := g.translated4()
	var best *target
	for _, t := range g.targets() {
		if !t.other.IsValid() || !t.mapped.IsValid() || t.addr.Addr().Is4() != v4 || slices.Contains(n.tried, t.addr) {
			continue
		}
		if best == nil || g.sentTo(best.other.Addr()) && !g.sentTo(t.other.Addr()) {
			best = t
		}
	}
	if best == nil {
		if n.reason == "" {
			n.reason = noTest
		}
		return false
	}
	n.tried, n.server = append(n.tried, best.addr), best.addr
	n.running = behaviour.New(best.addr)
	n.running.Spoken(g.spoken...)
	// The operator decides which servers we query; where a server then sends us is a stranger's
	// word.
	if Dialable(best.addr, g.hosts, g.exclude) == "" {
		hosts, exclude := slices.Clone(g.hosts), g.exclude
		n.running.Refuse(func(other netip.AddrPort) string { return Dialable(other, hosts, exclude) })
	}
	for _, t := range g.targets() {
		if t != best {
			n.running.Spoken(t.addr)
		}
	}
	return true
}

// sentTo reports whether the gateway sends to an address for another reason.
func (g *gatherer) sentTo(a netip.Addr) bool {
	return slices.ContainsFunc(g.spoken, func(s netip.AddrPort) bool { return s.Addr() == a }) ||
		slices.ContainsFunc(g.targets(), func(t *target) bool { return t.addr.Addr() == a })
}

// targets returns those of all servers.
func (g *gatherer) targets() []*target {
	var out []*target
	for _, s := range g.servers {
		out = append(out, s.targets...)
	}
	return out
}

// translated4 reports whether IPv4 answers describe the NAT, as in classify.
func (g *gatherer) translated4() bool {
	seen := g.observations()
	return len(seen) == 0 || slices.ContainsFunc(seen, func(o observation) bool { return o.mapped.Addr().Is4() })
}

// nat combines the servers' answers and the tests.
func (g *gatherer) nat() NAT {
	nat := classify(g.observations(), g.own)
	n := &g.tests
	if n.filtering != "" {
		nat.Filtering = n.filtering
	}
	if n.strays != "" {
		nat.Strays = n.strays
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

// filteringReason says why filtering is unknown; empty if it is known.
func (g *gatherer) filteringReason() string {
	switch n := &g.tests; {
	case n.filtering != "":
		return ""
	case n.running != nil:
		return fmt.Sprintf("being tested with STUN server %v", n.server)
	case n.reason != "":
		return n.reason
	}
	return "not tested yet"
}
