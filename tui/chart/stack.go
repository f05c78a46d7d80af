package chart

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// Entry is an entry of a legend.
type Entry struct {
	Name string
	// Value follows the name, such as a rate.
	Value string
}

// Rank chooses what a stack shows: the indexes of the n largest weights in descending order, and
// then those to be drawn together as one. Equal weights keep their order, so that a picture of idle
// peers does not change.
func Rank(weights []float64, n int) (shown, rest []int) {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		va, _ := measured(weights[a])
		vb, _ := measured(weights[b])
		return cmp.Compare(vb, va)
	})
	n = max(0, n)
	if len(order) <= n {
		return order, nil
	}
	return order[:max(0, n-1)], order[max(0, n-1):]
}

// Legend names the layers in exactly height lines of exactly width cells. Entries that do not fit
// are counted at the end.
func Legend(entries []Entry, width, height int, o Options) []string {
	if width <= 0 || height <= 0 {
		return nil
	}
	const gap = "   "
	lines := make([]string, height)
	at, used := 0, 0
	for i, e := range entries {
		more := "" // what must still fit after this entry
		if n := len(entries) - i - 1; n > 0 {
			more = gap + "+" + strconv.Itoa(n)
		}
		text := e.text()
		if used > 0 && used+len(gap)+2+ansi.StringWidth(text) > width && at < height-1 {
			at, used = at+1, 0
		}
		room := width - used - 2
		if used > 0 {
			room -= len(gap)
		}
		if at == height-1 {
			room -= len(more)
		}
		if used > 0 && ansi.StringWidth(text) > room {
			lines[at] += o.quiet(gap + "+" + strconv.Itoa(len(entries)-i))
			break
		}
		if used > 0 {
			lines[at] += gap
		}
		lines[at] += o.Key(i) + " " + ansi.Truncate(text, max(1, room), "…")
		used = ansi.StringWidth(lines[at])
	}
	for i := range lines {
		lines[i] = cell.Pad(lines[i], width)
	}
	return lines
}

func (e Entry) text() string {
	if e.Value == "" {
		return cell.Printable(e.Name)
	}
	return cell.Printable(e.Name) + " " + cell.Printable(e.Value)
}
