package screen

import (
	"fmt"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tui/cell"
)

// listing holds the rows of a view as last filtered and sorted. With thousands of rows that takes
// longer than the rest of a frame, so it is only done when something changes that they depend on.
type listing[T any] struct {
	of   listOf
	rows []T
	ids  []string // of the lines, by which they are selected
}

// listOf is what a list depends on.
type listOf struct {
	// source points to the first element of the snapshot or report that the rows come from. Those
	// are replaced and never changed.
	source     any
	filter     filter
	column     string
	descending bool
	more       any // specific to this view
}

// stale reports whether the list must be rebuilt, and empties it then.
func (l *listing[T]) stale(of listOf) bool {
	if l.of == of {
		return false
	}
	*l = listing[T]{of: of}
	return true
}

// firstOf returns a pointer to the first of a list; nil if it is empty.
func firstOf[S any](list []S) *S {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// someOf counts the shown rows, of all.
func someOf(shown, all int, one, many string) string {
	count := cell.Count(all, one, many)
	if shown != all {
		count = fmt.Sprintf("%d of %s", shown, count)
	}
	return count
}

// marked puts a row after the sign of the selection.
func marked(row string, selected bool, width int, p cell.Paint) string {
	if !selected {
		return cell.Fit("  "+row, width)
	}
	return p.Text(cell.Selected, cell.Pad("▸ "+row, width))
}

// unmarked is the width of a row after the sign.
func unmarked(width int) int { return max(1, width-2) }

// wheel is how many rows the mouse wheel moves.
const wheel = 3

// mouse moves the selection by the wheel, or to the clicked row. top is the line of the view at
// which the list begins. It reports whether it handled the event.
func (c *cursor) mouse(msg tea.MouseMsg, ids []string, top int) bool {
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		c.to(c.at-wheel, ids)
	case msg.Button == tea.MouseButtonWheelDown:
		c.to(c.at+wheel, ids)
	case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress:
		at := c.top + msg.Y - top
		if msg.Y < top || msg.Y >= top+c.page || at >= len(ids) {
			return false
		}
		c.to(at, ids)
	default:
		return false
	}
	c.chosen = true
	return true
}

// scroller shows a part of a text that is longer than the screen.
type scroller struct{ top, page int }

// draw returns exactly height lines from the top.
func (s *scroller) draw(lines []string, width, height int) string {
	s.page = height
	s.top = max(0, min(s.top, len(lines)-height))
	return page(lines[s.top:], width, height)
}

// update scrolls and reports whether it handled the message.
func (s *scroller) update(msg tea.Msg) bool {
	switch msg := msg.(type) {
	case tea.KeyMsg:
		step, ok := stepOf(msg, s.page)
		s.top = max(0, min(s.top+step, far)) // draw limits it to the end
		return ok
	case tea.MouseMsg:
		switch msg.Button {
		case tea.MouseButtonWheelUp:
			s.top = max(0, s.top-wheel)
			return true
		case tea.MouseButtonWheelDown:
			s.top += wheel
			return true
		}
	}
	return false
}
