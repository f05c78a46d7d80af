// Package suggest finds the known word that an unknown one was probably meant to be: a field, a
// flag, a command, a peer.
package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
)

const (
	// maxSlips is how many typing mistakes a word may have: a wrong, missing or additional
	// character, or two swapped ones.
	maxSlips = 2
	// maxWord is longer than any known word.
	maxWord = 64
	// maxListed is how many words are listed if none is near.
	maxListed = 12
)

// Nearest returns the known word that got was probably meant to be, ignoring case; empty if none
// is near. If two are equally near, it returns the first by name.
func Nearest(got string, known []string) string {
	if len(got) > maxWord {
		return ""
	}
	best, least := "", maxSlips+1
	for _, word := range slices.Sorted(slices.Values(known)) {
		// Of a short word less than half may be wrong.
		if n := distance(strings.ToLower(got), strings.ToLower(word)); n < least && 2*n < max(len(got), len(word)) {
			best, least = word, n
		}
	}
	return best
}

// Hint asks whether the nearest word was meant. If none is near, it lists the known words, with
// before in front of the list.
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

// Peer returns the problem of an unknown peer name.
func Peer(got string, peers []string) api.Problem {
	hint := "there are none yet: `postern invite` makes a ticket for one"
	if len(peers) > 0 {
		hint = Hint(got, peers, "there are: ")
	}
	return api.Problem{Message: fmt.Sprintf("no peer is called %.*q", maxWord, got), Hint: hint, Usage: true}
}

// distance returns the Damerau–Levenshtein distance: the number of edits to turn one into the
// other (the restricted form: nothing is edited twice).
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
