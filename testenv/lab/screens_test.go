package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/tmux"
)

// watched is a fault that is watched on the live screen of one of the gateways.
type watched struct {
	*Lab
	site   *Site
	screen *tmux.Terminal
}

// watchLab builds a fault's lab, and makes both gateways healthy. The screen is that of a gateway
// which finds something: of edge, if both do.
func watchLab(t *testing.T, o Options) watched {
	t.Helper()
	l, err := Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w := watched{Lab: l, site: l.Edge}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if f := o.Scenario.fault; len(f.edge) == 0 && len(f.cloud) > 0 {
		w.site = l.Cloud
	}
	if err := l.Play(t.Context(), Prepare, Progress{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// open opens the live screen.
func (w *watched) open(t *testing.T, width, height int) {
	t.Helper()
	program, err := filepath.Abs("../../bin/postern")
	if err != nil {
		t.Fatal(err)
	}
	w.screen, err = tmux.Open(t.Context(), tmux.Options{Width: width, Height: height, Args: []string{program, "--socket", w.site.Socket, "tui"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.screen.Close(); err != nil {
			t.Error(err)
		}
	})
}

// await waits until the screen shows a text.
func (w watched) await(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := w.screen.Await(ctx, func(s string) bool { return strings.Contains(s, text) }); err != nil {
		t.Fatal(err)
	}
}

// after waits for the given time.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// Writes what an operator sees who opens the screen 10 s after a fault, and the right answers to
// another file, for a person to judge. See `make screens`.
func TestScreensOfFaults(t *testing.T) {
	dir := os.Getenv("POSTERN_SCREENS")
	if dir == "" {
		t.Skip("set POSTERN_SCREENS to a directory")
	}
	const generated, width, height, late = 20, 120, 40, 10 * time.Second
	var all []Options
	for _, s := range faults() {
		all = append(all, Options{Version: "test", Scenario: s, StepLimit: patience})
	}
	for _, g := range sample(generated) {
		if g.end == nil || g.end.disk == "" { // it would need its own disk
			all = append(all, g.options())
		}
	}
	order := rand.New(rand.NewPCG(24, 120)).Perm(len(all)) // so that names give nothing away
	answers := make([]string, len(all))
	t.Run("all", func(t *testing.T) {
		turns := make(chan struct{}, 3)
		for i, o := range all {
			t.Run(o.Scenario.Name, func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				w := watchLab(t, o)
				done, err := w.harm(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				after(t, o.Scenario.fault.ripens)
				w.open(t, width, height)
				after(t, late)
				text, err := w.screen.Text(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("%02d", order[i]+1)
				if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				answers[order[i]] = name + " " + w.answer(done)
			})
		}
	})
	answers = slices.DeleteFunc(answers, func(a string) bool { return a == "" }) // those that -run excludes
	if err := os.WriteFile(strings.TrimRight(dir, "/")+"-answers.txt", []byte(strings.Join(answers, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// answer says what is wrong, whose screen it is, and the right codes there.
func (w watched) answer(done string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "screen of %s; %s: %s\n", w.site.Name, w.scenario.Name, done)
	if s := w.scenario.Summary; s != "" {
		fmt.Fprintf(&b, "   %s\n", s)
	}
	found := w.scenario.fault.edge
	if w.site == w.Cloud {
		found = w.scenario.fault.cloud
	}
	if len(found) == 0 {
		b.WriteString("   nothing is wrong\n")
	}
	for _, c := range found {
		fmt.Fprintf(&b, "   %s %s\n", c, catalogue.Title(c))
	}
	return b.String()
}
