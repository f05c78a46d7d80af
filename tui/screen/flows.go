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

const titleFlows = "Flows"

// flows lists the open connections of all peers through the tunnel.
type flows struct {
	sorting
	listing[flowRow]
	meters meters
}

func newFlows() *flows {
	return &flows{sorting: sorting{
		columns:       []string{sortRate, sortBytes, sortAge, sortPeer, sortService, sortDirection, sortRemote},
		greatestFirst: []string{sortRate, sortBytes, sortAge},
		column:        sortRate,
		descending:    true,
	}}
}

func (*flows) title() string { return titleFlows }

func (*flows) bindings() []key.Binding {
	k := keys()
	return []key.Binding{describe(k.enter, "open the flow's peer"), describe(k.probe, "check that peer now")}
}

// Sort columns of flows.
const (
	sortRate      = "rate"
	sortBytes     = "bytes"
	sortAge       = "age"
	sortPeer      = "peer"
	sortService   = "service"
	sortDirection = "direction"
	sortRemote    = "remote"
)

// flowRow is a flow, its peer, and its rates.
type flowRow struct {
	id     string
	peer   *api.PeerStatus
	flow   *api.Flow
	rx, tx float64 // bytes per second
	known  bool    // whether the rates are known
}

// update implements view.
func (v *flows) update(msg tea.Msg, d *data) tea.Cmd {
	switch msg := msg.(type) {
	case tea.MouseMsg:
		d.flows.mouse(msg, v.ids, flowsTop)
	case tea.KeyMsg:
		if d.flows.key(msg, v.ids) {
			return nil
		}
		i := slices.Index(v.ids, d.flows.id)
		if i < 0 {
			return nil
		}
		switch p := v.rows[i].peer; {
		case key.Matches(msg, keys().enter):
			d.peers.choose(peerID(p))
			return ask(openMsg{titlePeer})
		case key.Matches(msg, keys().probe):
			return ask(probeMsg{p.Name})
		}
	}
	return nil
}

// flowsTop is the line at which the list begins, after the summary and the titles.
const flowsTop = 2

// draw implements view.
func (v *flows) draw(d *data, width, height int) string {
	v.meters.take(d)
	v.list(d)
	rows := v.rows
	lines := []string{cell.Fit(v.summary(d, rows), width)}
	first, last := d.flows.window(v.ids, height-flowsTop)
	if len(rows) == 0 {
		text := "no connection passes through the tunnel"
		if d.filter.text != "" {
			text = "no flow has " + cell.Printable(d.filter.text) + "; esc clears the filter"
			if strings.HasPrefix(d.filter.text, "!") {
				text = "every flow has " + cell.Printable(d.filter.text[1:]) + "; esc clears the filter"
			}
		}
		lines = append(lines, d.paint.Text(cell.Quiet, text))
		return page(lines, width, height)
	}
	table := cell.Layout(v.layout(d), rows[first:last], unmarked(width))
	lines = append(lines, "  "+table.Header(d.paint))
	for i := range rows[first:last] {
		lines = append(lines, marked(table.Row(d.paint, i), rows[first+i].id == d.flows.id, width, d.paint))
	}
	return page(lines, width, height)
}

// summary counts the flows and names their order.
func (v *flows) summary(d *data, rows []flowRow) string {
	all := 0
	for i := range d.status.Peers {
		all += len(d.status.Peers[i].Flows) + cell.Unlisted(&d.status.Peers[i])
	}
	count := someOf(len(rows), all, "flow", "flows")
	var rx, tx float64
	for i := range rows {
		rx, tx = rx+rows[i].rx, tx+rows[i].tx
	}
	return onOneLine([]string{d.paint.Text(cell.Strong, count), "by " + v.column + " " + v.arrow(), "rx " + cell.Size(rx) + "/s tx " + cell.Size(tx) + "/s"})
}

// list updates the list: the filtered flows, sorted.
func (v *flows) list(d *data) {
	if !v.stale(listOf{firstOf(d.status.Peers), d.filter, v.column, v.descending, nil}) {
		return
	}
	for i := range d.status.Peers {
		p := &d.status.Peers[i]
		same := map[string]int{}
		for j := range p.Flows {
			f := &p.Flows[j]
			id := flowID(p, f)
			// Flows with the same identity are distinguished by their order.
			if same[id]++; same[id] > 1 {
				id = fmt.Sprintf("%s#%d", id, same[id])
			}
			if !d.filter.match(p.Name, f.Direction, f.Service, f.Remote) {
				continue
			}
			m, known := v.meters.of(id)
			v.rows = append(v.rows, flowRow{id, p, f, m.rx, m.tx, known})
		}
	}
	slices.SortStableFunc(v.rows, func(a, b flowRow) int {
		// Equal ones must not swap between snapshots.
		return cmp.Or(v.directed(v.compare(&a, &b)), cell.CompareNames(a.peer.Name, b.peer.Name), cmp.Compare(a.id, b.id))
	})
	for i := range v.rows {
		v.ids = append(v.ids, v.rows[i].id)
	}
}

func (v *flows) compare(a, b *flowRow) int {
	switch v.column {
	case sortBytes:
		return cmp.Compare(a.flow.RxBytes+a.flow.TxBytes, b.flow.RxBytes+b.flow.TxBytes)
	case sortAge:
		return b.flow.StartedAt.Compare(a.flow.StartedAt)
	case sortPeer:
		return cell.CompareNames(a.peer.Name, b.peer.Name)
	case sortService:
		return cell.CompareNames(a.flow.Service, b.flow.Service)
	case sortDirection:
		return cell.CompareNames(a.flow.Direction, b.flow.Direction)
	case sortRemote:
		return cell.CompareNames(a.flow.Remote, b.flow.Remote)
	}
	return cmp.Compare(a.rx+a.tx, b.rx+b.tx)
}

// layout lays out the list; the least informative columns are dropped first.
func (*flows) layout(d *data) []cell.Column[flowRow] {
	rate := func(title string, rank int, pick func(flowRow) float64) cell.Column[flowRow] {
		return cell.Column[flowRow]{Title: title, Rank: rank, Min: len("999 MB/s"), Right: true, Cell: func(r flowRow) cell.Cell {
			if !r.known {
				return cell.Dash("")
			}
			return cell.Cell{Text: cell.Size(pick(r)) + "/s"}
		}}
	}
	bytes := func(title string, rank int, pick func(flowRow) uint64) cell.Column[flowRow] {
		return cell.Column[flowRow]{Title: title, Rank: rank, Min: len("999 MB"), Right: true, Cell: func(r flowRow) cell.Cell {
			return cell.Cell{Text: cell.Size(float64(pick(r)))}
		}}
	}
	return []cell.Column[flowRow]{
		{Title: "PEER", Cell: func(r flowRow) cell.Cell {
			return cell.Cell{Text: cell.Fit(cell.Printable(r.peer.Name), maxFlowName), Style: cell.Strong}
		}},
		{Title: "DIR", Rank: 4, Cell: func(r flowRow) cell.Cell { return directionCell(r.flow.Direction) }},
		{Title: "SERVICE", Rank: 1, Min: len(api.ServiceAPIServer), Cell: func(r flowRow) cell.Cell { return cell.Dash(cell.Fit(cell.Printable(r.flow.Service), maxFlowName)) }},
		{Title: "REMOTE", Rank: 5, Min: len("127.0.0.1:65535"), Cell: func(r flowRow) cell.Cell { return cell.Dash(cell.Remote(r.flow)) }},
		rate("RX/s", 2, func(r flowRow) float64 { return r.rx }),
		rate("TX/s", 3, func(r flowRow) float64 { return r.tx }),
		{Title: "LIMIT", Rank: 8, Min: len(api.LimitCongestion), Cell: func(r flowRow) cell.Cell {
			return cell.Dash(cell.Limit(r.flow, r.peer.Path.Traffic))
		}},
		bytes("RX", 7, func(r flowRow) uint64 { return r.flow.RxBytes }),
		bytes("TX", 9, func(r flowRow) uint64 { return r.flow.TxBytes }),
		{Title: "AGE", Rank: 6, Min: len("59m"), Right: true, Cell: func(r flowRow) cell.Cell {
			if r.flow.StartedAt.IsZero() {
				return cell.Dash("")
			}
			return cell.Cell{Text: cell.Age(d.now.Sub(r.flow.StartedAt))}
		}},
	}
}

// maxFlowName keeps one long name from pushing everything else off the screen.
const maxFlowName = 24

// directionCell says who opened the connection.
func directionCell(direction string) cell.Cell {
	switch direction {
	case api.DirectionOutbound:
		return cell.Cell{Text: "→ out"}
	case api.DirectionInbound:
		return cell.Cell{Text: "← in"}
	}
	return cell.Dash(cell.Printable(direction))
}

// flowID identifies a flow, and distinguishes it from a later one with the same ends.
func flowID(p *api.PeerStatus, f *api.Flow) string {
	return fmt.Sprintf("%s %s %s %s %s %d", peerID(p), f.Direction, f.Protocol, f.Service, f.Remote, f.StartedAt.UnixNano())
}
