package cell

import (
	"maps"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Style is how a text looks, apart from what it says.
type Style int

// Styles. Good, Bad and Wary are green, red and yellow, and never alone: a glyph and a word say the
// same.
const (
	Plain Style = iota
	Good
	Bad
	Wary
	Quiet
	Strong
	// Second is cyan: the second of two lines in a chart, and keys in hints.
	Second
	// Selected is the row or tab that keys act on, reversed. Colours within it stay.
	Selected
	// Signs is a text in which each glyph of a verdict or standing has its own colour.
	Signs
	// Inked is light on dark, whatever the theme: a QR code.
	Inked
)

// Paint styles texts for a background, or leaves them unchanged: the zero value, [Bare].
type Paint struct {
	*palette
	rich bool // its gradients are used
}

type palette struct {
	looks map[Style]ansi.Style // a missing style is plain
	// hues: texts without a style, such as the lines of charts, may have colours. light: the
	// background is light.
	hues, light bool
	gradients   []Gradient
}

// Paints. Dark and Light use the terminal's first eight colours, Light only those that are visible
// on white. Contrast has no hue, no gradient and nothing faint: only the terminal's own text and
// background, bold and reversed. In ColorBlind, good is blue, bad vermilion, and in between yellow,
// which colour-blind people can distinguish.
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

// Colors returns the default paint, with colours if wanted.
func Colors(wanted bool) Paint {
	if wanted {
		return Dark
	}
	return Bare
}

// With returns a paint with some styles replaced, for a light background or a dark one.
func (p Paint) With(light bool, looks map[Style]ansi.Style) Paint {
	all := maps.Clone(p.looks)
	maps.Copy(all, looks)
	return Paint{&palette{all, p.hues, light, p.gradients}, p.rich}
}

// Hues reports whether text without a style may have colours, and whether those are for a light
// background.
func (p Paint) Hues() (coloured, light bool) { return p != Bare && p.hues, p != Bare && p.light }

func colored(c ansi.Color) ansi.Style { return ansi.NewStyle().ForegroundColor(c) }

// Text returns s in a style.
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

// signs colours each glyph of a verdict or standing.
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

// Cell returns the cell's text in its style.
func (p Paint) Cell(c Cell) string { return p.Text(c.Style, c.Text) }
