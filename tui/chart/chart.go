// Package chart draws rates over time as text: an area for one peer, a stack of areas for many, and
// a sparkline for a table's cell. Its functions are pure: from samples, a size and the time of the
// right edge they return lines of exactly that size, whatever the samples are.
//
// # Pictures
//
// Time runs to the right, and the edge is now. A column is the mean of its samples, so that an area
// is the amount transferred. Columns begin at multiples of their duration, so that a picture does
// not flicker as time passes. A sample holds until the next one, but not longer than Hold. After
// that nothing is drawn, unlike a rate of zero, which is a line along the bottom. Layers of a stack
// differ by texture as well as by colour.
//
// # Use of ntcharts
//
// Package runes of ntcharts (v0.4.0) converts dots to braille and fractions to block elements. Its
// charts are not used: timeserieslinechart joins the points on both sides of a gap, puts labels at
// equal parts of the range (167, 333, 500 kB) instead of at round values, has no stacked areas,
// panics below some 10 × 3 cells and for a value of 1e300, styles every cell separately through
// lipgloss's global terminal profile, and takes 3.4 ms and 4.6 MB for 600 points on 120 × 30 cells.
package chart

import (
	"iter"
	"math"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// Graph selects the characters of a picture.
type Graph string

// Braille has eight dots a cell; Block eight levels, for fonts without braille; ASCII is for
// terminals that show nothing else. Other values count as Braille.
const (
	Braille Graph = "braille"
	Block   Graph = "block"
	ASCII   Graph = "ascii"
)

// Hold is how long a sample is valid: two and a half times the second between snapshots, so that
// one late snapshot leaves no gap.
const Hold = 2500 * time.Millisecond

// maxRate bounds what is drawn, in bytes per second. No link comes near it, and sums of such values
// stay finite.
const maxRate = 1e18

// longest is the longest window, so that sums of times do not overflow.
const longest = 10_000 * time.Hour

// Points are rates over time, the oldest first: Unix milliseconds and bytes per second. NaN and
// infinities are no measurement; a negative rate counts as zero.
type Points = iter.Seq2[int64, float64]

// Options configure how a picture is drawn.
type Options struct {
	Graph Graph
	// Color uses the terminal's first eight colours.
	Color bool
	// Light uses those of them that are visible on a light background.
	Light bool
	// Gradients shade the layers of these tints by the rate, if there are any.
	Gradients []cell.Gradient
	// Now is the time at the right edge.
	Now time.Time
	// Window is the time from the left edge to the right one; a minute by default.
	Window time.Duration
	// Title stands at the top of the axis, such as "rx".
	Title string
	// Tint is the colour of the first layer.
	Tint Tint
	// NoTime omits the time axis, if another picture below has it.
	NoTime bool
}

// Tint is one of the terminal's first eight colours. Red and green are kept for states.
type Tint int

// Tints in the order in which layers take them.
const (
	Cyan Tint = iota
	Magenta
	Yellow
	Blue
	White
	Faint
	tints
)

func (o Options) window() time.Duration {
	if o.Window <= 0 {
		return time.Minute
	}
	return min(o.Window, longest)
}

// quiet styles axes and labels.
func (o Options) quiet(s string) string { return o.style(Faint, s) }

// style applies a tint to text.
func (o Options) style(t Tint, s string) string {
	if !o.Color || s == "" {
		return s
	}
	st := ansi.NewStyle()
	switch {
	case int(t) < len(o.Gradients):
		return o.shaded(t, 1, s)
	case o.Light && t == Yellow:
		return st.ForegroundColor(ansi.Green).Styled(s)
	case o.Light && t == White:
		return st.ForegroundColor(ansi.Black).Styled(s)
	}
	switch t {
	case Cyan:
		st = st.ForegroundColor(ansi.Cyan)
	case Magenta:
		st = st.ForegroundColor(ansi.Magenta)
	case Yellow:
		st = st.ForegroundColor(ansi.Yellow)
	case Blue:
		st = st.ForegroundColor(ansi.Blue)
	case White:
		st = st.ForegroundColor(ansi.White)
	default:
		st = st.Faint()
	}
	return st.Styled(s)
}

// shaded styles text by its share of the scale.
func (o Options) shaded(t Tint, share float64, s string) string {
	if int(t) >= len(o.Gradients) || !o.Color || s == "" {
		return o.style(t, s)
	}
	g := o.Gradients[t]
	return g.Text(g.Shade(share), s)
}

// tintOf returns the colour of a layer.
func (o Options) tintOf(layer int) Tint { return (max(0, o.Tint) + Tint(layer)) % tints }

// measured returns a rate that can be drawn, and whether v is one.
func measured(v float64) (float64, bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return min(max(v, 0), maxRate), true
}
