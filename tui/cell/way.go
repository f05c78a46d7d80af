package cell

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

// sign returns an outcome's glyph alone.
func sign(o api.Outcome) Cell {
	c := Outcome(o)
	return Cell{c.Sign(), c.Style}
}

// Strip returns the six verdicts on a peer in nine cells: auth, API server and gateway as found
// there, and as the peer reports them.
func Strip(s *api.PeerStatus) Cell {
	of := func(direction string) string {
		out := ""
		for _, target := range Endpoints() {
			out += Verdict(s, direction, target).Sign()
		}
		return out
	}
	return Cell{"→" + of(api.DirectionOutbound) + " ←" + of(api.DirectionInbound), Signs}
}

// Endpoints returns the endpoints that peering needs, in display order.
func Endpoints() []string {
	return []string{api.ServiceAuth, api.ServiceAPIServer, api.ServiceGateway}
}

// Lines are the characters with which paths are drawn.
type Lines struct{ edge, broken, unknown, across, first, middle, last string }

// BoxLines are Unicode's, ASCIILines for fonts without them.
var (
	BoxLines   = Lines{"│", "╳", "┆", "─", "┌", "├", "└"}
	ASCIILines = Lines{"|", "X", ":", "-", "+", "+", "+"}
)

// maxWayName is how much of a node's name a path shows, in cells.
const maxWayName = 20

func wayName(n *way.Node) string {
	name := Printable(n.Name)
	if n.Kind == way.Relay { // Its name may be its address.
		name = "relay"
	}
	return ansi.Truncate(name, maxWayName, "…")
}

// WayLine draws a path on one line: its nodes, and the state of the edges between them in either
// direction; then the code of the break, the round trip and the services, as far as there is room.
func WayLine(w *way.Way, width int, p Paint, l Lines) string {
	var line strings.Builder
	used := 0
	add := func(cells ...Cell) {
		for _, c := range cells {
			line.WriteString(p.Cell(c))
			used += ansi.StringWidth(c.Text)
		}
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.State != api.OK {
			add(sign(n.State), Cell{Text: " "})
		}
		add(Cell{wayName(n), Strong})
		if i == len(w.Edges) {
			break
		}
		e := &w.Edges[i]
		add(Cell{Text: " " + l.across})
		if e.Out == e.In {
			add(sign(e.State()))
		} else {
			add(Cell{Text: "→"}, sign(e.Out), Cell{Text: "←"}, sign(e.In))
		}
		add(Cell{Text: l.across + " "})
	}
	item := func(cells ...Cell) {
		wide := len(Gap)
		for _, c := range cells {
			wide += ansi.StringWidth(c.Text)
		}
		if width <= 0 || used+wide <= width {
			add(append([]Cell{{Text: Gap}}, cells...)...)
		}
	}
	if b := w.Break; b != nil && b.Code != "" {
		item(Cell{Printable(b.Code), Outcome(b.Outcome).Style})
	}
	if f := Crossing(w); f != nil {
		if rtt := roundTrip(f); rtt != "" {
			item(Cell{Text: rtt})
		}
	}
	for _, name := range []string{api.ServiceAuth, api.ServiceAPIServer} {
		cells := []Cell{{Text: name + " "}}
		for i := range w.Services {
			if n := &w.Services[i]; n.Name == name {
				cells = append(cells, Cell{Text: arrow(n.Direction)}, sign(n.State))
			}
		}
		item(cells...)
	}
	if o := othersState(w); o != "" {
		item(Cell{Text: "services →"}, sign(o))
	}
	return Fit(line.String(), width)
}

// othersState returns the worst outcome of the peer's services besides auth and the API server; ""
// if there are none.
func othersState(w *way.Way) (worst api.Outcome) {
	if w.More != nil {
		worst = w.More.State
	}
	for _, n := range servicesOf(w, api.DirectionOutbound) {
		switch {
		case !way.Other(n.Name):
		case worst == "":
			worst = n.State
		default:
			worst = way.Worse(worst, n.State)
		}
	}
	return worst
}

// roundTrip returns the round trip of the path in use, or the one before the path broke; "" if
// unknown.
func roundTrip(f *way.Path) string {
	rtt := RTT(f.RTTSeconds)
	if f.Before && rtt != "" {
		rtt = "was " + rtt
	}
	return rtt
}

// Crossing returns the path in use, or nil.
func Crossing(w *way.Way) *way.Path {
	for i := range w.Edges {
		if f := w.Edges[i].Path; f != nil {
			return f
		}
	}
	return nil
}

func arrow(direction string) string {
	if direction == api.DirectionInbound {
		return "←"
	}
	return "→"
}

// wayRow is a row of a diagram: the cells at the left, and notes beside them, each of which may
// take several lines. The rail continues at the left of these.
type wayRow struct {
	left  []Cell
	rail  Cell
	notes []Cell
}

// WayDiagram draws a path from top to bottom: the services here that the peer uses, the nodes with
// the edges between them, and the peer's services. The break is marked with its code and what that
// means.
func WayDiagram(w *way.Way, width int, p Paint, l Lines, now time.Time) []string {
	rows := wayRows(w, l, now)
	const least, gap = 30, 2 // The width that notes need, and their distance.
	column := 0
	for _, r := range rows {
		column = max(column, textWidth(r.left))
	}
	column += gap
	if width > 0 {
		column = max(gap, min(column, width-least))
	}
	var lines []string
	for _, r := range rows {
		line := ""
		for _, c := range r.left {
			line += p.Cell(c)
		}
		indent := p.Cell(r.rail) + strings.Repeat(" ", max(0, column-ansi.StringWidth(r.rail.Text)))
		begin := line + strings.Repeat(" ", max(0, column-textWidth(r.left)))
		if textWidth(r.left)+gap > column && len(r.notes) > 0 { // Notes go below.
			lines, begin = append(lines, line), indent
		}
		if len(r.notes) == 0 {
			lines = append(lines, line)
		}
		for _, note := range r.notes {
			for _, text := range Wrap("", note.Text, noteWidth(width, column), "") {
				lines = append(lines, begin+p.Text(note.Style, text))
				begin = indent
			}
		}
	}
	for i := range lines {
		lines[i] = Fit(lines[i], width)
	}
	return lines
}

func noteWidth(width, column int) int {
	if width <= 0 {
		return 0
	}
	return max(1, width-column)
}

func textWidth(cells []Cell) int {
	n := 0
	for _, c := range cells {
		n += ansi.StringWidth(c.Text)
	}
	return n
}

func wayRows(w *way.Way, l Lines, now time.Time) []wayRow {
	var rows []wayRow
	here, there := servicesOf(w, api.DirectionInbound), servicesOf(w, api.DirectionOutbound)
	for i, n := range here {
		branch := l.middle
		if i == 0 {
			branch = l.first
		}
		rows = append(rows, serviceRow(w, n, branch, l.edge))
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		rail := Cell{}
		if i < len(w.Edges) || len(there) > 0 {
			rail = Cell{Text: l.edge}
		}
		rows = append(rows, wayRow{[]Cell{sign(n.State), {" " + wayName(n), Strong}}, rail, append(aboutNode(n, now), faultNotes(w, n.Fault)...)})
		if i < len(w.Edges) {
			rows = append(rows, edgeRow(w, &w.Edges[i], l))
		}
	}
	for i, n := range there {
		branch, rail := l.middle, l.edge
		if i == len(there)-1 && w.More == nil {
			branch, rail = l.last, ""
		}
		rows = append(rows, serviceRow(w, n, branch, rail))
	}
	if w.More != nil {
		rows = append(rows, moreRow(w.More, l.last))
	}
	return rows
}

// moreRow returns the row of the services that have no row of their own.
func moreRow(m *way.More, branch string) wayRow {
	note := Cell{"services, not all known", Quiet}
	switch {
	case m.Failing > 0:
		note = Cell{fmt.Sprintf("services, %d of %d fail", m.Failing, m.Services), Outcome(m.State).Style}
	case m.State == api.OK:
		note.Text = "services, all well"
	}
	return wayRow{[]Cell{{Text: branch + " "}, sign(m.State), {Text: fmt.Sprintf(" %d more", m.Services)}}, Cell{}, []Cell{note}}
}

func servicesOf(w *way.Way, direction string) []*way.Node {
	var out []*way.Node
	for i := range w.Services {
		if w.Services[i].Direction == direction {
			out = append(out, &w.Services[i])
		}
	}
	return out
}

func serviceRow(w *way.Way, n *way.Node, branch, rail string) wayRow {
	user := &w.Nodes[0]
	if n.Direction == api.DirectionInbound {
		user = &w.Nodes[len(w.Nodes)-1]
	}
	use := "used by " + wayName(user)
	switch {
	case n.State == api.Off:
		use = "off"
	case way.Other(n.Name) && n.Address == "" && n.Fault != nil: // nobody can use it
		use = ""
	case way.Other(n.Name) && n.Address == "":
		use = "offered"
	}
	notes := oneNote([]string{use, was(n.Before), RTT(n.RTTSeconds), Printable(n.Address)})
	return wayRow{[]Cell{{Text: branch + " "}, sign(n.State), {Text: " " + wayName(n)}}, Cell{Text: rail}, append(notes, faultNotes(w, n.Fault)...)}
}

func edgeRow(w *way.Way, e *way.Edge, l Lines) wayRow {
	state := e.State()
	rail := Cell{l.edge, Plain}
	switch state {
	case api.Error:
		rail = Cell{l.broken, Bad}
	case api.Unknown:
		rail = Cell{l.unknown, Quiet}
	}
	left := []Cell{rail, {Text: "  out "}, sign(e.Out), {Text: " in "}, sign(e.In)}
	return wayRow{left, rail, append(aboutPath(e.Path), faultNotes(w, e.Fault)...)}
}

// aboutPath returns the figures of a path in use.
func aboutPath(f *way.Path) []Cell {
	if f == nil {
		return nil
	}
	items := []string{strings.TrimSpace(Printable(f.Kind) + " " + Printable(f.Address)), roundTrip(f)}
	if f.LossRatio != nil {
		items = append(items, fmt.Sprintf("%.2f%% lost", 100**f.LossRatio))
	}
	if f.MTU > 0 {
		items = append(items, fmt.Sprintf("MTU %d", f.MTU))
	}
	return oneNote(items)
}

// aboutNode says what is known of a node.
func aboutNode(n *way.Node, now time.Time) []Cell {
	var items []string
	if n.NAT != nil {
		items = append(items, strings.TrimPrefix(NATWords(*n.NAT), "NAT "))
	}
	address := Printable(n.Address)
	if n.Kind == way.Relay && n.Name != n.Address && n.Name != wayName(n) {
		items = append(items, Printable(n.Name))
	}
	switch {
	case address != "" && n.Kind == way.NAT:
		address = "seen at " + address
	case address != "" && n.Source != "":
		address += " (" + Printable(n.Source) + ")"
	}
	items = append(items, address)
	if n.LastHandshake != nil {
		items = append(items, "handshake "+Since(n.LastHandshake, now).Text)
	}
	if n.Probed {
		items = append(items, "answers probes, no handshakes")
	}
	if n.Version != "" {
		items = append(items, "version "+strings.TrimPrefix(Printable(n.Version), "v"))
	}
	return oneNote(items)
}

func oneNote(items []string) []Cell {
	if text := strings.Join(Flow(items, 0), ""); text != "" {
		return []Cell{{Text: text, Style: Quiet}}
	}
	return nil
}

// faultNotes describe a fault in a few words, and mark the break.
func faultNotes(w *way.Way, f *way.Fault) []Cell {
	if f == nil {
		return nil
	}
	text := strings.TrimSpace(Printable(f.Code) + " " + Printable(f.Title))
	if f.Title == "" {
		text = strings.TrimSpace(text + " " + Printable(f.Cause))
	}
	if w.Break != nil && reflect.DeepEqual(w.Break.Fault, *f) {
		text = "◄ " + text
	}
	return []Cell{{text, Outcome(f.Outcome).Style}}
}

// BreakFinding returns the break of a path, which must have one: where it is, why, and what to do.
func BreakFinding(w *way.Way) Finding {
	b := w.Break
	f := Finding{Glyph: sign(b.Outcome), Subject: Printable(w.Peer), Check: b.Check, Direction: b.Direction, Code: Printable(b.Code),
		Title: Printable(b.Title), Where: Printable(b.Place), Cause: Printable(b.Cause), Steps: b.Steps, urgency: urgency(b.Outcome, b.Direction, b.At == way.Service), ofWay: true}
	if !b.Located {
		f.Where += ", place not known yet"
	}
	return f
}

// NATWords explains what a NAT's behaviour (RFC 4787) means for peering.
func NATWords(n api.NAT) string {
	switch n.Mapping {
	case "none":
		return "no NAT"
	case "endpoint-independent":
		text := "NAT keeps one port"
		switch n.Filtering {
		case "endpoint-independent":
			text += ", open to all"
		case "address-dependent":
			text += ", open to addresses it sent to"
		case "address-and-port-dependent", "endpoint-dependent":
			text += ", open only to whom it sent to"
		}
		return text
	case "", "unknown":
		return "NAT not known"
	}
	return "NAT changes its port for each peer"
}
