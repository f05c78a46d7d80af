// Package suggest finds what was meant by a word that is unknown: a field, a flag, a
// command, a peer.
package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
)

const (
	// maxSlips is how many characters may be wrong, missing, too many or, two at a time,
	// exchanged: more make another word.
	maxSlips = 2
	// maxWord is longer than any word that is known.
	maxWord = 64
	// maxListed is how many names are listed where none is near.
	maxListed = 12
)

// Nearest is the known word that got was probably meant to be, whatever the case of either;
// empty when none is near. Of two that are equally near it is the first by name.
func Nearest(got string, known []string) string {
	if len(got) > maxWord {
		return ""
	}
	best, least := "", maxSlips+1
	for _, word := range slices.Sorted(slices.Values(known)) {
		// Half of a short word may not be wrong.
		if n := distance(strings.ToLower(got), strings.ToLower(word)); n < least && 2*n < max(len(got), len(word)) {
			best, least = word, n
		}
	}
	return best
}

// Hint asks whether the nearest word was meant, or lists all, with what stands before them.
func Hint(got string, known []string, before string) string {
	if word := Nearest(got, known); word != "" {
		return "did you mean " + word + "?"
	}
	names := slices.Sorted(slices.Values(known))
	if n := len(names) - maxListed; n > 0 {
		names = append(names[:maxListed], fmt.Sprintf("%d more", n))
	}
	return before + strings.Join(names, ", ")
}

// Peer is the problem with a name that no peer has.
func Peer(got string, peers []string) api.Problem {
	hint := "there are none yet: `postern invite` makes a ticket for one"
	if len(peers) > 0 {
		hint = Hint(got, peers, "there are: ")
	}
	return api.Problem{Message: fmt.Sprintf("no peer is called %.*q", maxWord, got), Hint: hint, Usage: true}
}

// distance is that of Damerau and Levenshtein: what has to be typed otherwise to make one
// of the other (its restricted form: nothing is changed twice).
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
