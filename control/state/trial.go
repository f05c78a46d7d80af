package state

import "time"

// Trial is a configuration that is in force until a time, unless it is confirmed by then.
type Trial struct {
	// Kept is the text of the last confirmed one, which is in force from then on.
	Kept string `json:"kept,omitempty"`
	// Tried is the fingerprint of the text on trial, and Until its deadline.
	Tried string    `json:"tried,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

func (t Trial) clone() Trial { return t }

// A confirmed trial is not restored with an earlier generation.
var trialFormat = format[Trial]{
	name: "trial", major: 1,
	encode: func(t Trial) (any, error) { return t, nil },
	decode: decodeJSON[Trial], clone: Trial.clone, previousIsUnsafe: true,
	loss: "the configuration before one that nobody has confirmed; the file counts",
}

// Trial returns the current trial of a configuration; the zero value means none.
func (s *Store) Trial() Trial { return s.trial.load() }

// SetTrial replaces it.
func (s *Store) SetTrial(t Trial) error {
	return s.trial.update(func(old *Trial) error { *old = t; return nil })
}
