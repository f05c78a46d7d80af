package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const titleFleet = "Fleet"

// fleet has a row for each of several gateways.
type fleet struct {
	sorting
	cursor cursor
	ids    []string // of the rows as last drawn
	of     *model
}

func newFleet(of *model) *fleet {
	return &fleet{of: of, cursor: cursor{leading: true}, sorting: sorting{
		columns:       []string{sortTrouble, sortName, "peers", sortRate},
		greatestFirst: []string{"peers", sortRate},
		column:        sortTrouble,
	}}
}

// sortName is by the gateways' names.
const sortName = "name"

func (*fleet) title() string { return titleFleet }

func (*fleet) bindings() []key.Binding {
	return []key.Binding{describe(keys().enter, "go into the gateway")}
}

// gatewayRow is a gateway's known state.
type gatewayRow struct {
	name      string
	d         *data
	standing  gatewayStanding
	connected int
	rx, tx    float64
	worst     cell.Cell // the worst problem
	why, fix  string
}

// gatewayStanding is a gateway's overall condition.
type gatewayStanding int

// The most urgent first.
const (
	gatewayLost    gatewayStanding = iota // it no longer answers
	gatewayTrouble                        // it or a peer has an error
	gatewayAsked                          // it has not answered yet
	gatewayWarning                        // it works with warnings
	gatewayWell
)

var gatewayCells = [...]cell.Cell{
	gatewayLost: {Text: "✗ lost", Style: cell.Bad}, gatewayTrouble: {Text: "! trouble", Style: cell.Wary}, gatewayAsked: {Text: "◌ asked", Style: cell.Wary},
	gatewayWarning: {Text: "! warning", Style: cell.Wary}, gatewayWell: {Text: "✓ well", Style: cell.Good},
}

// row returns the row of a gateway.
func (m *model) row(i int) *gatewayRow {
	d := m.gateways[i]
	r := &gatewayRow{name: m.sources[i].Name, d: d, worst: cell.Dash(""), standing: gatewayWell}
	worst, troubled := cell.Connected, (*api.PeerStatus)(nil)
	for j := range d.status.Peers {
		p := &d.status.Peers[j]
		r.rx, r.tx = r.rx+p.RxBytesPerSecond, r.tx+p.TxBytesPerSecond
		s := cell.StandingOf(p)
		if s.Counted() == cell.Connected {
			r.connected++
		}
		if s < worst {
			worst, troubled = s, p
		}
	}
	if troubled != nil {
		r.standing, r.worst = gatewayTrouble, worst.Cell()
		if worst >= cell.Pending {
			r.standing = gatewayWarning
		}
		if worst == cell.Warned {
			r.worst = gatewayCells[gatewayWarning]
		}
		v := worstOf(troubled)
		r.worst.Text += " " + cell.Printable(strings.TrimSpace(v.Code+" "+troubled.Name))
		r.why, r.fix = v.Cause, v.Fix
	}
	if p := d.status.Problems; len(p) > 0 && (p[0].Verdict.Verdict == api.Error && r.standing > gatewayTrouble || r.standing == gatewayWell) {
		r.worst, _ = d.badge(false)
		r.why, r.fix = p[0].Cause, p[0].Fix
		if r.standing = gatewayWarning; p[0].Verdict.Verdict == api.Error {
			r.standing = gatewayTrouble
		}
	}
	switch {
	case d.lost != nil:
		r.standing, r.why, r.fix = gatewayLost, d.lost.Error(), ""
	case d.statusAt.IsZero():
		r.standing = gatewayAsked
	}
	return r
}

// worstOf returns the worst verdict on a peer's endpoints or ours.
func worstOf(p *api.PeerStatus) api.Verdict {
	out, in := &p.Reachability.Outbound, &p.Reachability.Inbound
	all := []*api.Verdict{&out.Gateway, &out.APIServer, &out.Auth, &in.Gateway, &in.APIServer, &in.Auth}
	for _, want := range []api.Outcome{api.Error, api.Warning} {
		for _, v := range all {
			if v.Verdict == want {
				return *v
			}
		}
	}
	return api.Verdict{Cause: p.Reason}
}

// update implements view.
func (v *fleet) update(msg tea.Msg, _ *data) tea.Cmd {
	switch msg := msg.(type) {
	case tea.MouseMsg:
		v.cursor.mouse(msg, v.ids, 1)
	case tea.KeyMsg:
		if v.cursor.key(msg, v.ids) || !key.Matches(msg, keys().enter) {
			return nil
		}
		if i := slices.Index(v.of.gatewayNames(), v.cursor.id); i >= 0 && slices.Contains(v.ids, v.cursor.id) {
			return ask(enterMsg(i))
		}
	}
	return nil
}

// draw implements view.
func (v *fleet) draw(d *data, width, height int) string {
	var rows []*gatewayRow
	for i := range v.of.gateways {
		if r := v.of.row(i); d.filter.match(r.name, r.d.status.Gateway.Name, r.worst.Text, gatewayCells[r.standing].Text, r.d.status.Gateway.Version) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b *gatewayRow) int {
		return cmp.Or(v.directed(v.compare(a, b)), cell.CompareNames(a.name, b.name))
	})
	v.ids = v.ids[:0]
	for _, r := range rows {
		v.ids = append(v.ids, r.name)
	}
	if len(rows) == 0 {
		return sentence("the filter picks no gateway; esc clears it", width, height)
	}
	v.cursor.settle(v.ids)
	below := aboutGateway(d, rows[v.cursor.at], width)
	below = below[:min(len(below), max(height-1-len(rows), height/3))]
	first, last := v.cursor.window(v.ids, height-1-len(below))
	table := cell.Layout(fleetColumns(d), rows[first:last], unmarked(width))
	lines := []string{"  " + table.Header(d.paint)}
	for i := range rows[first:last] {
		lines = append(lines, marked(table.Row(d.paint, i), v.ids[first+i] == v.cursor.id, width, d.paint))
	}
	return page(append(exactly(lines, width, height-len(below)), below...), width, height)
}

func (v *fleet) compare(a, b *gatewayRow) int {
	switch v.column {
	case sortName:
		return cell.CompareNames(a.name, b.name)
	case "peers":
		return cmp.Compare(len(a.d.status.Peers), len(b.d.status.Peers))
	case sortRate:
		return cmp.Compare(a.rx+a.tx, b.rx+b.tx)
	}
	return cmp.Compare(a.standing, b.standing)
}

// fleetColumns returns the columns of the table; the least informative are dropped first.
func fleetColumns(d *data) []cell.Column[*gatewayRow] {
	type row = *gatewayRow
	// needed marks columns that need a snapshot.
	needed := func(c cell.Column[row]) cell.Column[row] {
		text := c.Cell
		c.Cell = func(r row) cell.Cell {
			if r.d.statusAt.IsZero() {
				return cell.Dash("")
			}
			content := text(r)
			if r.standing == gatewayLost {
				content.Style = cell.Quiet
			}
			return content
		}
		return c
	}
	count := func(title string, rank int, of func(r row) int) cell.Column[row] {
		return needed(cell.Column[row]{Title: title, Rank: rank, Right: true, Cell: func(r row) cell.Cell { return cell.Cell{Text: fmt.Sprint(of(r))} }})
	}
	rate := func(title string, rank int, of func(r row) float64) cell.Column[row] {
		return needed(cell.Column[row]{Title: title, Rank: rank, Min: len("999 kB/s"), Right: true, Cell: func(r row) cell.Cell { return cell.Cell{Text: cell.Size(of(r)) + "/s"} }})
	}
	return []cell.Column[row]{
		{Title: "GATEWAY", Max: longName, Cell: func(r row) cell.Cell { return cell.Cell{Text: cell.Printable(r.name), Style: cell.Strong} }},
		{Title: "STATE", Cell: func(r row) cell.Cell { return gatewayCells[r.standing] }},
		count("CONNECTED", 2, func(r row) int { return r.connected }),
		count("OF", 2, func(r row) int { return len(r.d.status.Peers) }),
		needed(cell.Column[row]{Title: "WORST", Rank: 1, Min: 12, Max: 40, Cell: func(r row) cell.Cell { return r.worst }}),
		needed(cell.Column[row]{Title: "VERSION", Rank: 4, Max: shortName, Cell: func(r row) cell.Cell { return cell.Dash(cell.Printable(r.d.status.Gateway.Version)) }}),
		{Title: "SEEN", Rank: 3, Min: len("12s ago"), Cell: func(r row) cell.Cell {
			if r.d.statusAt.IsZero() {
				return cell.Cell{Text: "never", Style: cell.Quiet}
			}
			return cell.Cell{Text: cell.Age(d.now.Sub(r.d.statusAt)) + " ago"}
		}},
		rate("RX/s", 5, func(r row) float64 { return r.rx }),
		rate("TX/s", 5, func(r row) float64 { return r.tx }),
		needed(cell.Column[row]{Title: "NAME", Rank: 6, Max: shortName, Cell: func(r row) cell.Cell { return cell.Dash(cell.Printable(r.d.status.Gateway.Name)) }}),
	}
}

// aboutGateway says what is wrong with it, and what to do.
func aboutGateway(d *data, r *gatewayRow, width int) []string {
	if r.why == "" {
		return nil
	}
	lines := append([]string{d.rule(d.paint.Text(cell.Strong, cell.Printable(r.name))+" "+d.paint.Cell(gatewayCells[r.standing]), width)}, cell.Wrap("", cell.Printable(r.why), width, "")...)
	if r.fix != "" {
		lines = append(lines, cell.Wrap("fix: ", cell.Printable(r.fix), width, "     ")...)
	}
	return lines
}

// fleetTotals counts the gateways by condition.
func (m *model) fleetTotals() string {
	p := m.data.paint
	count := map[gatewayStanding]int{}
	peers, connected := 0, 0
	for i := range m.gateways {
		r := m.row(i)
		count[r.standing]++
		peers, connected = peers+len(r.d.status.Peers), connected+r.connected
	}
	text := fmt.Sprintf("%d gateways:", len(m.gateways))
	for s := gatewayLost; s <= gatewayWell; s++ {
		if count[s] > 0 {
			text += " " + p.Cell(gatewayCells[s].Counted(count[s]))
		}
	}
	return onOneLine([]string{text, fmt.Sprintf("%d of %d peers connected", connected, peers)})
}
