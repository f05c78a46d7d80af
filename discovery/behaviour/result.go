package behaviour

import (
	"fmt"
	"net/netip"
	"slices"
)

// result is the outcome of a test.
type result struct {
	mapping, filtering string
	strays             Strays
	whyMapping         string // why mapping is unknown
	whyFiltering       string
}

// none records that nothing was found.
func (r *result) none(why string) {
	*r = result{Unknown, Unknown, StraysUnknown, why, why}
}

// Result returns the behaviour in the terms of the status document, whether the test is finished,
// and a readable reason if something is unknown.
func (t *Test) Result() (mapping, filtering string, done bool, reason string) {
	r := t.result
	switch {
	case r.whyMapping == "" || r.whyMapping == r.whyFiltering:
		reason = r.whyFiltering
	case r.whyFiltering == "":
		reason = r.whyMapping
	default:
		reason = "mapping: " + r.whyMapping + "; filtering: " + r.whyFiltering
	}
	return r.mapping, r.filtering, t.stage == finished, reason
}

// Strays reports whether the NAT keeps state about datagrams that it refuses. Two such NATs have
// to be punched in order: they are "poisoned" by the side that comes first.
func (t *Test) Strays() Strays { return t.result.strays }

// unusable says why the rest of the test cannot use a server's other address. Only the server
// vouches for it, so it must not lead to a place where the server itself is not.
func unusable(server, other netip.AddrPort) string {
	a := other.Addr()
	switch {
	case !other.IsValid():
		return fmt.Sprintf("the STUN server %v has no second address (no OTHER-ADDRESS, RFC 5780)", server)
	case a == server.Addr() || other.Port() == server.Port() || a.Is4() != server.Addr().Is4():
		return fmt.Sprintf("the STUN server %v says that its other address is %v; it has to differ in address and in port, and be of the same family", server, other)
	case a.IsLoopback() != server.Addr().IsLoopback() || a.IsPrivate() && !server.Addr().IsPrivate() ||
		!a.IsGlobalUnicast() && !a.IsLoopback():
		return fmt.Sprintf("the STUN server %v says that its other address is %v, which cannot be reached from everywhere that the server can", server, other)
	}
	return ""
}

// judge evaluates the answers.
func (t *Test) judge() result {
	r := result{strays: StraysUnknown}
	for _, x := range []*exchange{t.answerOther, t.answerPort} {
		if x.state == answered && x.mapped != t.first.mapped {
			r.none(fmt.Sprintf("the mapping changed during the test, from %v to %v", t.first.mapped, x.mapped))
			return r
		}
	}
	r.mapping, r.whyMapping = t.judgeMapping()
	r.filtering, r.whyFiltering = t.judgeFiltering()
	r.strays = t.judgeStrays(r)
	return r
}

// judgeMapping follows RFC 5780 §4.3.
func (t *Test) judgeMapping() (word, why string) {
	same := func(x *exchange) bool { return x.state == answered && x.mapped == t.first.mapped }
	switch {
	case same(t.otherAddress) || t.otherAddress.state != answered && same(t.otherBoth):
		return EndpointIndependent, ""
	case t.otherAddress.state == answered && t.otherBoth.state == answered:
		if t.otherAddress.mapped == t.otherBoth.mapped {
			return AddressDependent, ""
		}
		return AddressAndPortDependent, ""
	case t.otherAddress.state == answered:
		return EndpointDependent, t.otherBoth.why
	case t.otherBoth.state == answered && t.answerOther.state == answered:
		return EndpointDependent, t.otherAddress.why
	}
	// Another port towards A2:P2 only may be the effect of a refused datagram.
	return Unknown, t.otherAddress.why
}

// judgeFiltering follows RFC 5780 §4.4.
func (t *Test) judgeFiltering() (word, why string) {
	both, port := t.answerOther, t.answerPort
	spokenTo := func(a netip.AddrPort) bool { return a.Addr() == t.other.Addr() }
	switch {
	case both.state == refused:
		return Unknown, both.why
	case both.state == answered && slices.ContainsFunc(t.spoken, spokenTo):
		return Unknown, spokenReason(both.from)
	case both.state == answered:
		return EndpointIndependent, ""
	case t.otherBoth.state != answered: // the server itself may be silent
		return Unknown, t.otherBoth.why
	case port.state == refused:
		return Unknown, port.why
	case port.state == answered && slices.Contains(t.spoken, port.from):
		return Unknown, spokenReason(port.from)
	case port.state == answered:
		return AddressDependent, ""
	case t.otherPort.state != answered:
		return Unknown, t.otherPort.why
	}
	return AddressAndPortDependent, ""
}

func spokenReason(from netip.AddrPort) string {
	return fmt.Sprintf("this gateway has spoken to %v lately, so that a NAT may let in what comes from there", from)
}

// judgeStrays compares the mapped port towards the address whose datagrams were refused with that
// towards others.
func (t *Test) judgeStrays(r result) Strays {
	switch {
	case r.mapping != EndpointIndependent || r.filtering == Unknown:
		return StraysUnknown
	case r.filtering == EndpointIndependent: // nothing is refused
		return StraysIgnored
	case t.otherBoth.mapped != t.first.mapped:
		return StraysKept
	}
	return StraysIgnored
}
