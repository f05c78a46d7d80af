package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
	"github.com/postern-dev/postern/tui/past"
)

const titleOverview = "Overview"

// overview has a row for each peer, and the problems of the selected one: below them, or beside
// them if there is room.
type overview struct {
	sorting
	listing[*api.PeerStatus]
	// entries are the lines shown for the rows, and table has their columns.
	entries     []entry
	table       *cell.Table[*api.PeerStatus]
	tableMadeOf tableMadeOf
	// grouping is the current grouping, and folded are the groups whose peers are hidden.
	grouping string
	folded   map[string]bool
	folds    int // counts changes of folded
	// top is the line at which they began, and width their width.
	top, width int
}

func newOverview() *overview {
	return &overview{sorting: sorting{
		columns:       []string{sortTrouble, sortPeer, "state", "path", "rtt", "rx", "tx", "handshake"},
		greatestFirst: []string{"rtt", "rx", "tx"},
		column:        sortTrouble,
	}, grouping: groupNone, folded: map[string]bool{}}
}

// sortTrouble puts the most urgent first.
const sortTrouble = "trouble"

func (*overview) title() string { return titleOverview }

func (*overview) bindings() []key.Binding {
	k := keys()
	return []key.Binding{describe(k.enter, "open peer"), describe(k.probe, "check peer now"), k.act, describe(k.copy, "copy its fix")}
}

// describe sets a binding's meaning in one view.
func describe(b key.Binding, does string) key.Binding {
	b.SetHelp(b.Help().Key, does)
	return b
}

func (o *overview) update(msg tea.Msg, d *data) tea.Cmd {
	switch msg := msg.(type) {
	case tea.MouseMsg:
		if msg.X < o.width {
			d.peers.mouse(msg, o.ids, o.top)
		}
	case tea.KeyMsg:
		if g := o.selectedGroup(d); g != nil && key.Matches(msg, keys().fold) {
			o.fold(g)
			return nil
		}
		if d.peers.key(msg, o.ids) {
			return nil
		}
		return peerKey(msg, d)
	}
	return nil
}

// peerKey handles keys for the selected peer.
func peerKey(msg tea.KeyMsg, d *data) tea.Cmd {
	k := keys()
	p := d.peer()
	switch {
	case key.Matches(msg, k.enter) && p != nil:
		d.peers.choose(peerID(p))
		return ask(openMsg{titlePeer})
	case key.Matches(msg, k.probe) && p != nil:
		return ask(probeMsg{p.Name})
	case key.Matches(msg, k.act) && p != nil:
		return ask(actsOn(d, p))
	case key.Matches(msg, k.copy) && p != nil:
		return ask(copyFix(d.fix(p).Steps, p.Name))
	}
	return nil
}

// peerTexts returns the texts by which a peer can be found: what identifies it, its state, and its
// problems.
func peerTexts(p *api.PeerStatus) []string {
	texts := []string{p.Name, string(p.Shown()), cell.PeerState(p).Text, p.Path.Kind, p.Path.Remote, p.Address, p.Reason, p.PublicKey, p.ApprovalFingerprint, p.Version, cell.Labels(p)}
	out, in := &p.Reachability.Outbound, &p.Reachability.Inbound
	for _, v := range []*api.Verdict{&out.Auth, &out.APIServer, &out.Gateway, &in.Auth, &in.APIServer, &in.Gateway} {
		if v.Code != "" {
			texts = append(texts, v.Code, v.Cause)
		}
	}
	return append(texts, p.Allow...)
}

func (o *overview) compare(a, b *api.PeerStatus) int {
	switch o.column {
	case sortTrouble, "state":
		return cmp.Or(cmp.Compare(cell.StandingOf(a), cell.StandingOf(b)), cell.CompareNames(a.Name, b.Name))
	case "path":
		return cmp.Compare(a.Path.Kind, b.Path.Kind)
	case "rtt":
		return cmp.Compare(a.Path.RTTSeconds, b.Path.RTTSeconds)
	case "rx":
		return cmp.Compare(a.RxBytesPerSecond, b.RxBytesPerSecond)
	case "tx":
		return cmp.Compare(a.TxBytesPerSecond, b.TxBytesPerSecond)
	case "handshake":
		return timeOf(a.LastHandshake).Compare(timeOf(b.LastHandshake))
	}
	return cell.CompareNames(a.Name, b.Name)
}

func (o *overview) draw(d *data, width, height int) string {
	o.list(d)
	if len(o.rows) == 0 {
		return sentence(d.nobody(), width, height)
	}
	d.peers.settle(o.ids)
	if !d.wide && width >= twoColumns && height >= columnsHeight {
		return page(o.panes(d, width, height), width, height)
	}
	trouble := o.trouble(d, width, height)
	o.top = 1
	compact := d.wide && width < twoColumns // verdicts as signs leave room for more
	lines := o.lines(d, compact, width, max(1, height-1-len(trouble)))
	lines = exactly(lines, width, height-len(trouble))
	return page(append(lines, trouble...), width, height)
}

// legend explains the arrows of verdicts, and letters those of compact ones.
const legend, letters = "→ what we use there  ← what the peer uses here", "apg: auth, API, gateway  → we use it  ← peer uses it"

// lines returns the titles and height rows; compact ones show the verdicts as signs. A legend is
// below the last if there is room.
func (o *overview) lines(d *data, compact bool, width, height int) []string {
	o.width = width
	first, last := d.peers.window(o.ids, height)
	table := o.measured(d, compact, unmarked(width))
	lines := []string{"  " + table.Header(d.paint)}
	shown := table.Shown()
	var signs strings.Builder
	for i := first; i < last; i++ {
		row := ""
		switch e := o.entries[i]; {
		case e.group != nil:
			row = o.titleLine(d, e.group, unmarked(width))
		default:
			if slices.Contains(shown, titleHour) {
				d.hourOf(o.rows[e.row])
			}
			row = table.Row(d.paint, e.row)
			signs.WriteString(table.Styled(cell.Signs, e.row))
		}
		lines = append(lines, marked(row, o.ids[i] == d.peers.id, width, d.paint))
	}
	texts := []string{legend}
	if compact {
		texts[0] = letters
	}
	then := d.pastLines().Legend(signs.String())
	if len(then) > 0 {
		then[0] = "last hour: " + then[0]
	}
	texts = append(texts, cell.Flow(append(cell.Legend(signs.String()), then...), unmarked(width))...)
	for _, text := range texts[:max(0, min(len(texts), height-last+first))] {
		lines = append(lines, d.paint.Text(cell.Quiet, cell.Fit("  "+text, width)))
	}
	return lines
}

// nobody says why there are no peers to show.
func (d *data) nobody() string {
	if len(d.status.Peers) > 0 {
		return "the filter picks no peer; esc clears it"
	}
	return "no peers yet: postern invite makes a ticket, postern join redeems one"
}

// trouble says at the foot of the view how the selected peer is reached, what fails, why, and what
// to do: in the room below the rows, or in half of the view.
func (o *overview) trouble(d *data, width, height int) []string {
	room := max(height-1-len(o.ids), height/2) - 1
	p := d.peer()
	if p == nil || room < 3 {
		return nil
	}
	w := d.way(p)
	lines := append([]string{cell.WayLine(&w, width, d.paint, d.lines())}, findingLines(d, p, width, room)...)
	return append([]string{o.position(d, width)}, cutTo(d, lines, width, room)...)
}

// position returns a line that says which of the peers is selected, and their order.
func (o *overview) position(d *data, width int) string {
	return d.rule(fmt.Sprintf("%s %d of %d, by %s", d.paint.Text(cell.Strong, "peers"), o.entries[d.peers.at].row+1, len(o.rows), o.order()), width)
}

// layout uses short words for verdicts if that saves a column, and short names if that saves a
// verdict.
func (o *overview) layout(d *data, width int) *cell.Table[*api.PeerStatus] {
	try := func(as wording, maxName int) *cell.Table[*api.PeerStatus] {
		return cell.Layout(o.titled(overviewColumns(d, as, maxName)), o.rows, width)
	}
	best := try(inWords, longName)
	if best.Complete() {
		return best
	}
	if short := try(inShortWords, longName); len(short.Shown()) > len(best.Shown()) {
		best = short
	}
	if slices.Contains(best.Shown(), lastVerdict) {
		return best
	}
	if short := try(inShortWords, shortName); len(short.Shown()) > len(best.Shown()) {
		best = short
	}
	return best
}

// lastVerdict is the title of the verdict that is dropped first.
const lastVerdict = "←GW"

// titled marks the title of the sort column.
func (o *overview) titled(columns []cell.Column[*api.PeerStatus]) []cell.Column[*api.PeerStatus] {
	for i := range columns {
		if name := strings.TrimSuffix(strings.ToLower(columns[i].Title), "/s"); name == o.column {
			columns[i].Title += o.arrow()
		}
	}
	return columns
}

// longName is the maximum width of a name, in cells, and shortName the one if a verdict would have
// no room: with it names, state and path nearly fit a terminal of 80.
const (
	longName  = 24
	shortName = 16
)

// sparkCells and sparkWindow are the size of the sparkline: two samples a cell.
const (
	sparkCells  = 10
	sparkWindow = 20 * time.Second
)

// trailCells, stripCells and courseCells are the widths of the last hour of the state and path, of
// each verdict, and of the round trip. trailSigns is the first if verdicts are signs.
const (
	titleHour   = "LAST HOUR"
	titleSigns  = "→apg ←apg"
	trailCells  = 20
	trailSigns  = 10
	stripCells  = 5
	courseCells = 10
)

// wording is how current verdicts are written in the list.
type wording int

const (
	inWords      wording = iota
	inShortWords         // of at most four letters
	inSigns              // all in one column, which leaves room for the last hour
)

// overviewColumns returns the columns from left to right. An arrow to the right marks what this
// gateway finds at the peer, one to the left what the peer reports about this gateway.
func overviewColumns(d *data, as wording, maxName int) []cell.Column[*api.PeerStatus] {
	type peer = *api.PeerStatus
	type column = cell.Column[peer]
	text := func(s string) cell.Cell { return cell.Cell{Text: s} }
	verdict := func(title string, rank int, direction, target string) column {
		return column{Title: title, Rank: rank, Cell: func(p peer) cell.Cell {
			c := cell.Verdict(p, direction, target)
			if as == inShortWords {
				c.Text = shortened(c.Text)
			}
			return c
		}}
	}
	strip := func(title string, rank, cells int, s past.Strip) column {
		return column{Title: title, Rank: rank, Min: cells, Max: cells, Cell: func(p peer) cell.Cell { return cell.Cell{Text: d.strip(p, s, cells), Style: cell.Signs} }}
	}
	verdicts := []column{
		verdict("→AUTH", 2, api.DirectionOutbound, api.ServiceAuth),
		verdict("→API", 1, api.DirectionOutbound, api.ServiceAPIServer),
		verdict("→GW", 3, api.DirectionOutbound, api.ServiceGateway),
		verdict("←AUTH", 6, api.DirectionInbound, api.ServiceAuth),
		verdict("←API", 5, api.DirectionInbound, api.ServiceAPIServer),
		verdict(lastVerdict, 7, api.DirectionInbound, api.ServiceGateway),
	}
	strips := []column{strip(titleHour, 9, trailCells, past.State)}
	stripRanks := [...]int{10, 11} // by direction
	if as == inSigns {
		verdicts = []column{{Title: titleSigns, Rank: 1, Cell: cell.Strip}}
		strips, stripRanks = []column{strip(titleHour, 2, trailSigns, past.State)}, [...]int{3, 5}
	}
	for i, s := range past.Verdicts {
		strips = append(strips, strip(s.Name, stripRanks[i/3], stripCells, s))
	}
	columns := slices.Concat([]column{
		{Title: "PEER", Max: maxName, Cell: func(p peer) cell.Cell { return cell.Cell{Text: cell.Printable(p.Name), Style: cell.Strong} }},
		{Title: "STATE", Cell: cell.PeerState},
		{Title: "PATH", Rank: 4, Min: 6, Cell: func(p peer) cell.Cell { return cell.Path(p.Path.Kind) }},
		{Title: "RTT", Rank: 8, Min: 6, Right: true, Cell: func(p peer) cell.Cell { return cell.Dash(cell.RTT(p.Path.RTTSeconds)) }},
	}, verdicts, []column{
		{Title: "RX/s", Rank: 13, Min: 7, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(p.RxBytesPerSecond)) }},
		{Title: "TX/s", Rank: 14, Min: 7, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(p.TxBytesPerSecond)) }},
		{Title: "TRAFFIC", Rank: 12, Min: sparkCells, Max: sparkCells, Cell: func(p peer) cell.Cell { return cell.Cell{Text: spark(d, p)} }},
	}, strips, []column{
		{Title: "RTT/h", Rank: 14, Min: courseCells, Max: courseCells, Cell: func(p peer) cell.Cell { return cell.Cell{Text: d.rttCourse(p, courseCells)} }},
		{Title: "HANDSHAKE", Rank: 15, Cell: func(p peer) cell.Cell { return cell.Since(p.LastHandshake, d.now) }},
	})
	if !d.wide {
		return columns
	}
	return append(columns, []column{
		{Title: "REMOTE", Rank: 16, Cell: func(p peer) cell.Cell { return cell.Dash(cell.Printable(p.Path.Remote)) }},
		{Title: "RX ALL", Rank: 17, Min: 7, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(float64(p.RxBytes))) }},
		{Title: "TX ALL", Rank: 17, Min: 7, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(float64(p.TxBytes))) }},
		{Title: "IDENTITY", Rank: 18, Cell: func(p peer) cell.Cell { return cell.Left(p.Identity, d.now) }},
		{Title: "VERSION", Rank: 19, Cell: func(p peer) cell.Cell { return cell.Dash(cell.Printable(p.Version)) }},
		{Title: "ADDRESS", Rank: 20, Cell: func(p peer) cell.Cell { return cell.Dash(cell.Printable(p.Address)) }},
	}...)
}

// shortened returns a verdict's word with at most four letters, or in two words.
func shortened(text string) string {
	switch text {
	case "! warning":
		return "! warn"
	case "✗ error":
		return "✗ fail"
	case "? unknown":
		return "? unkn"
	}
	return text
}

// spark draws a peer's traffic in both directions, scaled to its maximum.
func spark(d *data, p *api.PeerStatus) string {
	samples := d.samples(peerID(p), d.now.Add(-sparkWindow-interval))
	points := func(yield func(int64, float64) bool) {
		for _, s := range samples {
			if !yield(s.unixMilli, float64(s.rx)+float64(s.tx)) {
				return
			}
		}
	}
	return chart.Sparkline(points, d.now, sparkWindow, sparkCells, chart.Graph(d.graph), d.paint)
}
