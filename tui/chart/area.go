package chart

import (
	"math"
	"strings"

	"github.com/NimbleMarkets/ntcharts/canvas/runes"
)

// Layers is how many layers of a stack can be distinguished.
const Layers = 6

// Textures of full cells, by layer. Those of braille are made of dots; see dotted.
var (
	blockTextures = [Layers]rune{'█', '▒', '▚', '░', '▌', '▖'}
	asciiTextures = [Layers]rune{'#', '+', 'o', '-', ':', '.'}
)

// dotted reports whether a layer's texture has a dot at x, y of the braille grid.
func dotted(layer, x, y int) bool {
	switch layer {
	case 0:
		return true
	case 1:
		return (x+y)%2 == 0
	case 2:
		return y%2 == 0
	case 3:
		return x%2 == 0
	case 4:
		return x%2 == 0 && y%2 == 0
	}
	return x%2 == 0 && y%4 == 0
}

// resolution returns how many columns and levels a cell has.
func (g Graph) resolution() (columns, levels int) {
	switch g {
	case Block:
		return 1, 8
	case ASCII:
		return 1, 1
	}
	return 2, 4
}

// PerCell returns how many values a cell of a sparkline shows.
func (g Graph) PerCell() int {
	columns, _ := g.resolution()
	return columns
}

// glyph is a cell of a picture: a character and its layer, -1 for none.
type glyph struct {
	char  rune
	layer int
}

// field is the picture without its axes, as rows of cells from the top.
type field struct {
	graph         Graph
	width, height int // in cells
	// tops are the levels, counted from the bottom, at which each layer of a column ends:
	// tops[column][layer]. A column without measurements has none.
	tops [][]int
	// low marks columns that do not reach the first level.
	low []bool
}

// newField stacks the columns of every layer on a scale that ends at top. All layers have width ×
// columns-per-cell values.
func newField(g Graph, layers [][]float64, width, height int, top float64) *field {
	columns, levels := g.resolution()
	f := &field{graph: g, width: width, height: height, tops: make([][]int, width*columns), low: make([]bool, width*columns)}
	full := height * levels
	for x := range f.tops {
		sum, any := 0.0, false
		tops := make([]int, len(layers))
		for i, layer := range layers {
			if v := layer[x]; !math.IsNaN(v) {
				sum, any = sum+v, true
			}
			tops[i] = min(int(math.Round(sum/top*float64(full))), full)
		}
		if !any {
			continue
		}
		// Zero is a line along the bottom, unlike a gap.
		f.low[x] = tops[len(tops)-1] == 0
		for i := range tops {
			tops[i] = max(tops[i], 1)
		}
		f.tops[x] = tops
	}
	return f
}

// layerAt returns the layer at a level of a column, -1 above the stack.
func (f *field) layerAt(x, level int) int {
	for i, top := range f.tops[x] {
		if level < top {
			return i
		}
	}
	return -1
}

// rows draws the field.
func (f *field) rows() [][]glyph {
	switch f.graph {
	case Block:
		return f.cells(f.blockCell)
	case ASCII:
		return f.cells(f.asciiCell)
	}
	return f.braille()
}

func (f *field) cells(draw func(x, bottom int) glyph) [][]glyph {
	_, levels := f.graph.resolution()
	out := make([][]glyph, f.height)
	for row := range out {
		out[row] = make([]glyph, f.width)
		for x := range out[row] {
			out[row][x] = draw(x, (f.height-1-row)*levels)
		}
	}
	return out
}

// blockCell draws the eight levels above bottom: the highest layer of a stack by its level, those
// below by texture.
func (f *field) blockCell(x, bottom int) glyph {
	var counts [Layers]int
	filled := 0
	for level := bottom; level < bottom+8; level++ {
		if layer := f.layerAt(x, level); layer >= 0 {
			counts[layer]++
			filled++
		}
	}
	if filled == 0 {
		return glyph{' ', -1}
	}
	layer := most(&counts)
	if filled < 8 {
		return glyph{runes.LowerBlockElementFromFloat64(float64(filled) / 8), layer}
	}
	return glyph{blockTextures[layer], layer}
}

func (f *field) asciiCell(x, bottom int) glyph {
	layer := f.layerAt(x, bottom)
	switch {
	case layer < 0:
		return glyph{' ', -1}
	case f.low[x]:
		return glyph{'_', layer}
	}
	return glyph{asciiTextures[layer], layer}
}

// braille draws textures by dots, and the upper edge of each layer solid.
func (f *field) braille() [][]glyph {
	const columns, levels = 2, 4
	height := f.height * levels
	grid := runes.NewPatternDotsGrid(f.width*columns, height)
	counts := make([][Layers]int, f.width*f.height)
	for x, tops := range f.tops {
		bottom := 0
		for layer, top := range tops {
			for level := bottom; level < top; level++ {
				y := height - 1 - level
				if level == top-1 || dotted(layer, x, y) {
					grid.Set(x, y)
				}
				counts[y/levels*f.width+x/columns][layer]++
			}
			bottom = max(bottom, top)
		}
	}
	out := make([][]glyph, f.height)
	for row, chars := range grid.BraillePatterns() {
		out[row] = make([]glyph, f.width)
		for x, c := range chars {
			out[row][x] = glyph{c, most(&counts[row*f.width+x])}
			if c == runes.BrailleBlockOffset { // Some fonts show empty braille as circles.
				out[row][x] = glyph{' ', -1}
			}
		}
	}
	return out
}

// most returns the layer that has most of a cell, the lower of two equal ones.
func most(counts *[Layers]int) int {
	best := 0
	for i, n := range counts {
		if n > counts[best] {
			best = i
		}
	}
	return best
}

// dress joins a row's cells, with one change of colour per run. share is the row's position on the
// scale.
func (o Options) dress(row []glyph, share float64) string {
	var out, run strings.Builder
	layer := -1
	flush := func() {
		if layer < 0 {
			out.WriteString(run.String())
		} else {
			out.WriteString(o.shaded(o.tintOf(layer), share, run.String()))
		}
		run.Reset()
	}
	for _, g := range row {
		if g.layer != layer {
			flush()
			layer = g.layer
		}
		run.WriteRune(g.char)
	}
	flush()
	return out.String()
}
