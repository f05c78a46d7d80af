//go:build linux && e2e

package e2e

import (
	"math"
	"os"
	"os/exec"
	"testing"
	"time"
)

const (
	// programBytes limits the size of the program, and of an image of one architecture.
	programBytes = 40_000_000
	// startsWithin is how long a local command may take.
	startsWithin = 300 * time.Millisecond
)

// The program starts at once, and is small enough to be copied anywhere.
func TestTheProgramIsSmallAndStartsAtOnce(t *testing.T) {
	path := posternBinary(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// The time that a busy machine takes away does not count.
	took := time.Duration(math.MaxInt64)
	for range 3 {
		c := exec.CommandContext(t.Context(), path, "version")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		took = min(took, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	}
	t.Logf("%.1f MB, %v", float64(info.Size())/1e6, took)
	if info.Size() > programBytes || took > startsWithin {
		t.Errorf("it has %d bytes and takes %v, want at most %d and %v", info.Size(), took, programBytes, startsWithin)
	}
}
