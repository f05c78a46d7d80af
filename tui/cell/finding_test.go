package cell

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

// Each of several faults has its place in the order in which to fix them. What is not a fault by
// itself is not counted.
func TestFaultsSayInWhichOrderToFixThem(t *testing.T) {
	verdict := func(o api.Outcome, code string) api.Verdict { return api.Verdict{Verdict: o, Code: code} }
	check := func(peer, name, target, direction string, o api.Outcome, code string) api.Check {
		return api.Check{Name: name, Peer: peer, Target: target, Direction: direction, Verdict: verdict(o, code)}
	}
	p := api.PeerStatus{Name: "cloud", State: api.StatePending, ApprovalFingerprint: "f00d"}
	p.Reachability.Outbound = api.Targets{Auth: verdict(api.Warning, "out-auth"), APIServer: verdict(api.Error, "out-api"), Gateway: verdict(api.Warning, "out-gw")}
	p.Reachability.Inbound = api.Targets{APIServer: verdict(api.Error, "in-api"), Gateway: verdict(api.Warning, "in-gw")}
	problems := []api.Check{
		check("", "network", "", api.DirectionOwn, api.Warning, "own"),
		check("", "upstream-apiServer", "", api.DirectionOwn, api.Warning, "own-api"),
		check("cloud", "gateway", api.ServiceGateway, api.DirectionOutbound, api.Error, "tunnel"),
		{Name: "rests", Direction: api.DirectionOwn, DependsOn: "own/network", Verdict: verdict(api.Unknown, "follows")},
	}
	var got []string
	for _, f := range Order(append(Findings(&p), ProblemFindings(problems, "cloud")...)) {
		order, _, _ := strings.Cut(f.order(), ",")
		got = append(got, strings.TrimSpace(strings.TrimSuffix(order, " · ")+" "+f.Code))
	}
	want := []string{"1 of 8 tunnel", "2 of 8 in-api", "3 of 8 out-api", "4 of 8 own", "5 of 8 in-gw", "6 of 8 out-gw", "7 of 8 own-api", "8 of 8 out-auth", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if f := Order([]Finding{{urgency: 1}, {}}); f[0].order() != "" {
		t.Errorf("a fault alone says %q", f[0].order())
	}
	if got, want := FixOrder(problems), "fix first tunnel cloud → gateway, then own network, then own-api upstream-apiServer"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := FixOrder(problems[2:]); got != "" {
		t.Errorf("a fault alone has the order %q", got)
	}
	if got, more := Worst(&api.Status{Problems: problems, Peers: []api.PeerStatus{p}}); got.Code != "tunnel" || more != 7 {
		t.Errorf("the worst is %+v and %d more", got, more)
	}
}

// A fault is shown once, where the path breaks, without findings that it explains.
func TestWhatTheBreakSaysIsNotSaidAgain(t *testing.T) {
	tunnel := way.Break{At: way.Between, Fault: way.Fault{Check: "network", Direction: api.DirectionOwn, Outcome: api.Error, Confidence: api.Certain, Code: "PST0120", Cause: "no route since 5s"}}
	service := way.Break{At: way.Service, Fault: way.Fault{Check: "apiServer", Direction: api.DirectionOutbound, Outcome: api.Error, Confidence: api.Certain, Code: "PST0501", Cause: "untrusted"}}
	unexplained := way.Break{At: way.Between, Fault: way.Fault{Outcome: api.Warning, Cause: "not answered"}}
	likely := tunnel
	likely.Confidence = api.Likely
	for _, tc := range []struct {
		what string
		of   way.Break
		also Finding
		want bool
	}{
		{"another check of the tunnel that finds the same later", tunnel, Finding{Check: "gateway", Direction: api.DirectionOutbound, Code: "PST0120", Cause: "no route since 6s"}, false},
		{"another code", tunnel, Finding{Check: "mtu", Code: "PST0601", Cause: "large packets"}, true},
		{"why the peer is in its state", tunnel, Finding{Cause: "silent for 9s", ofState: true}, false},
		{"the same, beside a service", service, Finding{Cause: "silent for 9s", ofState: true}, true},
		{"the same code at the other service", service, Finding{Check: "auth", Direction: api.DirectionOutbound, Code: "PST0501", Cause: "untrusted auth"}, true},
		{"the same service", service, Finding{Check: "apiServer", Direction: api.DirectionOutbound, Code: "PST0501", Cause: "untrusted since"}, false},
		{"a listener that failed, beside a fault without a code", unexplained, Finding{Cause: "no listener"}, true},
		{"a process that was starved, beside a certain root", tunnel, Finding{Check: "resources-delay", Code: "PST0813"}, false},
		{"a process that was starved, beside a likely one", likely, Finding{Check: "resources-delay", Code: "PST0813"}, true},
	} {
		got := Wrong(&way.Way{Peer: "cloud", Break: &tc.of}, []Finding{tc.also})
		if said := len(got) > 1; said != tc.want {
			t.Errorf("%s: said %v, want %v", tc.what, said, tc.want)
		}
	}
}
