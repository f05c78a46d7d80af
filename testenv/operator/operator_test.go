package operator

import (
	"os/exec"
	"testing"
)

// A line that a command has removed is not on the screen.
func TestAnErasedLineIsNotSeen(t *testing.T) {
	o := Sit(t, "operator", exec.CommandContext(t.Context(), "sh", "-c", `printf 'first\nWaiting …\r\033[Kjoined cloud\n'; exec cat`))
	if got := o.Sees(`(?s)^(.*)joined cloud\n`); got != "first\n" {
		t.Errorf("before the last line the screen shows %q, want only the first", got)
	}
}
