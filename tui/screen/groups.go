package screen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// Groupings of peers, besides by label.
const (
	groupNone  = "none"
	groupState = "state"
	groupPath  = "path"
	groupLabel = "label " // followed by its name
)

// group is a group of peers.
type group struct {
	title cell.Cell
	rows  []int // of its peers, in order
	count map[cell.Standing]int
}

// id identifies the group in a list, where peers have keys and names.
func (g *group) id() string { return "group " + g.title.Text }

// entry is a line of the list: a peer, or the title of a group.
type entry struct {
	row   int    // of the peer, or the group's first
	group *group // nil for a peer
}

// What the list of peers also depends on, and the widths of its columns.
type (
	groupedBy struct {
		grouping string
		folds    int
	}
	tableMadeOf struct {
		width         int
		wide, compact bool
	}
)

// list updates the list.
func (o *overview) list(d *data) {
	if !o.stale(listOf{firstOf(d.status.Peers), d.filter, o.column, o.descending, groupedBy{o.grouping, o.folds}}) {
		return
	}
	o.entries, o.table = nil, nil
	for i := range d.status.Peers {
		if p := &d.status.Peers[i]; d.filter.text == "" || d.filter.match(peerTexts(p)...) {
			o.rows = append(o.rows, p)
		}
	}
	slices.SortStableFunc(o.rows, func(a, b *api.PeerStatus) int { return o.directed(o.compare(a, b)) })
	d.leads = map[string]string{}
	for _, g := range o.groups() {
		if g.title.Text != "" {
			o.add(g.id(), entry{g.rows[0], g})
			d.leads[g.id()] = peerID(o.rows[g.rows[0]])
		}
		if o.folded[g.id()] {
			continue
		}
		for _, i := range g.rows {
			o.add(peerID(o.rows[i]), entry{row: i})
		}
	}
}

func (o *overview) add(id string, e entry) {
	o.ids, o.entries = append(o.ids, id), append(o.entries, e)
}

// groups returns the groups of the rows, in the order of their first rows: the most urgent come
// first, as among peers. Without grouping there is one without a title.
func (o *overview) groups() []*group {
	var groups []*group
	byTitle := map[string]*group{}
	for i, p := range o.rows {
		title := o.titleFor(p)
		g := byTitle[title.Text]
		if g == nil {
			g = &group{title: title, count: map[cell.Standing]int{}}
			byTitle[title.Text], groups = g, append(groups, g)
		}
		g.rows = append(g.rows, i)
		if o.grouping != groupState { // its title says it already
			g.count[cell.StandingOf(p).Counted()]++
		}
	}
	return groups
}

// titleFor returns the title of the group of a peer.
func (o *overview) titleFor(p *api.PeerStatus) cell.Cell {
	switch o.grouping {
	case groupNone:
		return cell.Cell{}
	case groupState:
		return cell.PeerState(p)
	case groupPath:
		c := cell.Path(p.Path.Kind)
		c.Text = "path " + c.Text
		return c
	}
	name := strings.TrimPrefix(o.grouping, groupLabel)
	if value, labelled := p.Labels[name]; labelled {
		return cell.Cell{Text: cell.Printable(name + "=" + value), Style: cell.Strong}
	}
	return cell.Cell{Text: cell.Printable("no " + name), Style: cell.Quiet}
}

// measured returns the table of all rows, even hidden ones, so that columns keep their widths.
func (o *overview) measured(d *data, compact bool, width int) *cell.Table[*api.PeerStatus] {
	now := tableMadeOf{width, d.wide, compact}
	if o.table == nil || o.tableMadeOf != now {
		o.tableMadeOf = now
		if compact {
			o.table = cell.Layout(o.titled(overviewColumns(d, inSigns, shortName)), o.rows, width)
		} else {
			o.table = o.layout(d, width)
		}
	}
	return o.table
}

// titleLine returns the line of a group's title: the number of its peers, and their states.
func (o *overview) titleLine(d *data, g *group, width int) string {
	sign := "▼ "
	if o.folded[g.id()] {
		sign = "▶ "
	}
	line := ""
	for _, short := range []bool{false, true} {
		line = sign + d.paint.Cell(g.title) + " · " + d.counted(len(g.rows), g.count, short)
		if ansi.StringWidth(line) <= width {
			break
		}
	}
	return line
}

// selectedGroup returns the group whose title is selected; nil if it is a peer.
func (o *overview) selectedGroup(d *data) *group {
	if i := slices.Index(o.ids, d.peers.id); i >= 0 {
		return o.entries[i].group
	}
	return nil
}

// fold hides the peers of a group, or shows them again.
func (o *overview) fold(g *group) {
	o.folded[g.id()] = !o.folded[g.id()]
	o.folds++
}

// order names the order of the list, for its title.
func (o *overview) order() string {
	if o.grouping == groupNone {
		return o.column
	}
	return strings.TrimPrefix(o.grouping, groupLabel) + " and " + o.column
}

// groupings implements groupable.
func (*overview) groupings(d *data) []string {
	labels := map[string]bool{}
	for i := range d.status.Peers {
		for name := range d.status.Peers[i].Labels {
			labels[groupLabel+name] = true
		}
	}
	return append([]string{groupState, groupPath, groupNone}, slices.Sorted(maps.Keys(labels))...)
}

// groupBy implements groupable.
func (o *overview) groupBy(grouping string) { o.grouping = grouping }

// groupMsg groups rows.
type groupMsg string

// askGroup offers the view's groupings.
func (m *model) askGroup() tea.Cmd {
	offer := chooseMsg{title: "group by what?", does: "group"}
	all := m.groupings()
	for _, g := range all[:min(len(all), maxChoices)] {
		offer.choices = append(offer.choices, choice{g, groupMsg(g)})
	}
	if more := len(all) - maxChoices; more > 0 {
		offer.choices = append(offer.choices, choice{fmt.Sprintf("another label, of %d more", more), typeMsg("group " + groupLabel)})
	}
	if len(offer.choices) == 0 {
		return m.say("nothing to group here")
	}
	return ask(offer)
}

func (m *model) groupings() []string {
	if v, ok := m.view().(groupable); ok {
		return v.groupings(m.data)
	}
	return nil
}

// commandGroup accepts any label, even one that no peer has yet.
func (m *model) commandGroup(by string) tea.Cmd {
	v, ok := m.view().(groupable)
	if !ok {
		return m.say("nothing to group here")
	}
	name, labelled := strings.CutPrefix(by, groupLabel)
	switch {
	case labelled && api.CheckLabel(name, "") != nil, !labelled && !slices.Contains(m.groupings(), by):
		return m.say("group by state, path, label NAME, or none")
	}
	if p := m.data.peer(); p != nil && m.data.leads[m.data.peers.id] != "" { // Its title disappears.
		m.data.peers.choose(peerID(p))
	}
	v.groupBy(by)
	return m.say("grouped by " + by)
}
