package cell

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

func TestWhatDependsOnAnotherCheckRepeatsNothingOfIt(t *testing.T) {
	c := &api.Check{
		Name: "auth", Peer: "cloud", DependsOn: "gateway",
		Verdict: api.Verdict{Verdict: api.Unknown, Cause: "not known while gateway fails", Fix: "fix gateway first"},
	}
	for _, detail := range []bool{false, true} {
		text := strings.Join(CheckLines(c, Subject(c, true), 80, Bare, time.Time{}, detail), "\n")
		if want := "? unknown  cloud → auth  depends on gateway"; text != want {
			t.Errorf("detail %v: got %q, want %q", detail, text, want)
		}
	}
}

func TestAStageThatWasOverAtOnceHasNoTime(t *testing.T) {
	c := &api.Check{
		Name: "gateway", Peer: "cloud", Verdict: api.Verdict{Verdict: api.OK},
		Stages: []api.CheckStage{
			{Stage: "probe", Verdict: api.OK, Seconds: 0.022},
			{Stage: "ping", Verdict: api.OK, Seconds: 1e-7, Detail: "21.96ms"},
		},
	}
	text := strings.Join(CheckLines(c, Subject(c, true), 80, Bare, time.Time{}, true), "\n")
	if !strings.Contains(text, "22 ms") || strings.Contains(text, "0.0 ms") || !strings.Contains(text, "21.96ms") {
		t.Errorf("got\n%s", text)
	}
}
