// Package cell holds what every text on the terminal is made of: styled cells, columns
// that are dropped when there is no room, wrapped and cut lines, and units. Package tui
// builds texts that end from it, package screen the screen that stays.
//
// A state is a glyph, a word and a colour, so that it survives without colours and for
// eyes that see them differently. The colours are the terminal's own first eight: the
// user's theme decides what they look like. Widths are in cells, as the terminal counts
// them; text that others chose passes through [Printable] first.
package cell

import (
	"fmt"
	"maps"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Cell is a text and how it looks.
type Cell struct {
	Text  string
	Style Style
}

// Sign and Word are the two parts of a state: the glyph that it begins with, and what that is called.
func (c Cell) Sign() string { s, _, _ := strings.Cut(c.Text, " "); return s }

// Word is the part without the glyph.
func (c Cell) Word() string { _, s, _ := strings.Cut(c.Text, " "); return s }

// Counted says how many are in a state.
func (c Cell) Counted(n int) Cell {
	return Cell{fmt.Sprintf("%s %d %s", c.Sign(), n, c.Word()), c.Style}
}

// Dash stands for what is not there.
func Dash(s string) Cell {
	if s == "" {
		return Cell{"-", Quiet}
	}
	return Cell{Text: s}
}

// Style is how a text looks, apart from what it says.
type Style int

// Styles. Good, Bad and Wary are green, red and yellow, and never alone: a glyph and a
// word say the same.
const (
	Plain Style = iota
	Good
	Bad
	Wary
	Quiet
	Strong
	// Second is cyan: the other one of two lines in a chart, and keys in hints.
	Second
	// Selected is the row or tab that keys act on: reversed. What has a colour in it keeps it.
	Selected
	// Signs is a text in which each glyph of a verdict or of a standing has its own colour.
	Signs
	// Inked is light on dark, whatever the theme: a QR code.
	Inked
)

// Paint dresses texts for a background, or leaves them as they are: the zero one, [Bare].
type Paint struct {
	*palette
	rich bool // has its gradients
}

type palette struct {
	looks map[Style]ansi.Style // a style that is not there is plain
	// hues: what has no style of its own, as the lines of charts, may have colours. light: the background is.
	hues, light bool
	gradients   []Gradient
}

// Paints. Dark and Light use the terminal's own first eight colours, Light none that vanish on white.
// Contrast has no hue, no gradient and nothing faint: the terminal's own text and background, bold and reversed. In
// ColorBlind what is well is blue, what is not vermilion, and what is between yellow, which all eyes tell
// apart.
var (
	Bare = Paint{}
	Dark = Paint{palette: &palette{hues: true, gradients: onDark, looks: map[Style]ansi.Style{
		Good: colored(ansi.Green), Bad: colored(ansi.Red), Wary: colored(ansi.Yellow), Second: colored(ansi.Cyan),
		Quiet: ansi.NewStyle().Faint(), Strong: ansi.NewStyle().Bold(), Selected: ansi.NewStyle().Reverse(true),
	}}}
	Light    = Dark.With(true, map[Style]ansi.Style{Wary: colored(ansi.Magenta), Second: colored(ansi.Blue)}).Shaded(onLight)
	Contrast = Paint{palette: &palette{looks: map[Style]ansi.Style{
		Bad: ansi.NewStyle().Bold().Reverse(true), Wary: ansi.NewStyle().Bold(), Second: ansi.NewStyle().Bold(),
		Strong: ansi.NewStyle().Bold(), Selected: ansi.NewStyle().Reverse(true),
	}}}
	ColorBlind = Dark.With(false, map[Style]ansi.Style{
		Good: colored(ansi.IndexedColor(74)), Bad: colored(ansi.IndexedColor(202)).Bold(), Wary: colored(ansi.IndexedColor(227)), Second: colored(ansi.White),
	}).Shaded(forAllEyes)
)

// Colors is what a text has where nobody chose, if it is to have colours.
func Colors(wanted bool) Paint {
	if wanted {
		return Dark
	}
	return Bare
}

// With is a paint with other looks in the place of some, for a light background or a dark one.
func (p Paint) With(light bool, looks map[Style]ansi.Style) Paint {
	all := maps.Clone(p.looks)
	maps.Copy(all, looks)
	return Paint{&palette{all, p.hues, light, p.gradients}, p.rich}
}

// Hues reports whether a text may have colours that are no style's, and whether they are for a light
// background.
func (p Paint) Hues() (coloured, light bool) { return p != Bare && p.hues, p != Bare && p.light }

func colored(c ansi.Color) ansi.Style { return ansi.NewStyle().ForegroundColor(c) }

// Text is s in a style.
func (p Paint) Text(st Style, s string) string {
	if p == Bare || s == "" {
		return s
	}
	look, dressed := p.looks[st]
	switch {
	case st == Signs:
		return p.signs(s)
	case st == Inked:
		return ansi.NewStyle().ForegroundColor(ansi.White).BackgroundColor(ansi.Black).Styled(s)
	case !dressed:
		return s
	case st == Selected:
		return look.Styled(strings.ReplaceAll(s, ansi.ResetStyle, ansi.ResetStyle+look.String()))
	}
	return look.Styled(s)
}

// signs gives each glyph of a verdict or of a standing its colour.
func (p Paint) signs(s string) string {
	var b strings.Builder
	begin, style := 0, Plain
	for i, r := range s {
		if now := glyphStyles[r]; now != style {
			b.WriteString(p.Text(style, s[begin:i]))
			begin, style = i, now
		}
	}
	b.WriteString(p.Text(style, s[begin:]))
	return b.String()
}

// Cell is the cell's text in its style.
func (p Paint) Cell(c Cell) string { return p.Text(c.Style, c.Text) }

// Printable makes a text that may hold others' safe to show on one line; see
// [foreign.Line].
func Printable(s string) string { return foreign.Line(s) }

// Joined is a list on one line.
func Joined(items []string, separator string) string {
	return Printable(strings.Join(items, separator))
}
