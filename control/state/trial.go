package state

import "time"

// Trial is a configuration that counts until a time, unless it is confirmed by then.
type Trial struct {
	// Kept is the text of the one that was confirmed last, which counts from then on.
	Kept string `json:"kept,omitempty"`
	// Tried is the fingerprint of the text that is tried, and Until its time.
	Tried string    `json:"tried,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

func (t Trial) clone() Trial { return t }

// A trial that was confirmed does not come back with an earlier generation.
var trialFormat = format[Trial]{
	name: "trial", major: 1,
	encode: func(t Trial) (any, error) { return t, nil },
	decode: decodeJSON[Trial], clone: Trial.clone, previousIsUnsafe: true,
	loss: "the configuration before one that nobody has confirmed; the file counts",
}

// Trial is that of the configuration; its zero value is none.
func (s *Store) Trial() Trial { return s.trial.load() }

// SetTrial replaces it.
func (s *Store) SetTrial(t Trial) error {
	return s.trial.update(func(old *Trial) error { *old = t; return nil })
}
