package state

import (
	"encoding/json"
	"time"
)

// Trial is a configuration that is in force until a time, unless it is confirmed by then.
type Trial struct {
	// Kept is the text of the last confirmed one, which is in force from then on.
	Kept string `json:"kept,omitempty"`
	// Tried is the fingerprint of the text on trial, and Until its deadline.
	Tried string    `json:"tried,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Within is how long before Until it began.
	Within time.Duration `json:"within,omitempty"`
}

func decodeTrial(raw json.RawMessage) (Trial, error) {
	t, err := decodeJSON[Trial](raw)
	if !t.Until.IsZero() {
		t.Until = deadline(t.Until, t.Within)
	}
	return t, err
}

// deadline is a stored deadline for this run of the process: a clock that was set back since puts it
// off by no more than its whole length, and one that is set later does not move it. An older version
// stored no length.
func deadline(until time.Time, length time.Duration) time.Time {
	now := time.Now()
	left := until.Sub(now)
	if length > 0 {
		left = min(left, length)
	}
	return now.Add(left)
}

func (t Trial) clone() Trial { return t }

// A confirmed trial is not restored with an earlier generation.
var trialFormat = format[Trial]{
	name: "trial", major: 1,
	encode: func(t Trial) (any, error) { return t, nil },
	decode: decodeTrial, clone: Trial.clone, previousIsUnsafe: true,
	loss: "the configuration before one that nobody has confirmed; the file counts",
}

// Trial returns the current trial of a configuration; the zero value means none.
func (s *Store) Trial() Trial { return s.trial.load() }

// SetTrial replaces it.
func (s *Store) SetTrial(t Trial) error {
	if !t.Until.IsZero() {
		t.Until = deadline(t.Until, t.Within)
	}
	return s.trial.update(func(old *Trial) error { *old = t; return nil })
}
