package screen

import "strings"

// filter selects rows that contain a text, without regard to case. With a leading `!` it selects
// the others; an empty one selects all.
type filter struct{ text string }

// match reports whether a row with these texts is selected.
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
