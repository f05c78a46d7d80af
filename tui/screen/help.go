package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// everywhere returns the keys of the frame.
func (m *model) everywhere() []key.Binding {
	k := keys()
	k.view.SetHelp(fmt.Sprintf("1–%d", len(m.views)), "view")
	return []key.Binding{k.view, k.next, k.previous, k.back, k.filter, k.command, k.sort, k.group, k.wide, k.freeze, k.mouse, k.suspend, k.help, k.quit}
}

// moves returns the keys of all lists and texts.
func moves() []key.Binding {
	k := keys()
	return []key.Binding{k.up, k.down, k.first, k.last, k.pageUp, k.pageDown}
}

// hints returns the keys to name at the foot: the view's own, then the most useful of the frame.
func (m *model) hints() []key.Binding {
	k := keys()
	if m.mode == modeHelp {
		return []key.Binding{k.back, k.down, k.up, k.quit}
	}
	var hints []key.Binding
	if len(m.sources) > 1 {
		hints = append(hints, k.gateway)
	}
	hints = append(append(hints, m.view().bindings()...), k.filter, k.command, k.freeze)
	if _, ok := m.view().(sortable); ok {
		hints = append(hints, k.sort)
	}
	if _, ok := m.view().(groupable); ok {
		hints = append(hints, k.group)
	}
	return append(hints, k.wide, k.quit)
}

// helpSheet is generated from the bindings, so that it cannot name a wrong key.
func (m *model) helpSheet(width, height int) string {
	lines := m.helpLines(width)
	m.helpTop = min(m.helpTop, max(0, len(lines)-height))
	return page(lines[max(0, m.helpTop):], width, height)
}

// halves is the width from which the help sheet has two columns.
const halves = 100

func (m *model) helpLines(width int) []string {
	p := m.data.paint
	whole := width
	if width >= halves {
		width = (width - besideGap) / 2
	}
	var groups [][]string
	group := func(title string, entries [][2]string) {
		if len(entries) > 0 {
			groups = append(groups, append([]string{p.Text(cell.Strong, title)}, inColumns(entries, width, p)...))
		}
	}
	group("moving", helpOf(moves()))
	frame := m.everywhere()
	if len(m.sources) > 1 {
		frame = append(frame, keys().gateway)
	}
	group("everywhere", helpOf(frame))
	groups = append(groups, []string{p.Text(cell.Strong, "in one view")})
	titles := 0
	for _, v := range m.views {
		titles = max(titles, ansi.StringWidth(v.title()))
	}
	for _, v := range m.views {
		title := cell.Pad("  "+strings.ToLower(v.title()), 2+titles)
		groups[len(groups)-1] = append(groups[len(groups)-1], inFlow(title, helpOf(v.bindings()), width, p)...)
	}
	commands := [][2]string{{":VIEW", "show a view by its name"}}
	for _, o := range m.commands() {
		if slices.Contains([]string{"wide", "freeze", "mouse", "help", "quit"}, o.name) {
			continue // They have keys.
		}
		if slices.ContainsFunc(m.views, func(v view) bool { return strings.ToLower(v.title()) == o.name }) && o.argument == "" {
			continue
		}
		commands = append(commands, o.help())
	}
	group("commands (tab completes)", commands)
	groups = append(groups, append([]string{p.Text(cell.Strong, "signs")}, inFlow("", signs(), width, p)...))
	all := joined(groups)
	if width == whole {
		return all
	}
	// The first column ends where the longer of the two is shortest.
	height := func(n int) int { return max(len(joined(groups[:n])), len(joined(groups[n:]))) }
	n := 0
	for n < len(groups) && height(n+1) <= height(n) {
		n++
	}
	left, right := joined(groups[:n]), joined(groups[n:])
	return beside(m.data, [][]string{exactly(left, width, height(n)), exactly(right, width, height(n))}, []int{width, width})
}

// joined puts groups of lines below each other, with an empty line between them.
func joined(groups [][]string) []string {
	var lines []string
	for i, g := range groups {
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, g...)
	}
	return lines
}

// signs explains the glyphs.
func signs() [][2]string {
	return [][2]string{
		{"→AUTH ←AUTH:", "we use there, they use here"},
		{"✓ ok:", "works"}, {"! warning:", "works, with a problem"}, {"✗ error:", "does not work"},
		{"- off:", "not offered"}, {"? unknown:", "nobody could tell"},
		{"● connected:", "end to end"}, {"◌ unconfirmed:", "no answer just now"}, {"◌ connecting:", "being tried"}, {"◇ pending:", "waits for approval"},
		{"! faulty:", "something fails"}, {"✗ silent:", "no longer answers"}, {"✗ broken:", "cause is known"}, {"✗ failed:", "and tried again"},
		{"▒ ▓:", "was faulty, failed"}, {"━ ┅:", "was connected: direct, relay"},
	}
}

func helpOf(bindings []key.Binding) [][2]string {
	var out [][2]string
	for _, b := range bindings {
		if h := b.Help(); h.Key != "" {
			out = append(out, [2]string{h.Key, h.Desc})
		}
	}
	return out
}

// inFlow puts entries after a title, one after the other.
func inFlow(title string, entries [][2]string, width int, p cell.Paint) []string {
	indent := strings.Repeat(" ", ansi.StringWidth(title))
	var lines []string
	line := title
	for _, e := range entries {
		entry := "  " + p.Text(cell.Second, e[0]) + " " + e[1]
		if ansi.StringWidth(line+entry) > width {
			lines, line = append(lines, line), indent
		}
		line += entry
	}
	return append(lines, line)
}

// inColumns puts entries side by side if there is room.
func inColumns(entries [][2]string, width int, p cell.Paint) []string {
	first, second := 0, 0
	for _, e := range entries {
		first, second = max(first, ansi.StringWidth(e[0])), max(second, ansi.StringWidth(e[1]))
	}
	n := max(1, width/(2+first+2+second))
	rows := (len(entries) + n - 1) / n
	lines := make([]string, rows)
	for i, e := range entries {
		entry := fmt.Sprintf("  %s  %s", p.Text(cell.Second, e[0])+strings.Repeat(" ", first-ansi.StringWidth(e[0])), e[1])
		if i+rows < len(entries) {
			entry += strings.Repeat(" ", second-ansi.StringWidth(e[1]))
		}
		lines[i%rows] += entry
	}
	return lines
}

// pressedInHelp scrolls or leaves the sheet; any other key leaves it and acts.
func (m *model) pressedInHelp(msg tea.KeyMsg) (cmd tea.Cmd, taken bool) {
	k := keys()
	if step, ok := stepOf(msg, m.viewHeight); ok {
		m.helpTop = max(0, min(m.helpTop+step, far))
		return nil, true
	}
	m.mode = modeKeys
	return nil, key.Matches(msg, k.help, k.back)
}
