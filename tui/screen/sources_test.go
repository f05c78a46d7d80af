package screen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// twoGateways opens a screen over edge and cloud.
func twoGateways(t *testing.T, width, height int, change func(*Options)) (s *stage, edge, cloud *fake) {
	t.Helper()
	edge, cloud = busy(), busy()
	cloud.status.Gateway.Name = "cloud"
	cloud.status.Peers = cloud.status.Peers[:1]
	s = &stage{T: t, gateway: edge, clock: noon}
	tasks := newTasks(context.Background())
	t.Cleanup(tasks.close)
	o := Options{Sources: []NamedSource{{Name: "edge", Source: edge, Operator: edge}, {Name: "cloud", Source: cloud, Operator: cloud}}, Out: &s.written, Now: func() time.Time { return s.clock }}
	if change != nil {
		change(&o)
	}
	s.model = newModel(o, tasks)
	s.Update(tea.WindowSizeMsg{Width: width, Height: height})
	s.do(s.poll())
	return s, edge, cloud
}

func TestOneOfSeveralGatewaysIsShown(t *testing.T) {
	s, edge, _ := twoGateways(t, 80, 24, nil)
	if got := s.View(); !strings.Contains(got, "edge · 4 peers") || !strings.Contains(got, "n next gateway") {
		t.Errorf("at first: want edge, and the key that shows the next:\n%s", got)
	}
	s.press("w", "n")
	if got := s.View(); !strings.Contains(got, "cloud · 1 peer:") {
		t.Errorf("after n: want cloud, at once:\n%s", got)
	}
	if !s.data.wide {
		t.Error("the other gateway is not looked at as the first was")
	}
	edge.mu.Lock()
	asked := edge.statuses
	edge.mu.Unlock()
	s.pass(2 * time.Second)
	edge.mu.Lock()
	if edge.statuses != asked {
		t.Error("a gateway that is not shown is asked")
	}
	edge.mu.Unlock()
	s.typed(":gateway edge").press("enter")
	if got := s.View(); !strings.Contains(got, "edge · 4 peers") {
		t.Errorf("after :gateway edge:\n%s", got)
	}
	s.typed(":gateway moon").press("enter")
	if got := s.View(); !strings.Contains(got, "there are the gateways edge, cloud") {
		t.Errorf("a gateway that there is not:\n%s", got)
	}
}

// The data of a gateway is still there when it is shown again.
func TestSwitchingKeepsWhatWasGathered(t *testing.T) {
	s, edge, _ := twoGateways(t, 80, 24, nil)
	for range 3 {
		s.pass(time.Second).View()
	}
	s.press("j", "j", "n", "j", "n")
	key := edge.status.Peers[0].PublicKey
	if n := len(s.data.samples(key, time.Time{})); n != 4 {
		t.Errorf("%d samples of edge's peer are there, want the 4 from before", n)
	}
	if !strings.Contains(s.View(), "▸ new") {
		t.Errorf("the selection is another:\n%s", s.View())
	}
}

// An answer that arrives while another gateway is shown belongs to the first one.
func TestAnAnswerOfTheOtherGatewayIsItsOwn(t *testing.T) {
	s, edge, _ := twoGateways(t, 80, 24, nil)
	s.clock = s.clock.Add(2 * time.Second)
	edge.status.Gateway.Version = "0.2.0"
	late := s.poll()
	check := s.probe(allPeers)
	s.press("n")
	s.do(late)
	s.do(check)
	if got := s.data.status.Gateway.Name; got != "cloud" {
		t.Errorf("shown is %s, want cloud", got)
	}
	if s.data.checking != "" {
		t.Errorf("%q is said to be checked, which the other gateway does", s.data.checking)
	}
	if got := s.gateways[0].status.Gateway.Version; got != "0.2.0" {
		t.Errorf("edge is remembered at version %s, want what it said last", got)
	}
}

func TestASingleGatewayHasNoOther(t *testing.T) {
	s := play(t, busy(), 80, 24, false)
	s.press("n")
	if got := s.View(); strings.Contains(got, "next gateway") || !strings.Contains(got, "edge") {
		t.Errorf("want edge, and no way to another:\n%s", got)
	}
}

func TestANoteStandsAboveAll(t *testing.T) {
	text := "wrong-port: edge's file has a wrong port of cloud\x1b[2J.\n:fix fixes it " + strings.Repeat("and more ", 60)
	for _, size := range [][2]int{{40, 15}, {80, 24}, {120, 40}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s, _, _ := twoGateways(t, size[0], size[1], func(o *Options) { o.Note = func() string { return text } })
			for _, view := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "?"} {
				s.press(view)
				got := s.View()
				fits(t, got, size[0], size[1])
				if !strings.HasPrefix(got, "wrong-port: edge's file") {
					t.Errorf("the note is not at the top:\n%s", got)
				}
			}
		})
	}
	s, _, _ := twoGateways(t, 80, 24, func(o *Options) { o.Note = func() string { return "" } })
	if got := s.View(); !strings.HasPrefix(got, "edge") {
		t.Errorf("an empty note takes room:\n%s", got)
	}
}

func TestAnActionIsACommand(t *testing.T) {
	done := 0
	s, _, _ := twoGateways(t, 120, 40, func(o *Options) {
		o.Actions = []Action{
			{"fix", "fix the fault", func(context.Context) (string, error) { done++; return "all is well again", nil }},
			{"break", "make a fault", func(context.Context) (string, error) { return "", errors.New("too late") }},
		}
	})
	s.typed(":fix").press("enter")
	if got := s.View(); done != 1 || !strings.Contains(got, "all is well again") {
		t.Errorf("done %d times, want once and its outcome:\n%s", done, got)
	}
	s.typed(":break").press("enter")
	if got := s.View(); !strings.Contains(got, "break: too late") {
		t.Errorf("want why it failed:\n%s", got)
	}
	s.press("?")
	if got := strings.Join(s.helpLines(120), "\n"); !strings.Contains(got, ":fix") || !strings.Contains(got, "fix the fault") {
		t.Errorf("the help sheet lacks the action:\n%s", got)
	}
}
