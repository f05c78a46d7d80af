package chart

import (
	"math"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// Sizes below which an axis is omitted, so that some of the picture remains.
const (
	minGutterWidth = 24 // cells: a gutter is at most 14 wide
	minTimeHeight  = 4  // lines
	maxTitle       = 4  // cells
)

// leastSteps is the minimum number of steps of a scale, even without room for their labels: with
// fewer, half of a picture could be empty.
const leastSteps = 3

// Area draws rates on top of each other over a common scale, the first at the bottom, in exactly
// height lines of exactly width cells. It does not draw more than Layers. Without a size it returns
// no lines.
func Area(stack []Points, width, height int, o Options) []string {
	if width <= 0 || height <= 0 {
		return nil
	}
	rows := height
	withTime := height >= minTimeHeight && !o.NoTime
	if withTime {
		rows -= 2 // the line and its labels
	}
	g := &grid{options: o, rows: rows, columns: width}
	if width >= minGutterWidth {
		g.gutter = gutterWidth(o)
		g.columns = width - g.gutter
	}
	perCell, _ := o.Graph.resolution()
	layers := g.layers(stack, g.columns*perCell)
	g.scale = scaleFor(largest(layers), max(leastSteps, rows/3))
	lines := g.draw(newField(o.Graph, layers, g.columns, rows, g.scale.top))
	if withTime {
		lines = append(lines, g.timeAxis()...)
	}
	return lines
}

// gutterWidth returns the room for the title, a label of maximum width, and the axis. It is the
// same for all values, so that pictures below each other are aligned.
func gutterWidth(o Options) int {
	const widest = len("12.5 MB/s")
	w := widest + 1
	if o.Title != "" {
		w += ansi.StringWidth(o.title()) + 1
	}
	return w
}

// title returns the title as it is shown.
func (o Options) title() string { return ansi.Truncate(cell.Printable(o.Title), maxTitle, "") }

// grid is a picture with its axes.
type grid struct {
	options       Options
	gutter        int // cells left of the first column, including the axis; 0 without one
	columns, rows int
	scale         scale
}

// layers bins a stack; there is always a layer.
func (g *grid) layers(stack []Points, n int) [][]float64 {
	if len(stack) == 0 {
		stack = []Points{nil}
	}
	var out [][]float64
	for _, points := range stack[:min(len(stack), Layers)] {
		out = append(out, Bins(points, g.options.Now, g.options.window(), n))
	}
	return out
}

// largest returns the highest column of a stack.
func largest(layers [][]float64) float64 {
	most := 0.0
	for x := range layers[0] {
		sum := 0.0
		for _, layer := range layers {
			if !math.IsNaN(layer[x]) {
				sum += layer[x]
			}
		}
		most = max(most, sum)
	}
	return min(most, maxRate)
}

// draw puts the axis of rates in front of the rows.
func (g *grid) draw(f *field) []string {
	o := g.options
	labels := g.rateLabels()
	lines := make([]string, g.rows)
	for i, row := range f.rows() {
		lines[i] = o.dress(row, float64(g.rows-i)/float64(g.rows))
		if g.gutter == 0 {
			continue
		}
		axis := "│"
		if labels[i] != "" {
			axis = "┤"
		}
		if o.Graph == ASCII {
			axis = map[string]string{"│": "|", "┤": "+"}[axis]
		}
		title := ""
		if i == 0 {
			title = o.title()
		}
		space := strings.Repeat(" ", max(0, g.gutter-1-ansi.StringWidth(title)-ansi.StringWidth(labels[i])))
		if title != "" {
			title = o.style(o.tintOf(0), title)
		}
		lines[i] = title + o.quiet(space+labels[i]+axis) + lines[i]
	}
	return lines
}

// rateLabels returns the labels of the rows from the top. A row's value is that of its upper edge,
// so that the highest row has the top of the scale.
func (g *grid) rateLabels() []string {
	labels := make([]string, g.rows)
	steps := int(math.Round(g.scale.top / g.scale.step))
	for i := steps; i > 0; i-- {
		row := int(math.Round(float64(g.rows) * (1 - float64(i)/float64(steps))))
		if row < g.rows && (row == 0 || labels[row-1] == "") {
			labels[row] = label(float64(i) * g.scale.step)
		}
	}
	return labels
}

// timeAxis returns the line below the columns and the labels below it.
func (g *grid) timeAxis() []string {
	line := []rune(strings.Repeat("─", g.columns))
	text := []rune(strings.Repeat(" ", g.columns))
	corner, tick := "└", '┴'
	if g.options.Graph == ASCII {
		line = []rune(strings.Repeat("-", g.columns))
		corner, tick = "+", '+'
	}
	window := g.options.window()
	step := timeStep(window, g.columns)
	free := g.columns // The cells from here on have labels.
	for back := time.Duration(0); back <= window; back += step {
		x := g.columns - 1 - int(math.Round(float64(back)/float64(window)*float64(g.columns-1)))
		l := []rune(ago(back))
		from := min(max(0, x-len(l)/2), g.columns-len(l))
		if from < 0 || from+len(l) >= free && back > 0 {
			continue
		}
		line[x] = tick
		copy(text[from:], l)
		free = from
	}
	left, below := "", ""
	if g.gutter > 0 {
		below = strings.Repeat(" ", g.gutter)
		left = strings.Repeat(" ", g.gutter-1) + corner
	}
	return []string{g.options.quiet(left + string(line)), g.options.quiet(below + string(text))}
}

// timeStep returns the time between labels: the shortest round one that leaves room for each.
func timeStep(window time.Duration, columns int) time.Duration {
	const room = 10 // cells for a label and the space after it
	for _, step := range []time.Duration{
		10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	} {
		if step < window && int(window/step)*room <= columns {
			return step
		}
	}
	return window
}
