package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
)

// trainOn builds a lab in which a fault is being made.
func trainOn(t *testing.T, scenario string) *training {
	t.Helper()
	s, found := lab.FindScenario(scenario)
	if !found {
		t.Fatalf("there is no scenario %s", scenario)
	}
	l, err := lab.Build(t.Context(), lab.Options{Version: "test", Scenario: s})
	if err != nil {
		t.Fatal(err)
	}
	tr := newTraining(t.Context(), l, s)
	t.Cleanup(func() {
		tr.end()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// says waits until the note has a text.
func (t *training) says(tb testing.TB, text string) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for !strings.Contains(t.text(), text) {
		select {
		case <-tick.C:
		case <-late:
			tb.Fatalf("the note never said %q, but %q", text, t.text())
		}
	}
}

func TestAnOperatorFixesAFault(t *testing.T) {
	t.Parallel()
	tr := trainOn(t, "name-unknown")
	if text, err := tr.fix(t.Context()); err != nil || text != "there is nothing to fix now" {
		t.Errorf("fixing before there is a fault: %q, %v", text, err)
	}
	tr.says(t, "edge's file has clout.example.net")
	tr.says(t, "It is found")
	if text, err := tr.fix(t.Context()); err != nil || text != "all is well again" {
		t.Errorf("fixing: %q, %v", text, err)
	}
	tr.says(t, "All is well again")
	tr.end()
	var names []string
	for _, s := range tr.steps {
		if !s.OK {
			t.Errorf("step %s: %s", s.Name, s.Detail)
		}
		names = append(names, s.Name)
	}
	if got, want := strings.Join(names, " "), "fault found fix fixed"; got != want {
		t.Errorf("the story is %q, want %q", got, want)
	}
}

// Who fixes at once does not wait until both sides have found the fault, and who leaves
// does not wait at all.
func TestAFaultNeedNotBeWaitedFor(t *testing.T) {
	t.Parallel()
	tr := trainOn(t, "private-address")
	tr.says(t, "edge's file has cloud's private address")
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := tr.fix(left); err == nil {
		t.Error("fixing when the screen has been left: got no error")
	}
	tr.end()
	for _, s := range tr.steps {
		if s.Name != "fault" {
			t.Errorf("the story has step %s, which was cut short: %s", s.Name, s.Detail)
		}
	}
}

func TestTheScreenAsksAGatewayThatIsBeingRestarted(t *testing.T) {
	p := inProcess{&lab.Site{}}
	_, status := p.Status(t.Context())
	_, checks := p.Checks(t.Context())
	_, checked := p.Check(t.Context(), api.CheckRequest{})
	_, log := p.Log(t.Context(), 0)
	for _, err := range []error{status, checks, checked, log} {
		if !errors.Is(err, errRestarting) {
			t.Errorf("got %v, want %v", err, errRestarting)
		}
	}
}
