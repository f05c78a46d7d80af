// Package cell contains the elements of all terminal output: styled cells, columns that are dropped
// for lack of room, wrapped and cut lines, and units. Package tui builds texts from it, package
// screen the live screen.
//
// A state is a glyph, a word and a colour, so that it is readable without colours and by
// colour-blind users. The colours are the terminal's first eight, as its theme defines them. Widths
// are in cells, as the terminal counts them. Foreign text passes through [Printable] first.
package cell

import (
	"fmt"
	"strings"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Cell is a text and its style.
type Cell struct {
	Text  string
	Style Style
}

// Sign returns the glyph at the beginning of a state.
func (c Cell) Sign() string { s, _, _ := strings.Cut(c.Text, " "); return s }

// Word returns the part after the glyph.
func (c Cell) Word() string { _, s, _ := strings.Cut(c.Text, " "); return s }

// Counted returns a state with a number.
func (c Cell) Counted(n int) Cell {
	return Cell{fmt.Sprintf("%s %d %s", c.Sign(), n, c.Word()), c.Style}
}

// Dash returns a dash for an empty text.
func Dash(s string) Cell {
	if s == "" {
		return Cell{"-", Quiet}
	}
	return Cell{Text: s}
}

// Printable makes a text with possibly foreign parts safe to show on one line; see [foreign.Line].
func Printable(s string) string { return foreign.Line(s) }

// Joined returns a list on one line.
func Joined(items []string, separator string) string {
	return Printable(strings.Join(items, separator))
}
