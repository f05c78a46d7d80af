package cell

import (
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

// State returns a peer's state.
func State(s api.PeerState) Cell {
	switch s {
	case api.StateConnected:
		return Cell{"● connected", Good}
	case api.StateUnconfirmed:
		return Cell{"◌ unconfirmed", Wary}
	case api.StateConnecting:
		return Cell{"◌ connecting", Wary}
	case api.StatePending:
		return Cell{"◇ pending", Wary}
	case api.StateFailed:
		return Cell{"✗ failed", Bad}
	}
	return Cell{"? " + Printable(string(s)), Quiet}
}

// Verdict returns the current verdict on an endpoint of a peer, see [way.See].
func Verdict(p *api.PeerStatus, direction, target string) Cell {
	s := way.See(p, direction, target)
	if was := was(s.Before); was != "" {
		return Cell{"? " + was, Quiet}
	}
	return Outcome(s.Now)
}

// was says what something was before the path broke; "" if unknown.
func was(before api.Outcome) string {
	switch before {
	case "":
		return ""
	case api.OK:
		return "was ok"
	}
	return "was bad"
}

// Outcome returns a verdict's glyph and word.
func Outcome(o api.Outcome) Cell {
	switch o {
	case api.OK:
		return Cell{"✓ ok", Good}
	case api.Warning:
		return Cell{"! warning", Wary}
	case api.Error:
		return Cell{"✗ error", Bad}
	case api.Off:
		return Cell{"- off", Quiet}
	}
	return Cell{"? unknown", Quiet}
}

// Path returns the kind of a path.
func Path(kind string) Cell {
	switch kind {
	case api.PathDirect:
		return Cell{Text: "direct"}
	case api.PathRelay:
		return Cell{"relay", Wary}
	}
	return Cell{"none", Quiet}
}

// Candidate returns the glyph of a candidate's state.
func Candidate(state string) Cell {
	switch state {
	case "selected":
		return Cell{"●", Good}
	case "valid", "standby":
		return Cell{"○", Good}
	case "probing":
		return Cell{"◌", Wary}
	case "suspect":
		return Cell{"!", Wary}
	case "failed":
		return Cell{"✗", Bad}
	}
	return Cell{"–", Quiet}
}

// Since returns how long ago a moment was; "never" for none.
func Since(t *time.Time, now time.Time) Cell {
	if t == nil || t.IsZero() {
		return Cell{"never", Quiet}
	}
	return Cell{Text: Age(now.Sub(*t)) + " ago"}
}

// Left returns the remaining time of an identity.
func Left(id *api.Identity, now time.Time) Cell {
	if id == nil {
		return Cell{"-", Quiet}
	}
	left := id.NotAfter.Sub(now)
	if left <= 0 {
		return Cell{"✗ expired", Bad}
	}
	return Cell{Text: Age(left) + " left"}
}
