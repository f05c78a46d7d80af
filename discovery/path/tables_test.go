package path

import (
	"net/netip"
	"testing"
	"time"
)

func TestWhichNATsCanBePunched(t *testing.T) {
	const ei, ad, apd, ed = endpointIndependent, addressDependent, addressAndPortDependent, endpointDependent
	for _, c := range []struct {
		own, other NAT
		want       bool
	}{
		{NAT{Mapping: ei, Filtering: apd}, NAT{Mapping: ei, Filtering: apd}, true},
		{NAT{}, NAT{}, true},
		{NAT{Mapping: ei, Filtering: apd}, NAT{Mapping: apd, Filtering: apd}, false},
		{NAT{Mapping: ei, Filtering: ad}, NAT{Mapping: ed, Filtering: apd}, true},
		{NAT{Mapping: ei, Filtering: "unknown"}, NAT{Mapping: ed}, true},
		{NAT{Mapping: ed}, NAT{Mapping: ei, Filtering: apd}, false},
		{NAT{Mapping: ed}, NAT{Mapping: ed}, false},
		{NAT{Mapping: ed}, NAT{Mapping: ed, Filtering: ei}, true},
	} {
		got, why := canPunch(c.own, c.other)
		if got != c.want || got == (why != "") {
			t.Errorf("%+v and %+v: got %v (%s), want %v", c.own, c.other, got, why, c.want)
		}
		if back, _ := canPunch(c.other, c.own); back != got {
			t.Errorf("%+v and %+v: the two sides disagree", c.own, c.other)
		}
	}
}

func TestWhoOpensFirst(t *testing.T) {
	for _, c := range []struct {
		own, other string
		proposer   bool
	}{
		{StraysDropped, StraysDropped, true},
		{StraysDropped, StraysAnswered, false},
		{StraysDropped, "", false},
		{StraysAnswered, StraysDropped, true},
		{StraysAnswered, StraysAnswered, true},
		{"", "", true},
		{"unknown", StraysAnswered, true},
	} {
		if got := opensFirst(NAT{Strays: c.own}, NAT{Strays: c.other}); got != c.proposer {
			t.Errorf("own %q, peer's %q: proposer first %v, want %v", c.own, c.other, got, c.proposer)
		}
	}
}

// Each case says what both sides offer, and why the peer's server-reflexive address is not
// dialled, "" if it is.
func TestWhatIsFrozen(t *testing.T) {
	private, public := []netip.Addr{netip.MustParseAddr("10.0.0.2")}, []netip.Addr{netip.MustParseAddr("203.0.113.9")}
	relay := []Relay{{Via: "relay-1", Addr: relay1}}
	heard := func(n NAT) *Message { return &Message{Version: "1.0", Boot: 1, Seq: 1, NAT: n} }
	for _, c := range []struct {
		name  string
		local Local
		heard *Message
		after time.Duration // without a path
		want  string
	}{
		{"no relay: blind", Local{Hosts: private}, nil, 0, ""},
		{"a relay", Local{Hosts: private, Relays: relay}, nil, 0, "waits until coordinated over the relay"},
		{"a relay that does not work", Local{Hosts: private, Relays: relay}, nil, 16 * time.Second, ""},
		{"we can be dialled", Local{Hosts: public, NAT: NAT{Mapping: mappingNone}}, nil, 0, "the peer dials"},
		{"we can be dialled, and are not", Local{Hosts: public}, nil, 6 * time.Second, ""},
		{"our port is mapped", Local{Hosts: private, Candidates: []Candidate{{direct2, SourcePortmap}}}, nil, 0, "the peer dials"},
		{"public host behind a NAT", Local{Hosts: public, NAT: NAT{Mapping: endpointIndependent}, Relays: relay}, nil, 0, "waits until coordinated"},
		{"the peer's NAT lets anybody in", Local{Hosts: private, Relays: relay}, heard(NAT{Filtering: endpointIndependent}), 0, ""},
		{"ours does", Local{Hosts: private, Relays: relay, NAT: NAT{Filtering: endpointIndependent}}, heard(NAT{}), 0, "our NAT lets anyone in"},
		{"impossible", Local{Hosts: private, Relays: relay, NAT: NAT{Mapping: endpointDependent}}, heard(NAT{Mapping: endpointDependent}), 0, "without guessing ports"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, true)
			b.m.SetLocal(b.now, c.local)
			if c.heard != nil {
				b.m.Receive(b.now, *c.heard)
			}
			given(b, Candidate{direct1, SourceSTUN})
			b.run(c.after)
			b.poll()
			if got := b.status(to(direct1)); c.want == "" {
				if got.State == Frozen {
					t.Errorf("frozen: %s", got.Reason)
				}
			} else {
				b.want(to(direct1), Frozen, c.want)
			}
		})
	}
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		via, addr, source string
		want              class
	}{
		{"", "203.0.113.1:1", SourceHost, classDirect},
		{"", "192.168.1.1:1", SourceHost, classLAN},
		{"", "203.0.113.1:1", SourceLAN, classLAN},
		{"", "[fd00::1]:1", SourcePeer, classLAN},
		{"", "203.0.113.1:1", SourceRelay, classRelayed},
		{"relay-1", "203.0.113.1:1", SourceHost, classRelayed},
	} {
		p := to(netip.MustParseAddrPort(c.addr))
		p.Via = c.via
		if got := classify(p, c.source); got != c.want {
			t.Errorf("%v from %s: %v, want %v", p, c.source, got, c.want)
		}
	}
}

func TestCandidatesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		addr           string
		given, foreign bool
	}{
		{"203.0.113.1:51820", true, true},
		{"[::ffff:203.0.113.1]:51820", true, true},
		{"192.168.1.1:51820", true, true},
		{"127.0.0.1:51820", true, false},
		{"169.254.169.254:80", true, false},
		{"[fe80::1]:51820", true, false},
		{"0.0.0.0:51820", false, false},
		{"224.0.0.1:51820", false, false},
		{"255.255.255.255:51820", false, false},
		{"203.0.113.1:0", false, false},
	} {
		cs := []Candidate{{netip.MustParseAddrPort(c.addr), SourceHost}}
		if got := len(sanitize(cs, false)) == 1; got != c.given {
			t.Errorf("%s as configured: taken %v, want %v", c.addr, got, c.given)
		}
		if got := len(sanitize(cs, true)) == 1; got != c.foreign {
			t.Errorf("%s as announced: taken %v, want %v", c.addr, got, c.foreign)
		}
	}
}

func TestAnAddressCountsByItsBestSource(t *testing.T) {
	var r remotes
	r.give([]Candidate{{direct1, SourceSTUN}})
	r.announce(epoch, []Candidate{{direct1, SourceAdvertised}, {direct2, SourceHost}, {direct2, SourceRelay}})
	got := r.list()
	want := []Candidate{{direct1, SourceAdvertised}, {direct2, SourceHost}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
}
