package behaviour

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/foreign"
)

func TestResults(t *testing.T) {
	type mappings = map[netip.AddrPort]netip.AddrPort
	success := func(change func(*stunwire.Message)) func(*stunwire.Message, netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
		return func(m *stunwire.Message, to netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
			reply, from := new(model).honest(m, to)
			change(reply)
			return reply, from
		}
	}
	for _, c := range []struct {
		name               string
		model              model
		spoken             []netip.AddrPort
		mapping, filtering string
		strays             Strays
		reason             string // part of it
		atMost             time.Duration
	}{
		{"endpoint-independent mapping and filtering", model{admits: everybody}, nil,
			EndpointIndependent, EndpointIndependent, StraysIgnored, "", time.Second},
		{"address-dependent filtering", model{admits: only(a1p2)}, nil,
			EndpointIndependent, AddressDependent, StraysIgnored, "", 4 * time.Second},
		{"address-and-port-dependent filtering", model{admits: only()}, nil,
			EndpointIndependent, AddressAndPortDependent, StraysIgnored, "", 4 * time.Second},
		{"address-dependent mapping", model{mapped: mappings{a2p1: public2, a2p2: public2}, admits: only(a1p2)}, nil,
			AddressDependent, AddressDependent, StraysUnknown, "", 4 * time.Second},
		{"symmetric", model{mapped: mappings{a2p1: public2, a2p2: public3}, admits: only()}, nil,
			AddressAndPortDependent, AddressAndPortDependent, StraysUnknown, "", 4 * time.Second},
		{"a refused stray is kept", model{mapped: mappings{a2p2: public2, a1p2: public2}, admits: only()}, nil,
			EndpointIndependent, AddressAndPortDependent, StraysKept, "", 4 * time.Second},
		{"a server without second address", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = netip.AddrPort{} })}, nil,
			Unknown, Unknown, StraysUnknown, "192.0.2.1:3478 has no second address", time.Second},
		{"a second address like the first", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = a1p2 })}, nil,
			Unknown, Unknown, StraysUnknown, "has to differ in address and in port", time.Second},
		{"a second port like the first", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = a2p1 })}, nil,
			Unknown, Unknown, StraysUnknown, "has to differ in address and in port", time.Second},
		{"a second address of the other family", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = netip.MustParseAddrPort("[2001:db8::2]:3479") })}, nil,
			Unknown, Unknown, StraysUnknown, "of the same family", time.Second},
		{"a loopback second address", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = netip.MustParseAddrPort("127.0.0.1:3479") })}, nil,
			Unknown, Unknown, StraysUnknown, "cannot be reached from everywhere", time.Second},
		{"a private second address", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = netip.MustParseAddrPort("10.0.0.1:3479") })}, nil,
			Unknown, Unknown, StraysUnknown, "cannot be reached from everywhere", time.Second},
		{"a link-local second address", model{admits: everybody, answer: success(func(m *stunwire.Message) { m.Other = netip.MustParseAddrPort("169.254.169.254:80") })}, nil,
			Unknown, Unknown, StraysUnknown, "cannot be reached from everywhere", time.Second},
		{"no server", model{admits: everybody, dead: []netip.AddrPort{a1p1}}, nil,
			Unknown, Unknown, StraysUnknown, "192.0.2.1:3478 did not answer within 3s", 3 * time.Second},
		{"a server that answers errors", model{admits: everybody, answer: func(_ *stunwire.Message, to netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
			return &stunwire.Message{Class: stunwire.Error, Code: 401, Reason: foreign.Of("foreign text")}, to
		}}, nil, Unknown, Unknown, StraysUnknown, "192.0.2.1:3478 answers error 401", time.Second},
		{"a server that knows no CHANGE-REQUEST", model{admits: everybody, answer: func(m *stunwire.Message, to netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
			if m.Change != 0 {
				return &stunwire.Message{Class: stunwire.Error, Code: 420, Unknown: []uint16{3}}, to
			}
			return new(model).honest(m, to)
		}}, nil, EndpointIndependent, Unknown, StraysUnknown, "answers error 420 to CHANGE-REQUEST", time.Second},
		{"a server that ignores CHANGE-REQUEST", model{admits: everybody, answer: func(m *stunwire.Message, to netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
			reply, _ := new(model).honest(m, to)
			return reply, to
		}}, nil, EndpointIndependent, Unknown, StraysUnknown, "answers from 192.0.2.1:3478 when asked to answer from 192.0.2.2:3479", time.Second},
		{"a server whose second address is dead", model{admits: only(a1p2), dead: []netip.AddrPort{a2p1, a2p2}}, nil,
			Unknown, Unknown, StraysUnknown, "192.0.2.2:3478 did not answer", 7 * time.Second},
		{"a server whose second port is dead", model{admits: only(), dead: []netip.AddrPort{a1p2}}, nil,
			EndpointIndependent, Unknown, StraysUnknown, "192.0.2.1:3479 did not answer", 7 * time.Second},
		{"endpoint-dependent, and half of the second address is dead", model{mapped: mappings{a2p1: public2}, admits: everybody, dead: []netip.AddrPort{a2p2}}, nil,
			EndpointDependent, EndpointIndependent, StraysUnknown, "192.0.2.2:3479 did not answer", 7 * time.Second},
		{"endpoint-independent by A2:P2 alone", model{admits: everybody, dead: []netip.AddrPort{a2p1}}, nil,
			EndpointIndependent, EndpointIndependent, StraysIgnored, "", 7 * time.Second},
		{"another mapping to A2:P2 alone, where a stray may have been", model{mapped: mappings{a2p2: public2}, admits: only(), dead: []netip.AddrPort{a2p1}}, nil,
			Unknown, AddressAndPortDependent, StraysUnknown, "192.0.2.2:3478 did not answer", 7 * time.Second},
		{"the mapping changes meanwhile", model{admits: everybody, answer: func(m *stunwire.Message, to netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
			reply, from := new(model).honest(m, to)
			if m.Change != 0 {
				reply.Mapped = public2
			}
			return reply, from
		}}, nil, Unknown, Unknown, StraysUnknown, "the mapping changed during the test", time.Second},
		{"the gateway has spoken to the second address", model{admits: everybody}, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:9")},
			EndpointIndependent, Unknown, StraysUnknown, "spoken to 192.0.2.2:3479 lately", time.Second},
		{"the gateway has spoken to the second port", model{admits: only(a1p2)}, []netip.AddrPort{a1p2},
			EndpointIndependent, Unknown, StraysUnknown, "spoken to 192.0.2.1:3479 lately", 4 * time.Second},
		{"the gateway has spoken to what is silent all the same", model{admits: only()}, []netip.AddrPort{a1p2, a2p2},
			EndpointIndependent, AddressAndPortDependent, StraysIgnored, "", 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			test := New(a1p1)
			test.Spoken(c.spoken...)
			test.Refuse(func(netip.AddrPort) string { return "" })
			took := run(t, test, &c.model)
			m, f, done, reason := test.Result()
			if m != c.mapping || f != c.filtering || !done || test.Strays() != c.strays {
				t.Errorf("mapping %s, filtering %s, strays %s, done %v; want %s, %s, %s, true", m, f, test.Strays(), done, c.mapping, c.filtering, c.strays)
			}
			if !strings.Contains(reason, c.reason) || (reason == "") != (c.reason == "") || strings.Contains(reason, "foreign text") {
				t.Errorf("the reason is %q, want %q in it", reason, c.reason)
			}
			if took > c.atMost {
				t.Errorf("it took %v, want %v at most", took, c.atMost)
			}
		})
	}
}

func TestNothingIsSentToAnAddressThatIsRefused(t *testing.T) {
	test := New(a1p1)
	test.Refuse(func(other netip.AddrPort) string {
		if other != a2p2 {
			t.Errorf("asked about %v, want %v", other, a2p2)
		}
		return "it is ours"
	})
	took := run(t, test, &model{admits: everybody})
	_, filtering, done, reason := test.Result()
	if !done || filtering != Unknown || !strings.Contains(reason, a2p2.String()) || !strings.Contains(reason, "it is ours") {
		t.Errorf("done %v, filtering %s because %q", done, filtering, reason)
	}
	if took > time.Second {
		t.Errorf("it took %v", took)
	}
	for _, x := range []*exchange{test.answerOther, test.answerPort, test.otherAddress, test.otherBoth, test.otherPort} {
		if x != nil {
			t.Errorf("%v is asked", x.to)
		}
	}
}
