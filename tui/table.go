package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// Options say how a table is drawn.
type Options struct {
	// Color uses the terminal's first eight colours; see ColorWanted.
	Color bool
	// Wide adds the columns of -o wide.
	Wide bool
	// Now is the moment that ages are counted to.
	Now time.Time
}

const gap = "  " // between columns

// Table draws a gateway and its peers, and below them what fails, why, and what to do.
// The width is in cells; 0 means that nothing is dropped or broken. The text ends in a
// line end.
func Table(s api.Status, width int, o Options) string {
	p := paint(o.Color)
	lines := header(&s.Gateway, width, o)
	peers := slices.Clone(s.Peers)
	slices.SortStableFunc(peers, func(a, b api.PeerStatus) int { return strings.Compare(a.Name, b.Name) })
	lines = append(lines, "")
	if len(peers) == 0 {
		lines = append(lines, wrap("", "no peers yet: postern invite makes a ticket, postern join redeems one", width, "")...)
	} else {
		lines = append(lines, grid(peers, width, o)...)
	}
	for i := range peers {
		for _, f := range findings(&peers[i]) {
			lines = append(lines, "")
			lines = append(lines, f.lines(width, p)...)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// header says who answers.
func header(g *api.GatewayStatus, width int, o Options) []string {
	p := paint(o.Color)
	first := []string{"gateway " + p.text(strong, Printable(g.Name))}
	if g.ListenPort != 0 {
		first = append(first, fmt.Sprintf("UDP port %d", g.ListenPort))
	}
	if !g.StartedAt.IsZero() {
		first = append(first, "up "+age(o.Now.Sub(g.StartedAt)))
	}
	first = append(first, Printable(g.Address))
	if o.Wide {
		first = append(first, "key "+Printable(g.PublicKey), Printable(g.Version))
	}
	lines := flow(first, width)
	var second []string
	if m := g.NAT.Mapping; m != "" && m != "unknown" {
		nat := "NAT " + Printable(m)
		if m == "none" {
			nat = "no NAT"
		}
		second = append(second, nat)
	}
	for _, c := range g.Candidates {
		second = append(second, fmt.Sprintf("%s (%s)", Printable(c.Address), Printable(c.Source)))
	}
	return append(lines, flow(second, width)...)
}

// flow puts items side by side and begins a new line where the next does not fit.
func flow(items []string, width int) []string {
	const sep = " · "
	var lines []string
	line := ""
	for _, item := range items {
		switch {
		case item == "":
		case line == "":
			line = item
		case width > 0 && ansi.StringWidth(line)+ansi.StringWidth(sep)+ansi.StringWidth(item) > width:
			lines = append(lines, fit(line, width))
			line = "  " + item
		default:
			line += sep + item
		}
	}
	if line != "" {
		lines = append(lines, fit(line, width))
	}
	return lines
}

// fit cuts a line that is too wide.
func fit(line string, width int) string {
	if width <= 0 {
		return line
	}
	return ansi.Truncate(line, width, "…")
}

// grid draws the peers under their columns.
func grid(peers []api.PeerStatus, width int, o Options) []string {
	p := paint(o.Color)
	var shown []column
	for _, c := range columns() {
		if !c.wide || o.Wide {
			shown = append(shown, c)
		}
	}
	cells := make([][]cell, len(shown))
	widths := make([]int, len(shown))
	for i, c := range shown {
		widths[i] = ansi.StringWidth(c.title)
		for j := range peers {
			content := c.cell(&peers[j], o.Now)
			if c.rank == 0 && width > 0 {
				content.text = ansi.Truncate(content.text, max(minName, width/3), "…")
			}
			cells[i] = append(cells[i], content)
			widths[i] = max(widths[i], ansi.StringWidth(content.text))
		}
	}
	keep := choose(shown, widths, width)
	row := func(pick func(i int) cell) string {
		var b strings.Builder
		for n, i := range keep {
			if n > 0 {
				b.WriteString(gap)
			}
			content := pick(i)
			space := strings.Repeat(" ", widths[i]-ansi.StringWidth(content.text))
			text := p.text(content.style, content.text)
			switch {
			case shown[i].right:
				b.WriteString(space + text)
			case n == len(keep)-1:
				b.WriteString(text)
			default:
				b.WriteString(text + space)
			}
		}
		return fit(b.String(), width)
	}
	lines := []string{row(func(i int) cell { return cell{shown[i].title, quiet} })}
	for j := range peers {
		lines = append(lines, row(func(i int) cell { return cells[i][j] }))
	}
	return lines
}

// choose drops columns, the highest rank first, until the rest fits.
func choose(shown []column, widths []int, width int) []int {
	keep := make([]int, len(shown))
	for i := range shown {
		keep[i] = i
	}
	for width > 0 && total(keep, widths) > width {
		last := 0
		for n, i := range keep {
			if shown[i].rank >= shown[keep[last]].rank {
				last = n
			}
		}
		if shown[keep[last]].rank == 0 {
			break
		}
		keep = slices.Delete(keep, last, last+1)
	}
	return keep
}

func total(keep, widths []int) int {
	sum := len(gap) * (len(keep) - 1)
	for _, i := range keep {
		sum += widths[i]
	}
	return sum
}

// wrap puts the words of a text behind the prefix and begins a new line, with the
// indent, where the next word does not fit. Words stay whole, hyphens or not, for they
// may be meant to be copied; only one that is wider than a line is cut.
func wrap(prefix, text string, width int, indent string) []string {
	if width <= 0 {
		return []string{prefix + text}
	}
	lines := []string{prefix}
	empty := true // The last line has no word yet.
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		if !empty && ansi.StringWidth(*last)+1+ansi.StringWidth(word) > width {
			lines, empty = append(lines, indent), true
			last = &lines[len(lines)-1]
		}
		if !empty {
			*last += " "
		}
		*last += word
		empty = false
	}
	var out []string
	for _, line := range lines {
		out = append(out, strings.Split(ansi.Hardwrap(line, width, true), "\n")...)
	}
	return out
}
