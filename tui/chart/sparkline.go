package chart

import (
	"math"
	"strings"
	"time"

	"github.com/NimbleMarkets/ntcharts/canvas/runes"

	"github.com/postern-dev/postern/tui/cell"
)

// Sparkline draws the window that ends at now in one line of n cells, scaled to its highest column:
// it shows a trend, not an amount. Missing measurements are spaces, zero is a line along the
// bottom.
func Sparkline(points Points, now time.Time, window time.Duration, n int, g Graph, p cell.Paint) string {
	if n <= 0 {
		return ""
	}
	return Spark(Bins(points, now, window, n*g.PerCell()), n, g, p)
}

// Spark draws values, the newest at the right, in one line of n cells: two values a cell in
// braille, else one. NaN and infinities are spaces. Older values that do not fit are omitted. A
// paint with gradients shades them by value; otherwise they have its second colour.
func Spark(values []float64, n int, g Graph, p cell.Paint) string {
	if n <= 0 {
		return ""
	}
	room := make([]float64, n*g.PerCell())
	for i := range room {
		room[i] = math.NaN()
		if j := len(values) - len(room) + i; j >= 0 {
			if v, ok := measured(values[j]); ok {
				room[i] = v
			}
		}
	}
	top := largest([][]float64{room})
	if g == ASCII {
		return shaded(p, []rune(asciiSpark(room, top)), room, top)
	}
	if top == 0 {
		top = 1
	}
	chars := make([]rune, n)
	for i, c := range newField(g, [][]float64{room}, n, 1, top).rows()[0] {
		chars[i] = c.char
	}
	return shaded(p, chars, room, top)
}

// shaded styles the cells of a line, each with the same number of values, by runs of one shade.
func shaded(p cell.Paint, chars []rune, values []float64, top float64) string {
	gradients := p.Gradients()
	if len(gradients) == 0 {
		return p.Text(cell.Second, string(chars))
	}
	g, perCell := gradients[0], len(values)/len(chars)
	shadeOf := func(i int) int {
		most := 0.0
		for _, v := range values[i*perCell : (i+1)*perCell] {
			if !math.IsNaN(v) {
				most = max(most, v)
			}
		}
		if top <= 0 {
			return 0
		}
		return g.Shade(most / top)
	}
	var b strings.Builder
	for begin := 0; begin < len(chars); {
		end, shade := begin+1, shadeOf(begin)
		for end < len(chars) && shadeOf(end) == shade {
			end++
		}
		b.WriteString(g.Text(shade, string(chars[begin:end])))
		begin = end
	}
	return b.String()
}

// asciiSpark uses a character for each level, since ASCII has no others within one line.
func asciiSpark(values []float64, top float64) string {
	const levels = "_.:-=+*#"
	var b strings.Builder
	for _, v := range values {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case v == 0:
			b.WriteByte(levels[0])
		default:
			b.WriteByte(levels[max(1, int(math.Round(v/top*float64(len(levels)-1))))])
		}
	}
	return b.String()
}

// Key returns the sample of a layer's texture for a legend.
func (o Options) Key(layer int) string {
	layer = min(max(0, layer), Layers-1)
	char := blockTextures[layer]
	switch o.Graph {
	case Block:
	case ASCII:
		char = asciiTextures[layer]
	default:
		var dots runes.PatternDots
		// Dot numbers of a braille cell: 1, 2, 3, 7 on the left, 4, 5, 6, 8 on the right.
		for i, at := range [8][2]int{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {0, 3}, {1, 3}} {
			dots[i] = dotted(layer, at[0], at[1])
		}
		char = runes.BraillePatternFromPatternDots(dots)
	}
	return o.style(o.tintOf(layer), string(char))
}
