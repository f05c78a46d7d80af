package cell

import (
	"time"

	"github.com/postern-dev/postern/control/api"
)

// State is a peer's state.
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

// Verdict is a verdict of a peer as it is shown: none is well that was found before the peer fell
// silent.
func Verdict(p *api.PeerStatus, v *api.Verdict) Cell {
	if v.Verdict == api.OK && p.Shown() == api.StateUnconfirmed {
		return Cell{"? was ok", Wary}
	}
	return Outcome(v.Verdict)
}

// Outcome is a verdict's glyph and word.
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

// Path is the kind of a path.
func Path(kind string) Cell {
	switch kind {
	case api.PathDirect:
		return Cell{Text: "direct"}
	case api.PathRelay:
		return Cell{"relay", Wary}
	}
	return Cell{"none", Quiet}
}

// Candidate is the glyph of a candidate's state.
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

// Since is how long ago a moment was; never when there is none.
func Since(t *time.Time, now time.Time) Cell {
	if t == nil || t.IsZero() {
		return Cell{"never", Quiet}
	}
	return Cell{Text: Age(now.Sub(*t)) + " ago"}
}

// Left is what remains of an identity.
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
