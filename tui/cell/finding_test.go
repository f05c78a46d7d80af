package cell

import (
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

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
