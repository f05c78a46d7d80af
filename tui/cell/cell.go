// Package cell contains the elements of all terminal output: styled cells, columns that are dropped
// for lack of room, wrapped and cut lines, and units. Package tui builds texts from it, package
// screen the live screen.
//
// A state is a glyph, a word and a colour, so that it is readable without colours and by
// colour-blind users. The colours are the terminal's first eight, as its theme defines them. Widths
// are in cells, as the terminal counts them. Foreign text passes through [Printable] first.
//
// # Files
//
//   - cell.go: a text with a style; safe texts
//   - standing.go: whether a peer counts as connected, faulty, silent or failed
//   - names.go: the order of names: case and numbers
//   - check.go: lines of checks, and in which order they are shown
//   - finding.go: what is wrong with a peer, and what to fix first
//   - fix.go: the steps of a fix
//   - about.go: lines about a peer: path, limits, handshake, identity, listeners, flows
//   - peer.go: signs of states, verdicts, kinds of paths; ages
//   - candidate.go: the table of candidates
//   - way.go: the drawing of a path, and where it breaks
//   - past.go: strips of history
//   - alarm.go: a line for an alarm
//   - table.go: which columns are dropped when a table is too wide
//   - line.go: cutting, padding and wrapping lines
//   - unit.go: ages, round trips and sizes as text
//   - qr.go: QR codes
//   - ascii.go: signs for terminals without Unicode
//   - palette.go: colours of the styles, light and dark
//   - gradient.go: colours of charts
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
