package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/tmux"
)

// recorded are the faults with recordings in the documentation, of five kinds.
var recorded = []string{"blocked-outbound", "no-way-in", "api-expired", "api-down", "loss"}

// Records the live screen: all is well, the fault is caused, is seen, and is fixed as the screen
// says. See `make pictures`.
func TestPicturesOfFaults(t *testing.T) {
	dir := os.Getenv("POSTERN_PICTURES")
	if dir == "" {
		t.Skip("set POSTERN_PICTURES to a directory")
	}
	const width, height = 110, 36
	for _, name := range recorded {
		t.Run(name, func(t *testing.T) {
			s, ok := FindScenario(name)
			if !ok {
				t.Fatal("no such scenario")
			}
			w := watchLab(t, Options{Version: "1.0.0", Scenario: s, StepLimit: patience})
			w.open(t, width, height)
			w.await(t, "● connected")
			var frames []tmux.Frame
			take := func(lasts time.Duration, format string, args ...any) {
				t.Helper()
				screen, err := w.screen.Styled(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				frames = append(frames, tmux.Frame{Caption: fmt.Sprintf(format, args...), Screen: screen, For: lasts})
			}
			after(t, 3*time.Second)
			take(3*time.Second, "all is well")
			fault, err := w.harm(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			after(t, 2*time.Second)
			take(3*time.Second, "%s", fault)
			if err := w.screen.Press(t.Context(), "r"); err != nil { // as an operator does who was told of a fault
				t.Fatal(err)
			}
			after(t, 8*time.Second)
			take(10*time.Second, "10 s later: %s", fault)
			var fixed []string
			if err := w.Play(t.Context(), Fix, Progress{End: func(s api.LabStep) { fixed = append(fixed, s.Detail) }}); err != nil {
				t.Fatal(err)
			}
			if err := w.screen.Press(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
			w.await(t, "● 1 connected")
			take(4*time.Second, "fixed: %s", fixed[0])
			svg := tmux.SVG(width, height, fmt.Sprintf("the live screen of %s: %s", w.site.Name, fault), frames)
			if err := os.WriteFile(filepath.Join(dir, name+".svg"), svg, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}
