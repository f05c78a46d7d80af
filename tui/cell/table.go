package cell

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Gap separates columns.
const Gap = "  "

// Column is one column of a table of T.
type Column[T any] struct {
	Title string
	// Rank determines when it is dropped: the highest first, 0 never.
	Rank int
	// Min is the minimum width, so that changing figures do not move other columns.
	Min int
	// Max is where its texts are cut; 0 cuts only those of rank 0. Columns whose Max is their Min
	// are not measured.
	Max   int
	Right bool // flush right
	Cell  func(row T) Cell
}

// Table is rows under columns, each as wide as its content.
type Table[T any] struct {
	columns []Column[T]
	rows    []T
	widths  []int
	most    []int // where texts are cut, by column; 0 cuts none
	keep    []int // the columns that are shown
}

// Layout measures a table's cells and drops columns until the rest fits into the width; 0 drops
// none. Columns of rank 0 are cut to a third of the width, or to the least that distinguishes
// names.
func Layout[T any](columns []Column[T], rows []T, width int) *Table[T] {
	const minName = 12 // The width of "◌ connecting".
	t := &Table[T]{columns: columns, rows: rows, widths: make([]int, len(columns)), most: make([]int, len(columns))}
	for i, c := range columns {
		t.most[i] = c.Max
		if c.Rank == 0 && width > 0 {
			t.most[i] = max(minName, width/3)
			if c.Max > 0 {
				t.most[i] = min(t.most[i], c.Max)
			}
		}
		t.widths[i] = max(c.Min, ansi.StringWidth(c.Title))
		if c.Min == c.Max && c.Max > 0 {
			continue
		}
		for j := range rows {
			t.widths[i] = max(t.widths[i], ansi.StringWidth(t.cell(i, j).Text))
		}
	}
	t.choose(width)
	return t
}

// cell returns a cell. They are made on demand: most rows of a long table are measured and never
// drawn.
func (t *Table[T]) cell(column, row int) Cell {
	content := t.columns[column].Cell(t.rows[row])
	if most := t.most[column]; most > 0 && ansi.StringWidth(content.Text) > most {
		content.Text = ansi.Truncate(content.Text, most, "…")
	}
	return content
}

// choose drops columns, the highest rank first, until the rest fits.
func (t *Table[T]) choose(width int) {
	t.keep = make([]int, len(t.columns))
	for i := range t.columns {
		t.keep[i] = i
	}
	for width > 0 && t.Width() > width {
		last := 0
		for n, i := range t.keep {
			if t.columns[i].Rank >= t.columns[t.keep[last]].Rank {
				last = n
			}
		}
		if t.columns[t.keep[last]].Rank == 0 {
			return
		}
		t.keep = slices.Delete(t.keep, last, last+1)
	}
}

// Width returns the width of the shown columns.
func (t *Table[T]) Width() int {
	sum := len(Gap) * (len(t.keep) - 1)
	for _, i := range t.keep {
		sum += t.widths[i]
	}
	return sum
}

// Shown returns the titles of the columns that were not dropped.
func (t *Table[T]) Shown() []string {
	var titles []string
	for _, i := range t.keep {
		titles = append(titles, t.columns[i].Title)
	}
	return titles
}

// Complete reports that no column was dropped.
func (t *Table[T]) Complete() bool { return len(t.keep) == len(t.columns) }

// Header returns the line of titles.
func (t *Table[T]) Header(p Paint) string {
	return t.line(p, func(i int) Cell { return Cell{t.columns[i].Title, Quiet} })
}

// Row returns the line of a row.
func (t *Table[T]) Row(p Paint, index int) string {
	return t.line(p, func(i int) Cell { return t.cell(i, index) })
}

// Styled returns the shown texts of a row that have a style.
func (t *Table[T]) Styled(style Style, row int) string {
	text := ""
	for _, i := range t.keep {
		if c := t.cell(i, row); c.Style == style {
			text += c.Text
		}
	}
	return text
}

func (t *Table[T]) line(p Paint, pick func(i int) Cell) string {
	var b strings.Builder
	for n, i := range t.keep {
		if n > 0 {
			b.WriteString(Gap)
		}
		content := pick(i)
		space := strings.Repeat(" ", max(0, t.widths[i]-ansi.StringWidth(content.Text)))
		text := p.Cell(content)
		switch {
		case t.columns[i].Right:
			b.WriteString(space + text)
		case n == len(t.keep)-1:
			b.WriteString(text)
		default:
			b.WriteString(text + space)
		}
	}
	return b.String()
}
