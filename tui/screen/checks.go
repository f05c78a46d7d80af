package screen

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const titleChecks = "Checks"

// checksView lists all checks, each as high as what there is to say of it.
type checksView struct {
	sorting
	// expanded are the checks whose stages are shown although they do not fail, and
	// whose are not although they do.
	expanded map[string]bool
	blocks   []block // as drawn last
	ids      []string
	top      int // first line shown
	height   int
}

// block is a check's place among all lines.
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

// checkID is a check's identity: unique in a report, and the same in the next.
func checkID(c *api.Check) string { return c.Peer + "\x00" + c.Direction + "\x00" + c.Name }

func (d *data) check(id string) *api.Check {
	for i := range d.report.Checks {
		if checkID(&d.report.Checks[i]) == id {
			return &d.report.Checks[i]
		}
	}
	return nil
}

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
	c := d.check(d.checks.id)
	switch {
	case key.Matches(msg, k.up), key.Matches(msg, k.down):
		step := 1
		if key.Matches(msg, k.up) {
			step = -1
		}
		if !v.scrollWithin(d, step) {
			d.checks.key(msg, v.ids)
		}
	case key.Matches(msg, k.pageUp), key.Matches(msg, k.pageDown):
		v.page(d, key.Matches(msg, k.pageDown))
	case d.checks.key(msg, v.ids):
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
		return ask(copyFix(api.StepsOf(c.Steps, c.Fix), cell.Subject(c, true)))
	}
	return nil
}

// selected is the place of the selected check.
func (v *checksView) selected(d *data) (block, bool) {
	i := slices.Index(v.ids, d.checks.id)
	if i < 0 || i >= len(v.blocks) {
		return block{}, false
	}
	return v.blocks[i], true
}

// scrollWithin moves by a line inside a check that is higher than the screen, and
// reports whether there was one to move by.
func (v *checksView) scrollWithin(d *data, step int) bool {
	b, ok := v.selected(d)
	switch {
	case !ok || b.to-b.from <= v.height:
		return false
	case step > 0 && b.to > v.top+v.height, step < 0 && b.from < v.top:
		v.top += step
		return true
	}
	return false
}

// page selects the check that is a screen further.
func (v *checksView) page(d *data, down bool) {
	b, ok := v.selected(d)
	if !ok {
		return
	}
	line := b.from - v.height
	if down {
		line = b.from + v.height
	}
	for i, other := range v.blocks {
		if other.to > max(0, line) || i == len(v.blocks)-1 {
			d.checks.to(i, v.ids)
			return
		}
	}
}

func (v *checksView) mouse(msg tea.MouseMsg, d *data) {
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		d.checks.to(d.checks.at-1, v.ids)
	case msg.Button == tea.MouseButtonWheelDown:
		d.checks.to(d.checks.at+1, v.ids)
	case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress:
		for i, b := range v.blocks {
			if line := v.top + msg.Y; line >= b.from && line < b.to {
				d.checks.to(i, v.ids)
			}
		}
	}
}

// list is what the filter picks, in its order.
func (v *checksView) list(d *data) []*api.Check {
	var out []*api.Check
	for i := range d.report.Checks {
		c := &d.report.Checks[i]
		if d.filter.match(c.Peer, c.Name, c.Target, c.Direction, string(c.Verdict.Verdict), c.Code, c.Stage, c.Cause) {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *api.Check) int { return v.directed(v.compare(a, b)) })
	return out
}

func (v *checksView) compare(a, b *api.Check) int {
	name := func() int { return cmp.Or(cell.CompareNames(a.Peer, b.Peer), cell.CompareNames(a.Name, b.Name)) }
	switch v.column {
	case "peer":
		return name()
	case "code":
		return cmp.Or(cmp.Compare(a.Code, b.Code), name())
	case "age":
		return cmp.Or(checkedAt(b).Compare(checkedAt(a)), name())
	}
	return cmp.Or(cell.CompareChecks(a, b), name())
}

func checkedAt(c *api.Check) time.Time {
	if c.CheckedAt == nil {
		return time.Time{}
	}
	return *c.CheckedAt
}

func (v *checksView) draw(d *data, width, height int) string {
	checks := v.list(d)
	v.ids, v.blocks, v.height = v.ids[:0], v.blocks[:0], height
	if len(checks) == 0 {
		return strings.Join(exactly(cell.Wrap("", d.unchecked(), width, ""), width, height), "\n")
	}
	for _, c := range checks {
		v.ids = append(v.ids, checkID(c))
	}
	if !d.checks.chosen {
		v.top = 0
	}
	d.checks.window(v.ids, height)
	var lines []string
	for i, c := range checks {
		from := len(lines)
		detail := v.expanded[v.ids[i]]
		selected := v.ids[i] == d.checks.id
		for n, l := range cell.CheckLines(c, cell.Subject(c, true), unmarked(width), d.paint, d.now, detail) {
			if n == 0 {
				l = marked(l, selected, width, d.paint)
			} else {
				l = bar(selected, d.paint) + l
			}
			lines = append(lines, l)
		}
		v.blocks = append(v.blocks, block{from, len(lines)})
	}
	v.follow(v.blocks[d.checks.at], len(lines))
	return strings.Join(exactly(lines[v.top:], width, height), "\n")
}

// bar stands at the left of the lines that belong to the selected check.
func bar(selected bool, p cell.Paint) string {
	if !selected {
		return "  "
	}
	return p.Text(cell.Quiet, "│ ")
}

// follow scrolls so that the selected check is seen, from its beginning if it is higher
// than the screen and was not there before.
func (v *checksView) follow(b block, lines int) {
	v.top = min(v.top, max(0, lines-v.height))
	switch {
	case b.to-b.from > v.height:
		if b.from > v.top+v.height-1 || b.to <= v.top {
			v.top = b.from
		}
		v.top = min(max(v.top, b.from), b.to-v.height)
	case b.from < v.top:
		v.top = b.from
	case b.to > v.top+v.height:
		v.top = b.to - v.height
	}
}

// unchecked says why there is no check to see.
func (d *data) unchecked() string {
	switch {
	case len(d.report.Checks) > 0:
		return "the filter picks no check; esc clears it"
	case d.reportErr != nil:
		return "no checks: " + cell.Printable(d.reportErr.Error())
	}
	return "nothing was checked yet; r runs the checks"
}
