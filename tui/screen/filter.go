package screen

import "strings"

// filter picks rows by a text, without regard to case. With a leading `!` it picks those
// that do not have it; an empty one picks all.
type filter struct{ text string }

// match reports whether a row with these texts is picked.
func (f filter) match(texts ...string) bool {
	want, inverted := strings.CutPrefix(strings.ToLower(f.text), "!")
	if want == "" {
		return true
	}
	for _, t := range texts {
		if strings.Contains(strings.ToLower(t), want) {
			return !inverted
		}
	}
	return inverted
}
