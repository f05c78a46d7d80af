package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/past"
)

// pane is a part of the screen about one peer. It draws itself into a given room.
type pane struct {
	title func(d *data, p *api.PeerStatus) string
	// draw returns lines of at most width cells: exactly height for a pane that fills its room,
	// otherwise as many as needed.
	draw  func(d *data, p *api.PeerStatus, width, height int) []string
	fills bool
}

// leastFilled is the height below which a pane that fills its room is omitted: the minimum for a
// chart with axes and figures.
const leastFilled = 9

// The panes. On a small screen they are in views of their own.
var (
	paneWay = pane{title: func(d *data, p *api.PeerStatus) string {
		return d.paint.Text(cell.Strong, cell.Printable(p.Name)) + " " + d.paint.Cell(cell.PeerState(p))
	}, draw: func(d *data, p *api.PeerStatus, width, _ int) []string {
		w := d.way(p)
		return cell.WayDiagram(&w, width, d.paint, d.lines(), d.now)
	}}
	paneFindings   = pane{title: titled("what is wrong"), draw: findingLines}
	paneHour       = pane{title: hourTitle, draw: hourLines}
	paneEvents     = pane{title: titled("what happened in the last hour"), draw: eventLines}
	paneFaring     = pane{title: titled("path"), draw: func(d *data, p *api.PeerStatus, width, _ int) []string { return factLines(d, faring(d, p), width) }}
	paneChecks     = pane{title: titled("checks  → from here  ← from there"), draw: checkLines}
	paneCandidates = pane{title: titled("candidates"), draw: func(d *data, p *api.PeerStatus, width, _ int) []string {
		return cell.CandidateTable(p.Candidates, width, d.paint)
	}}
	paneHistory     = pane{title: titled("path history"), draw: func(d *data, p *api.PeerStatus, width, _ int) []string { return wrapped(cell.History(p, d.now), width) }}
	paneConnections = pane{title: titled("open connections"), draw: func(d *data, p *api.PeerStatus, width, _ int) []string { return wrapped(cell.Flows(p, d.now), width) }}
	paneListeners   = pane{title: titled("listeners here"), draw: func(_ *data, p *api.PeerStatus, width, _ int) []string { return wrapped(cell.Listeners(p), width) }}
	paneAbout       = pane{title: titled("about"), draw: func(d *data, p *api.PeerStatus, width, _ int) []string { return factLines(d, about(p), width) }}
	paneThroughput  = pane{title: titled("throughput"), fills: true, draw: func(d *data, _ *api.PeerStatus, width, height int) []string {
		return strings.Split((&throughput{single: true}).draw(d, width, height), "\n")
	}}
	paneAllTraffic = pane{title: titled("throughput"), fills: true, draw: func(d *data, _ *api.PeerStatus, width, height int) []string {
		return strings.Split((&throughput{}).draw(d, width, height), "\n")
	}}
)

// From these widths, the Overview has panes about the selected peer beside the list, in one column
// or two. The wide table has none.
const (
	twoColumns, threeColumns = 110, 180
	columnsHeight            = 24
	// peersShare is the list's share of the width in percent, and lesserShare its share beside two
	// columns.
	peersShare, lesserShare = 55, 53
)

// panes draws the list of peers at the left, above traffic, and panes about the selected peer at
// the right.
func (o *overview) panes(d *data, width, height int) []string {
	peers := width * peersShare / 100
	widths := []int{peers, width - peers - besideGap}
	below, panes := paneThroughput, [][]pane{{paneWay, paneFindings, paneHour, paneFaring, paneChecks}}
	o.top = 2
	room := height - o.top // of the rows
	if width >= threeColumns {
		peers = width * lesserShare / 100
		rest := width - peers - 2*besideGap
		widths = []int{peers, rest - rest*9/20, rest * 9 / 20}
		below, panes = paneAllTraffic, [][]pane{panes[0], {paneThroughput, paneEvents, paneCandidates, paneHistory, paneConnections, paneListeners}}
	}
	if p := d.peer(); tall(d, p, panes[0][:3], widths[1]) > height { // The fix and the history are more important than traffic.
		below, panes[0] = paneWay, panes[0][1:]
		room = max(1, room-tall(d, p, []pane{below}, widths[0]))
	}
	left := append([]string{o.position(d, widths[0])}, o.lines(d, true, widths[0], room)...)
	left = append(left, stack(d, d.peer(), []pane{below}, widths[0], height-len(left))...)
	columns := [][]string{left}
	for i, p := range panes {
		columns = append(columns, stack(d, d.peer(), p, widths[i+1], height))
	}
	return beside(d, columns, widths)
}

func titled(title string) func(*data, *api.PeerStatus) string {
	return func(d *data, _ *api.PeerStatus) string { return d.paint.Text(cell.Strong, title) }
}

// way returns the path to a peer as currently known.
func (d *data) way(p *api.PeerStatus) way.Way {
	return way.Of(&d.status, p, d.report.Checks, d.imported.of(p.Name))
}

// lines returns the characters for paths.
func (d *data) lines() cell.Lines {
	if d.graph == graphASCII {
		return cell.ASCIILines
	}
	return cell.BoxLines
}

// pastLines returns the glyphs for strips.
func (d *data) pastLines() cell.PastLines {
	if d.graph == graphASCII {
		return cell.ASCIIPast
	}
	return cell.BoxPast
}

// stack draws panes below each other, each under its title, in exactly height lines. Those that
// fill their room share what the others leave. Empty ones are omitted.
func stack(d *data, p *api.PeerStatus, panes []pane, width, height int) []string {
	bodies := make([][]string, len(panes))
	room, filling := height, 0
	for i, part := range panes {
		if part.fills {
			filling++
			continue
		}
		bodies[i] = part.draw(d, p, width, room-1)
		if bodies[i] = cutTo(d, bodies[i], width, room-1); len(bodies[i]) > 0 {
			room -= 1 + len(bodies[i])
		}
	}
	for i, part := range panes {
		if part.fills {
			if each := room/filling - 1; each >= leastFilled {
				bodies[i] = part.draw(d, p, width, each)
				room -= 1 + each
			}
			filling--
		}
	}
	var lines []string
	for i, part := range panes {
		if len(bodies[i]) > 0 {
			lines = append(append(lines, d.rule(part.title(d, p), width)), bodies[i]...)
		}
	}
	return exactly(lines, width, height)
}

// tall returns the total height of panes that do not fill their room, with their titles.
func tall(d *data, p *api.PeerStatus, panes []pane, width int) int {
	n := 0
	for _, part := range panes {
		if lines := part.draw(d, p, width, far); len(lines) > 0 {
			n += 1 + len(lines)
		}
	}
	return n
}

// cutTo cuts a text to a height, and says that there is more.
func cutTo(d *data, lines []string, width, height int) []string {
	if height <= 0 {
		return nil
	}
	if len(lines) > height {
		more := d.paint.Text(cell.Quiet, " … enter shows all")
		lines = lines[:height]
		lines[height-1] = cell.Fit(lines[height-1], max(0, width-ansi.StringWidth(more))) + more
	}
	return lines
}

// rule returns the first line of a pane.
func (d *data) rule(title string, width int) string {
	line := d.line()
	begin := d.paint.Text(cell.Quiet, line) + " " + title + " "
	return cell.Fit(begin+d.paint.Text(cell.Quiet, strings.Repeat(line, max(0, width-ansi.StringWidth(begin)))), width)
}

// line returns a piece of a horizontal line.
func (d *data) line() string {
	if d.graph == graphASCII {
		return "-"
	}
	return "─"
}

// beside puts columns side by side, each padded to its width.
func beside(d *data, columns [][]string, widths []int) []string {
	bar := "│"
	if d.graph == graphASCII {
		bar = "|"
	}
	bar = " " + d.paint.Text(cell.Quiet, bar) + " "
	lines := make([]string, len(columns[0]))
	for i := range lines {
		for n, column := range columns {
			if n > 0 {
				lines[i] += bar
			}
			if n == len(columns)-1 {
				lines[i] += column[i]
			} else {
				lines[i] += cell.Pad(column[i], widths[n])
			}
		}
	}
	return lines
}

// besideGap is the width of the bar between two columns.
const besideGap = 3

// findingLines draws what is wrong with a peer.
func findingLines(d *data, p *api.PeerStatus, width, _ int) []string {
	return drawn(d, d.wrong(p), width)
}

// wrong returns all problems of a peer in the order in which to fix them, or that there are none if
// it works.
func (d *data) wrong(p *api.PeerStatus) []cell.Finding {
	w := d.way(p)
	wrong := cell.Wrong(&w, append(cell.Findings(p), cell.ProblemFindings(d.status.Problems, p.Name)...))
	if len(wrong) == 0 && cell.StandingOf(p).Works() {
		return []cell.Finding{cell.NoFault(p)}
	}
	return wrong
}

// fix returns the first fix to do for a peer; without Steps there is none.
func (d *data) fix(p *api.PeerStatus) cell.Finding {
	wrong := d.wrong(p)
	if i := slices.IndexFunc(wrong, func(f cell.Finding) bool { return len(f.Steps) > 0 }); i >= 0 {
		return wrong[i]
	}
	return cell.Finding{}
}

// drawn draws findings below each other.
func drawn(d *data, findings []cell.Finding, width int) []string {
	var lines []string
	for _, f := range findings {
		lines = append(lines, f.Lines(width, d.paint)...)
	}
	return lines
}

// hourLines draws the last hour of a peer.
func hourLines(d *data, p *api.PeerStatus, width, height int) []string {
	h := d.hourOf(p)
	if h == nil || len(h.Points) == 0 || height < past.FewestStrips {
		return nil
	}
	return d.drawing(h.until, hour).Strips(&h.PeerHistory, width, min(height, hourHeight))
}

// eventLines draws the events of a peer in the last hour, the latest first.
func eventLines(d *data, p *api.PeerStatus, width, _ int) []string {
	h := d.hourOf(p)
	if h == nil {
		return nil
	}
	var lines []string
	for i := range slices.Backward(h.Events) {
		lines = append(lines, d.drawing(h.until, hour).Event(&h.Events[i], width)...)
	}
	return lines
}

// hourTitle explains the signs and letters of the last hour.
func hourTitle(d *data, p *api.PeerStatus) string {
	title := d.paint.Text(cell.Strong, "the last hour")
	if h := d.past.hours[p.Name]; h != nil {
		title += cell.Gap + d.paint.Text(cell.Quiet, d.drawing(h.until, hour).Legend(&h.PeerHistory))
	}
	return title
}

// hourHeight is the height of the last hour among other panes.
const hourHeight = 10

// checkLines draws the checks of a peer, or the status if there were none.
func checkLines(d *data, p *api.PeerStatus, width, _ int) []string {
	var lines []string
	for _, c := range d.checksOf(p.Name) {
		lines = append(lines, cell.CheckLines(c, cell.Subject(c, false), width, d.paint, d.now, true)...)
	}
	if len(lines) > 0 {
		return lines
	}
	lines = cell.Reachability(p, d.paint)
	for _, f := range cell.VerdictFindings(p) {
		lines = append(append(lines, ""), f.Lines(width, d.paint)...)
	}
	return lines
}

// faring describes the state of a peering.
func faring(d *data, s *api.PeerStatus) [][2]string {
	why := ""
	if s.Path.Kind != api.PathNone && cell.StandingOf(s).Works() {
		why = cell.Printable(s.Path.Reason)
	}
	trial := ""
	if s.UndoneAt != nil {
		trial = "changes to what it may reach are undone in " + countdown(*s.UndoneAt, d.now) + "; to keep it: postern peer confirm " + cell.Printable(s.Name)
	}
	w := d.way(s)
	carries, loss := "carries", false
	if f := cell.Crossing(&w); f != nil { // A fault may have its own figure, and a dead path has none.
		if loss = f.LossRatio != nil; f.Before {
			carries = "carried"
		}
	}
	return [][2]string{
		{"on trial", trial},
		{"path", cell.PathOf(&w, &s.Path, d.now)},
		{"why", why},
		{carries, cell.Carries(s.Path.Traffic, loss)},
		{"handshake", cell.HandshakeLine(s, d.now)},
		{"traffic", fmt.Sprintf("rx %s (%s/s), tx %s (%s/s)", cell.Size(float64(s.RxBytes)), cell.Size(s.RxBytesPerSecond), cell.Size(float64(s.TxBytes)), cell.Size(s.TxBytesPerSecond))},
		{"identity", cell.IdentityLine(s, d.now)},
	}
}

// about describes the peer itself.
func about(s *api.PeerStatus) [][2]string {
	kind, mtu := "", ""
	if s.Stock {
		kind = "plain WireGuard peer"
	}
	if s.Path.MTU != 0 {
		mtu = fmt.Sprintf("%d bytes", s.Path.MTU)
	}
	return [][2]string{
		{"may reach", cell.OrNothing(s.Allow)},
		{"offers us", cell.OrNothing(s.Offers)},
		{"kind", kind},
		{"labels", cell.Labels(s)},
		{"mode", cell.Printable(s.Mode)},
		{"version", cell.Printable(s.Version)},
		{"path MTU", mtu},
		{"address", cell.Printable(s.Address)},
		{"public key", cell.Printable(s.PublicKey)},
	}
}

// factLines returns a line for each fact that is present.
func factLines(d *data, facts [][2]string, width int) []string {
	const indent = 12
	var lines []string
	for _, f := range facts {
		name, value := f[0], f[1]
		if value == "" {
			continue
		}
		label := name + strings.Repeat(" ", max(1, indent-ansi.StringWidth(name)))
		for i, l := range cell.Wrap(label, value, width, strings.Repeat(" ", indent)) {
			if rest, ok := strings.CutPrefix(l, name); ok && i == 0 {
				l = d.paint.Text(cell.Quiet, name) + rest
			}
			lines = append(lines, l)
		}
	}
	return lines
}

func wrapped(rows []string, width int) []string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, cell.Wrap("  ", r, width, "    ")...)
	}
	return lines
}
