package cell

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNamesAreSortedAsPeopleDo(t *testing.T) {
	want := []string{"", "Alpha", "alpha", "alpha-2", "site", "site-01", "site-1", "site-1b", "site-2", "site-10", "site-10-1", "site-99999999999999999999998", "site-99999999999999999999999", "zeta"}
	got := slices.Clone(want)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, CompareNames)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, a := range want {
		for _, b := range want {
			if (CompareNames(a, b) < 0) != (CompareNames(b, a) > 0) || (CompareNames(a, b) == 0) != (a == b) {
				t.Errorf("%q and %q have no order", a, b)
			}
		}
	}
}
