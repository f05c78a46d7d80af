package screen

import (
	"cmp"
	"slices"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const titleChecks = "Checks"

// checksView lists all checks, with different heights. Only those in the window are drawn, and the
// heights of the others are unknown. The selected one keeps its position, and the others are drawn
// around it.
type checksView struct {
	sorting
	listing[*api.Check]
	// expanded are the checks whose stages are shown although they pass, or hidden although they
	// fail.
	expanded map[string]bool
	// line is the line of the window at which the selected check begins. blocks are the positions
	// when it was last drawn, and first is the index of the first one's check.
	line          int
	blocks        []block
	first         int
	width, height int
}

// block is a check's position in the window, in lines. Parts of it may be above or below the
// window.
type block struct{ from, to int }

func newChecks() *checksView {
	return &checksView{
		sorting:  sorting{columns: []string{"severity", "peer", "code", "age"}, column: "severity"},
		expanded: map[string]bool{},
	}
}

func (*checksView) title() string { return titleChecks }

func (*checksView) bindings() []key.Binding {
	k := keys()
	return []key.Binding{describe(k.probe, "run again"), describe(k.act, "act on its peer"), describe(k.copy, "copy the fix"), describe(k.enter, "stages")}
}

// checkID returns a check's identity: unique in a report, and the same in the next.
func checkID(c *api.Check) string { return c.Peer + "\x00" + c.Direction + "\x00" + c.Name }

func (v *checksView) update(msg tea.Msg, d *data) tea.Cmd {
	switch msg := msg.(type) {
	case tea.MouseMsg:
		d.checks.chosen = true
		v.mouse(msg, d)
	case tea.KeyMsg:
		d.checks.chosen = !key.Matches(msg, keys().first)
		return v.key(msg, d)
	}
	return nil
}

func (v *checksView) key(msg tea.KeyMsg, d *data) tea.Cmd {
	k := keys()
	var c *api.Check
	if i := slices.Index(v.ids, d.checks.id); i >= 0 {
		c = v.rows[i]
	}
	switch {
	case key.Matches(msg, k.up):
		v.move(d, -1)
	case key.Matches(msg, k.down):
		v.move(d, 1)
	case key.Matches(msg, k.pageUp):
		v.page(d, v.first, -v.height)
	case key.Matches(msg, k.pageDown):
		v.page(d, v.first+len(v.blocks)-1, v.height)
	case key.Matches(msg, k.first):
		v.to(d, 0)
	case key.Matches(msg, k.last):
		v.to(d, far)
	case key.Matches(msg, k.enter):
		v.expanded[d.checks.id] = !v.expanded[d.checks.id]
	case key.Matches(msg, k.probe):
		if c == nil || c.Peer == "" {
			return ask(probeMsg{allPeers})
		}
		return ask(probeMsg{c.Peer})
	case key.Matches(msg, k.act) && c != nil:
		if i := slices.IndexFunc(d.status.Peers, func(p api.PeerStatus) bool { return p.Name == c.Peer }); i >= 0 {
			return ask(actsOn(d, &d.status.Peers[i]))
		}
	case key.Matches(msg, k.copy) && c != nil:
		return ask(copyFix(api.StepsOf(c.Steps, c.Fix, c.Command), cell.Subject(c, true)))
	}
	return nil
}

// to selects the check at an index, or the nearest. It keeps its position in the window; one
// outside enters at the nearer end.
func (v *checksView) to(d *data, at int) {
	d.checks.to(at, v.ids)
	switch i := d.checks.at - v.first; {
	case i < 0:
		v.line = 0
	case i < len(v.blocks):
		v.line = v.blocks[i].from
	default:
		v.line = v.height
	}
}

// move scrolls within a check that is higher than the window, or selects the next one.
func (v *checksView) move(d *data, lines int) {
	if !v.scroll(d, lines) {
		v.to(d, d.checks.at+cmp.Compare(lines, 0))
	}
}

// scroll scrolls within a check that is higher than the window, and reports whether it did.
func (v *checksView) scroll(d *data, lines int) bool {
	i := d.checks.at - v.first
	if i < 0 || i >= len(v.blocks) || lines < 0 && v.blocks[i].from >= 0 || lines > 0 && v.blocks[i].to <= v.height {
		return false
	}
	v.line -= lines
	return true
}

// page moves by a window: to the check at its end, which then is at the other end, or to the one
// after that.
func (v *checksView) page(d *data, end, lines int) {
	if v.scroll(d, lines) {
		return
	}
	if end == d.checks.at {
		end += cmp.Compare(lines, 0)
	}
	if end < 0 || end >= len(v.rows) {
		return
	}
	d.checks.to(end, v.ids)
	if v.line = 0; lines < 0 {
		v.line = v.height - len(v.lines(d, d.checks.at))
	}
}

func (v *checksView) mouse(msg tea.MouseMsg, d *data) {
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		v.move(d, -wheel)
	case msg.Button == tea.MouseButtonWheelDown:
		v.move(d, wheel)
	case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress:
		if i := slices.IndexFunc(v.blocks, func(b block) bool { return msg.Y >= b.from && msg.Y < b.to }); i >= 0 {
			v.to(d, v.first+i)
		}
	}
}

// list updates the list: the filtered checks, sorted.
func (v *checksView) list(d *data) {
	if !v.stale(listOf{firstOf(d.report.Checks), d.filter, v.column, v.descending, nil}) {
		return
	}
	for i := range d.report.Checks {
		c := &d.report.Checks[i]
		if d.filter.match(c.Peer, c.Name, c.Target, c.Direction, string(c.Verdict.Verdict), c.Code, c.Stage, c.Cause) {
			v.rows = append(v.rows, c)
		}
	}
	slices.SortStableFunc(v.rows, func(a, b *api.Check) int { return v.directed(v.compare(a, b)) })
	for _, c := range v.rows {
		v.ids = append(v.ids, checkID(c))
	}
}

func (v *checksView) compare(a, b *api.Check) int {
	name := func() int { return cmp.Or(cell.CompareNames(a.Peer, b.Peer), cell.CompareNames(a.Name, b.Name)) }
	switch v.column {
	case "peer":
		return name()
	case "code":
		return cmp.Or(cmp.Compare(a.Code, b.Code), name())
	case "age":
		return cmp.Or(timeOf(b.CheckedAt).Compare(timeOf(a.CheckedAt)), name())
	}
	return cmp.Or(cell.CompareChecks(a, b), name())
}

func (v *checksView) draw(d *data, width, height int) string {
	v.list(d)
	v.width, v.height, v.blocks = width, height, v.blocks[:0]
	if len(v.rows) == 0 {
		return sentence(d.unchecked(), width, height)
	}
	d.checks.settle(v.ids)
	if !d.checks.chosen {
		v.line = 0
	}
	return page(v.window(d), width, height)
}

// window draws the selected check at its position, whole if there is room, and those before and
// after it.
func (v *checksView) window(d *data) []string {
	lines := v.lines(d, d.checks.at)
	heights := []int{len(lines)}
	room := v.height - len(lines)
	v.line = min(max(v.line, min(room, 0)), max(room, 0))
	v.first = d.checks.at
	for above := 0; ; { // lines before the selected check
		last := v.first + len(heights)
		gap := v.height - (v.line - above + len(lines))
		switch {
		case above < v.line && v.first > 0:
			v.first--
			before := v.lines(d, v.first)
			lines, heights, above = append(before, lines...), append([]int{len(before)}, heights...), above+len(before)
		case above < v.line: // The first check begins at the top.
			v.line = above
		case gap > 0 && last < len(v.rows):
			behind := v.lines(d, last)
			lines, heights = append(lines, behind...), append(heights, len(behind))
		case gap > 0 && (v.first > 0 || above > v.line): // The last one ends at the bottom.
			v.line += gap
		default:
			from := v.line - above
			for _, n := range heights {
				v.blocks = append(v.blocks, block{from, from + n})
				from += n
			}
			return lines[above-v.line:]
		}
	}
}

// lines draws a check.
func (v *checksView) lines(d *data, at int) []string {
	c, selected := v.rows[at], at == d.checks.at
	lines := cell.CheckLines(c, cell.Subject(c, true), unmarked(v.width), d.paint, d.now, v.expanded[v.ids[at]])
	for i, l := range lines {
		if i == 0 {
			lines[i] = marked(l, selected, v.width, d.paint)
		} else {
			lines[i] = bar(selected, d.paint) + l
		}
	}
	return lines
}

// bar marks the lines of the selected check at the left.
func bar(selected bool, p cell.Paint) string {
	if !selected {
		return "  "
	}
	return p.Text(cell.Quiet, "│ ")
}

// unchecked says why there are no checks to show.
func (d *data) unchecked() string {
	switch {
	case len(d.report.Checks) > 0:
		return "the filter picks no check; esc clears it"
	case d.reportErr != nil:
		return "no checks: " + cell.Printable(d.reportErr.Error())
	}
	return "nothing was checked yet; r runs the checks"
}
