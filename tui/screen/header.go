package screen

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// header returns the header, in at most a sixth of the screen's lines. The most important comes
// first: a lost gateway, then totals, then the network.
func (m *model) header() []string {
	d := m.data
	if m.onFleet() {
		return []string{d.beside(m.fleetTotals(), m.still())}
	}
	var lines []string
	if d.lost != nil {
		lines = append(lines, m.banner())
	}
	if d.statusAt.IsZero() {
		return lines
	}
	lines = append(lines, m.totals())
	if t := d.trial(); t != "" {
		lines = append(lines, t)
	}
	g := &d.status.Gateway
	network := []string{m.traffic(), cell.NATWords(g.NAT)}
	for _, a := range g.NAT.PublicAddresses {
		network = append(network, cell.Printable(a))
	}
	if g.ListenPort != 0 {
		network = append(network, fmt.Sprintf("UDP port %d", g.ListenPort))
	}
	identity := []string{cell.Printable(g.Address)}
	if !g.StartedAt.IsZero() {
		identity = append(identity, "up "+cell.Age(d.now.Sub(g.StartedAt)))
	}
	identity = append(identity, cell.Printable(g.Version))
	if d.wide {
		identity = append(identity, "key "+cell.Printable(g.PublicKey))
	}
	lines = append(lines, onOneLine(network), onOneLine(identity))
	room := min(maxHeader, max(1, d.height/6))
	if d.lost != nil || g.ConfigUndoneAt != nil {
		room = max(room, 2)
	}
	return lines[:min(len(lines), room)]
}

// trial says until when a configuration is on trial, and how to keep it; "" without one.
func (d *data) trial() string {
	at := d.status.Gateway.ConfigUndoneAt
	if at == nil {
		return ""
	}
	left, keep := countdown(*at, d.now), "postern config confirm"
	text := "! configuration on trial: undone in " + left + "; to keep it: " + keep
	if ansi.StringWidth(text) > d.width {
		text = "undone in " + left + ": " + keep
	}
	return d.paint.Text(cell.Wary, cell.Fit(text, d.width))
}

// countdown returns the time until a moment.
func countdown(at, now time.Time) string { return max(0, at.Sub(now).Round(time.Second)).String() }

// maxHeader bounds the header, in lines. A lost gateway takes the place of the last one, so that
// the lines below do not move.
const maxHeader = 3

func onOneLine(items []string) string {
	var there []string
	for _, i := range items {
		if i != "" {
			there = append(there, i)
		}
	}
	return strings.Join(there, " · ")
}

// banner says that the gateway does not answer.
func (m *model) banner() string {
	d := m.data
	now := m.now()
	text := "✗ no gateway answers"
	if !d.statusAt.IsZero() {
		text = "✗ lost the gateway " + cell.Age(now.Sub(d.lostSince)) + " ago"
	}
	switch wait := d.nextTry.Sub(now); {
	case m.paused():
	case wait > 0:
		text += ", asking again in " + cell.Age(wait+interval-1)
	default:
		text += ", asking again"
	}
	if !d.statusAt.IsZero() {
		text += ": " + cell.Printable(d.lost.Error())
	}
	return d.paint.Text(cell.Bad, cell.Fit(text, d.width))
}

// totals returns the gateway's name and its peers by state; at the right, whether the screen is
// frozen.
func (m *model) totals() string {
	d := m.data
	still := m.still()
	var line string
	room := d.width - ansi.StringWidth(still)
	for _, short := range []bool{false, true} {
		line = m.totalsLine(short)
		if ansi.StringWidth(line) < room {
			break
		}
	}
	if d.stale() {
		line = d.greyed(line)
	}
	return d.beside(line, still)
}

// still says that the screen is frozen, and why; "" otherwise.
func (m *model) still() string {
	d := m.data
	switch {
	case d.frozen:
		return d.paint.Text(cell.Wary, "= frozen")
	case m.blurred && d.width < 60:
		return d.paint.Text(cell.Wary, "= paused")
	case m.blurred:
		return d.paint.Text(cell.Wary, "= paused, not in focus")
	}
	return ""
}

// beside puts a word at the right end of a line.
func (d *data) beside(line, word string) string {
	if word == "" {
		return line
	}
	return cell.Pad(cell.Fit(line, max(0, d.width-ansi.StringWidth(word)-1)), max(0, d.width-ansi.StringWidth(word)-1)) + " " + word
}

// counted returns the number of peers, and the number by state.
func (d *data) counted(peers int, count map[cell.Standing]int, short bool) string {
	all := cell.Count(peers, "peer", "peers")
	var states []string
	for _, s := range cell.Standings() {
		if count[s] == 0 {
			continue
		}
		c := s.Cell().Counted(count[s])
		if short {
			c.Text = fmt.Sprintf("%s%d", c.Sign(), count[s])
		}
		states = append(states, d.paint.Cell(c))
	}
	if len(states) > 0 {
		all += ": " + strings.Join(states, " ")
	}
	return all
}

func (m *model) totalsLine(short bool) string {
	d := m.data
	p := d.paint
	items := []string{p.Text(cell.Strong, cell.Printable(d.status.Gateway.Name)), d.counted(len(d.status.Peers), d.count, short)}
	if badge, wrong := d.badge(short); wrong {
		items = append(items, p.Cell(badge))
	}
	if d.stale() {
		items = append(items, "as of "+d.statusAt.Format(time.TimeOnly))
	}
	return onOneLine(items)
}

// badge names the worst fault, its gateway, and the number of other codes.
func (d *data) badge(short bool) (cell.Cell, bool) {
	if d.worst.Code == "" {
		return cell.Cell{}, false
	}
	c := cell.Outcome(d.worst.Outcome)
	c.Text = c.Sign() + " " + cell.Printable(d.worst.Code)
	if short {
		return c, true
	}
	c.Text += " " + cmp.Or(ansi.Truncate(cell.Printable(d.worst.Peer), longName, "…"), "on this side")
	if d.others > 0 {
		c.Text += fmt.Sprintf(" +%d", d.others)
	}
	return c, true
}

// traffic returns what all peers together receive and send now.
func (m *model) traffic() string {
	return "rx " + cell.Size(m.data.rx) + "/s tx " + cell.Size(m.data.tx) + "/s"
}
