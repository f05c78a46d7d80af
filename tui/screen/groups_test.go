package screen

import (
	"fmt"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"
)

// labelled is busy with peers of two regions, and one without a region.
func labelled() *fake {
	f := busy()
	for i, region := range []string{"eu", "us", "", "eu"} {
		if region != "" {
			f.status.Peers[i].Labels = map[string]string{"region": region, "tier": "1"}
		}
	}
	return f
}

func TestPicturesOfGroups(t *testing.T) {
	pictures(t, "grouped", labelled, strings.Split(":/g/r/o/u/p/ /l/a/b/e/l/ /r/e/g/i/o/n/enter/j", "/"))
}

func TestGroups(t *testing.T) {
	s := play(t, labelled(), 120, 40, false)
	s.press("b").want("1  state", "2  path", "3  none", "4  label region", "5  label tier")
	s.press("4").want("grouped by label region", "▸ ▼ region=eu · 2 peers: ", "▼ region=us · 1 peer: ", "▼ no region · 1 peer: ", "by region and trouble")

	// The most urgent come first in each group and among the groups, whatever is selected.
	var titles []string
	for _, line := range strings.Split(s.View(), "\n") {
		if _, after, ok := strings.Cut(line, "▼ "); ok {
			titles = append(titles, strings.Fields(after)[0])
		}
	}
	if got, want := strings.Join(titles, " "), "region=eu no region=us"; got != want {
		t.Errorf("groups are in the order %q, want %q:\n%s", got, want, s.View())
	}

	// The title represents the first of its peers, folds, and stays while others come and go.
	s.want("─ site-with-a-name-of-forty-characters-xyz ✗ failed")
	s.press("enter").want("▸ ▶ region=eu · 2 peers").wantNot("  site-with-a-na…  ✗ failed")
	s.press(":").typed("filter failed").press("enter").want("▸ ▶ region=eu · 1 peer: ✗ 1 failed").wantNot("region=us")
	s.press("esc").press(" ").want("▸ ▼ region=eu", "region=us")
	s.press("j").press("enter").want("[2 Peer]", "site-with-a-name-of-forty-characters-xyz  ✗ failed").press("esc")

	s.press(":").typed("group state").press("enter").want("▼ ✗ failed · 1 peer", "▼ ● connected · 1 peer")
	s.press(":").typed("group path").press("enter").want("▼ path none · 2 peers", "▼ path direct · 1 peer")
	s.press(":").typed("group label moon").press("enter").want("▼ no moon · 4 peers")
	s.press(":").typed("group label no name").press("enter").want("group by state, path, label NAME, or none", "▼ no moon")
	s.press(":").typed("group none").press("enter").wantNot("▼ no")
	s.press("3").press("b").want("nothing to group here")
}

// There are nine digits. Further labels have to be typed.
func TestManyLabelsCanAllBeGroupedBy(t *testing.T) {
	f := labelled()
	for i := range 9 {
		f.status.Peers[0].Labels[fmt.Sprint("x", i)] = "1"
	}
	s := play(t, f, 120, 40, false)
	s.press("b").want("8  label x2", "9  another label, of 6 more")
	s.press("9").want(":group label ")
	s.typed("x8").press("enter").want("grouped by label x8")
}

// A frame of many peers costs as much as one of few: the list is built once per snapshot.
func TestAPictureOfManyPeersCostsWhatOneOfFewDoes(t *testing.T) {
	allocations := func(peers int) float64 {
		f := many(peers)
		for i := range f.status.Peers {
			f.status.Peers[i].Labels = map[string]string{"region": fmt.Sprint(i % 7)}
		}
		s := play(t, f, 200, 60, true)
		s.press(":").typed("group label region").press("enter")
		return testing.AllocsPerRun(5, func() {
			s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("j")})
			s.View()
		})
	}
	if few, lots := allocations(70), allocations(1000); lots > 1.5*few {
		t.Errorf("a picture of 1,000 peers takes %.0f allocations, one of 70 %.0f", lots, few)
	}
}
