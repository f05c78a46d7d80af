package cell

import (
	"fmt"

	"github.com/postern-dev/postern/control/api"
)

// Alarm returns a warning with a code on one line: its subject, how often it was raised and since
// when, and why.
func Alarm(a *api.Alarm, layout string) string {
	why, best := a.Message, 0
	for _, at := range a.Attrs {
		if i := map[string]int{"reason": 1, "cause": 2}[at.Key]; i > best {
			why, best = at.Value, i
		}
	}
	out := Printable(a.Code)
	if a.Subject != "" {
		out += " " + Printable(a.Subject)
	}
	if a.Count > 1 {
		out += fmt.Sprintf(", %d times since %s", a.Count, a.First.Format(layout))
	}
	return out + ": " + Printable(why)
}
