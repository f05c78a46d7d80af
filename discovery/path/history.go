package path

import (
	"fmt"
	"slices"
	"time"
)

// maxNotes bounds the history.
const maxNotes = 32

// history keeps the latest notes, and those that Poll has not returned yet.
type history struct {
	notes []Note
	fresh []Note
}

func (m *Machine) note(event, reason string) {
	n := Note{At: m.now, Event: event, Reason: reason}
	h := &m.history
	if len(h.notes) == maxNotes {
		h.notes = slices.Delete(h.notes, 0, 1)
	}
	h.notes = append(h.notes, n)
	if len(h.fresh) < maxNotes {
		h.fresh = append(h.fresh, n)
	}
}

// take returns the new notes.
func (h *history) take() []Note {
	out := h.fresh
	h.fresh = nil
	return out
}

// roughly formats a duration for people: "12 ms", "6.5 s", "3 min".
func roughly(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	default:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	}
}
