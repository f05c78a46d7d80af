package peers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/tunnel/peer"
)

func object(name string) *v1alpha1.Peer {
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "postern", Generation: 3}, Spec: v1alpha1.PeerSpec{PublicKey: keyText(1)}}
}

func keyText(n byte) string { return peer.PublicKey{n}.String() }

// shown returns the controller's status of a peer.
func shown(s *api.PeerStatus) v1alpha1.PeerStatus {
	return statusOf(&candidate{object: object("cloud")}, s, v1alpha1.PeerStatus{}, noon)
}

func with(change func(*api.PeerStatus)) *api.PeerStatus {
	s := connected("cloud")
	change(&s)
	return &s
}

func failing(code, cause string) api.Verdict {
	return api.Verdict{Verdict: api.Error, Code: code, Cause: cause, Fix: "fix it"}
}

func TestStatusSaysWhatTheGatewayKnows(t *testing.T) {
	end := noon.Add(time.Hour)
	for name, c := range map[string]struct {
		s    *api.PeerStatus
		want string // state, code, and each condition's status and reason
	}{
		"all is well": {with(func(s *api.PeerStatus) { s.Identity = &api.Identity{NotAfter: end} }),
			"connected  True/Accepted True/Ready True/Ready True/Ready True/Ready True/Issued"},
		"what is sent is not answered": {with(func(s *api.PeerStatus) { s.UnconfirmedSince = &noon }),
			"unconfirmed  True/Accepted Unknown/Unconfirmed Unknown/Unconfirmed Unknown/NotChecked Unknown/NotChecked False/NotOffered"},
		"what is sent is not answered, and what was found came and went": {with(func(s *api.PeerStatus) {
			s.UnconfirmedSince = &noon
			for _, v := range []*api.Verdict{&s.Reachability.Outbound.Gateway, &s.Reachability.Outbound.APIServer} {
				*v = api.Verdict{Verdict: api.Warning, Code: string(catalogue.Intermittent), Cause: "it works now", Fix: "f"}
			}
		}), "unconfirmed  True/Accepted Unknown/Unconfirmed Unknown/Unconfirmed Unknown/NotChecked Unknown/NotChecked False/NotOffered"},
		"the tunnel came and went, and is gone": {with(func(s *api.PeerStatus) {
			s.State = api.StateConnecting
			s.Reachability.Outbound.Gateway = api.Verdict{Verdict: api.Warning, Code: string(catalogue.Intermittent), Cause: "it works now", Fix: "f"}
		}), "connecting PST0119 True/Accepted False/Connecting False/Connecting True/Ready True/Ready False/NotOffered"},
		"this gateway has no link, and the peer was heard just now": {with(func(s *api.PeerStatus) {
			s.Reachability.Outbound = api.Targets{Gateway: failing(string(catalogue.LinkDown), "down")}
		}), "connected PST0121 True/Accepted False/LinkDown False/LinkDown Unknown/NotChecked Unknown/NotChecked Unknown/NotChecked"},
		"it has been silent for seconds": {with(func(s *api.PeerStatus) {
			v := failing(string(catalogue.HandshakeStale), "silent")
			v.Confidence = api.Tentative
			s.Reachability.Outbound = api.Targets{Gateway: v}
		}), "connected PST0102 True/Accepted Unknown/HandshakeStale Unknown/HandshakeStale Unknown/NotChecked Unknown/NotChecked Unknown/NotChecked"},
		"it is not let in": {&api.PeerStatus{State: api.StatePending}, "pending  False/WaitsForApproval False/WaitsForApproval False/WaitsForApproval Unknown/NotChecked Unknown/NotChecked Unknown/NotChecked"},
		"it is not known":  {nil, "pending  Unknown/Pending False/Connecting False/Connecting Unknown/NotChecked Unknown/NotChecked Unknown/NotChecked"},
		"nothing is offered": {with(func(s *api.PeerStatus) {
			s.Reachability.Outbound.Auth, s.Reachability.Outbound.APIServer = api.Verdict{Verdict: api.Off}, api.Verdict{Verdict: api.Off}
		}), "connected  True/Accepted True/Ready True/Ready False/NotOffered False/NotOffered False/NotOffered"},
		"it is about to be checked": {with(func(s *api.PeerStatus) { s.Reachability.Outbound = api.Targets{} }),
			"connected  True/Accepted Unknown/NotChecked True/Ready Unknown/NotChecked Unknown/NotChecked Unknown/NotChecked"},
		"slow": {with(func(s *api.PeerStatus) {
			s.Reachability.Outbound.APIServer = api.Verdict{Verdict: api.Warning, Code: string(catalogue.APIServerSlow), Cause: "c", Fix: "f"}
		}), "connected PST0308 True/Accepted True/Ready True/Ready True/Ready True/APIServerSlow False/NotOffered"},
		"denied": {with(func(s *api.PeerStatus) {
			s.Reachability.Outbound.Auth = failing(string(catalogue.AuthDenied), "denied")
		}),
			"connected PST0204 True/Accepted False/AuthDenied True/Ready False/AuthDenied True/Ready False/AuthDenied"},
		"silent": {with(func(s *api.PeerStatus) {
			s.State = api.StateFailed
			s.Reachability.Outbound = api.Targets{Gateway: failing(string(catalogue.PeerSilent), "silence")}
		}), "failed PST0101 True/Accepted False/PeerSilent False/PeerSilent Unknown/NotChecked Unknown/NotChecked Unknown/NotChecked"},
		"an identity that is rejected": {with(func(s *api.PeerStatus) {
			s.Identity, s.Reachability.Outbound.APIServer = &api.Identity{NotAfter: end}, failing(string(catalogue.APIServerUnauthorized), "who?")
		}), "connected PST0305 True/Accepted False/APIServerUnauthorized True/Ready True/Ready False/APIServerUnauthorized False/APIServerUnauthorized"},
		"a newer peer's code": {with(func(s *api.PeerStatus) { s.Reachability.Outbound.Auth = failing("PST0299", "new") }),
			"connected PST0299 True/Accepted False/Problem True/Ready False/Problem True/Ready False/Problem"},
	} {
		is := shown(c.s)
		got := is.State + " " + is.Code
		for _, x := range is.Conditions {
			got += fmt.Sprintf(" %s/%s", x.Status, x.Reason)
			if x.Message == "" || x.ObservedGeneration != 3 || !x.LastTransitionTime.Time.Equal(noon) {
				t.Errorf("%s: the condition %+v", name, x)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestAConditionThatStaysKeepsItsTime(t *testing.T) {
	before := shown(with(func(*api.PeerStatus) {}))
	later := noon.Add(time.Minute)
	is := statusOf(&candidate{object: object("cloud")}, with(func(s *api.PeerStatus) { s.Reachability.Outbound.Auth = failing("PST0204", "denied") }), before, later)
	if got := conditionOf(is, v1alpha1.TunnelReady).LastTransitionTime.Time; !got.Equal(noon) {
		t.Errorf("TunnelReady changed at %v", got)
	}
	if got := conditionOf(is, v1alpha1.Accepted).LastTransitionTime.Time; !got.Equal(noon) {
		t.Errorf("Accepted changed at %v", got)
	}
	for _, kind := range []string{v1alpha1.AuthReachable, v1alpha1.Ready} {
		if got := conditionOf(is, kind).LastTransitionTime.Time; !got.Equal(later) {
			t.Errorf("%s changed at %v", kind, got)
		}
	}
}

func TestEventsTellWhatAnOperatorShouldKnow(t *testing.T) {
	well := with(func(*api.PeerStatus) {})
	identity := with(func(s *api.PeerStatus) { s.Identity = &api.Identity{NotAfter: noon} })
	denied := with(func(s *api.PeerStatus) { s.Reachability.Outbound.Auth = failing("PST0204", "denied") })
	silent := with(func(s *api.PeerStatus) {
		s.State = api.StateConnecting
		s.Reachability.Outbound = api.Targets{Gateway: failing("PST0102", "silence")}
	})
	other := with(func(s *api.PeerStatus) {
		s.State = api.StateFailed
		s.Reachability.Outbound = api.Targets{Gateway: failing("PST0402", "nothing listens")}
	})
	rejected := with(func(s *api.PeerStatus) {
		s.Identity, s.Reachability.Outbound.APIServer = &api.Identity{NotAfter: noon}, failing("PST0305", "who?")
	})
	refused := statusOf(&candidate{object: object("cloud"), refused: found(object("cloud"), catalogue.PeerDuplicate, "")}, nil, v1alpha1.PeerStatus{}, noon)
	for name, c := range map[string]struct {
		was, is v1alpha1.PeerStatus
		want    string
	}{
		"nothing new":                  {shown(well), shown(well), ""},
		"it connects":                  {v1alpha1.PeerStatus{}, shown(well), "Normal/Connected"},
		"it connects, and is denied":   {v1alpha1.PeerStatus{}, shown(denied), "Normal/Connected Warning/AuthDenied"},
		"an identity":                  {shown(well), shown(identity), "Normal/IdentityIssued"},
		"another one":                  {shown(identity), shown(with(func(s *api.PeerStatus) { s.Identity = &api.Identity{NotAfter: noon.Add(time.Hour)} })), ""},
		"it is rejected":               {shown(identity), shown(rejected), "Warning/APIServerUnauthorized"},
		"it is not any more":           {shown(rejected), shown(identity), "Normal/Cleared"},
		"denied":                       {shown(well), shown(denied), "Warning/AuthDenied"},
		"not denied any more":          {shown(denied), shown(well), "Normal/Cleared"},
		"lost":                         {shown(well), shown(silent), "Warning/Lost"},
		"what is sent is not answered": {shown(well), shown(with(func(s *api.PeerStatus) { s.UnconfirmedSince = &noon })), ""},
		"the reason becomes clear":     {shown(silent), shown(other), "Warning/NothingListens"},
		"found again":                  {shown(other), shown(well), "Normal/Connected Normal/Cleared"},
		"refused":                      {shown(well), refused, "Warning/PeerDuplicate"},
	} {
		var got []string
		for _, e := range notes(c.was, c.is) {
			got = append(got, e.Type+"/"+e.Reason)
			if e.Message == "" {
				t.Errorf("%s: %s says nothing", name, e.Reason)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A fault that comes and goes is told when it begins, and when it is over for good, and not each
// time.
func TestEventsOfAFaultThatComesAndGoes(t *testing.T) {
	goes := api.Verdict{Verdict: api.Warning, Code: string(catalogue.Intermittent), Cause: "it works now", Fix: "f"}
	well := with(func(*api.PeerStatus) {})
	denied := with(func(s *api.PeerStatus) { s.Reachability.Outbound.Auth = failing("PST0204", "denied") })
	works := with(func(s *api.PeerStatus) { s.Reachability.Outbound.Auth = goes })
	unconfirmed := with(func(s *api.PeerStatus) { s.UnconfirmedSince = &noon })
	silent := with(func(s *api.PeerStatus) {
		s.State = api.StateConnecting
		s.Reachability.Outbound = api.Targets{Gateway: failing("PST0102", "silence")}
	})
	heard := with(func(s *api.PeerStatus) { s.Reachability.Outbound.Gateway = goes })
	type step struct {
		is   *api.PeerStatus
		want string
	}
	for name, steps := range map[string][]step{
		"a service": {{denied, "Warning/AuthDenied"}, {works, ""}, {denied, ""}, {works, ""}, {unconfirmed, ""}, {denied, ""},
			{works, ""}, {well, "Normal/Cleared"}, {denied, "Warning/AuthDenied"}},
		"a service, first seen while it works":               {{works, "Warning/Intermittent"}, {denied, "Warning/AuthDenied"}, {works, ""}, {denied, ""}, {well, "Normal/Cleared"}},
		"the tunnel":                                         {{silent, "Warning/Lost"}, {heard, ""}, {silent, ""}, {heard, ""}, {well, "Normal/Connected Normal/Cleared"}, {silent, "Warning/Lost"}},
		"a service that is unknown while the tunnel is lost": {{denied, "Warning/AuthDenied"}, {silent, "Warning/Lost"}, {denied, "Normal/Connected Normal/Cleared"}},
	} {
		was := shown(well)
		for i, s := range steps {
			is := held(was, shown(s.is))
			var got []string
			for _, e := range notes(was, is) {
				got = append(got, e.Type+"/"+e.Reason)
			}
			if strings.Join(got, " ") != s.want {
				t.Errorf("%s, step %d: got %q, want %q", name, i, got, s.want)
			}
			was = is
		}
	}
}

func TestRoundTripTimesAreRounded(t *testing.T) {
	for seconds, want := range map[float64]string{0: "", 0.00042: "400µs", 0.001234: "1.2ms", 0.0123: "12ms", 1.2345: "1.235s"} {
		if got := rttText(seconds); got != want {
			t.Errorf("%g: got %q, want %q", seconds, got, want)
		}
	}
}
