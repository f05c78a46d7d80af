package tui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// Peer draws everything known about one peer. The width is in cells; 0 wraps nothing. The text ends
// in a newline.
func Peer(s api.PeerStatus, width int, o Options) string {
	p := cell.Colors(o.Color)
	var lines []string
	add := func(name, value string) {
		if value == "" {
			return
		}
		const indent = 14
		label := name + strings.Repeat(" ", max(1, indent-ansi.StringWidth(name)))
		for _, l := range cell.Wrap(label, value, width, strings.Repeat(" ", indent)) {
			lines = append(lines, cell.Fit(strings.Replace(l, name, p.Text(cell.Quiet, name), 1), width))
		}
	}
	state := cell.PeerState(&s)
	lines = append(lines, cell.Fit("peer "+p.Text(cell.Strong, Printable(s.Name))+"  "+p.Cell(state), width))
	add("public key", Printable(s.PublicKey))
	add("address", Printable(s.Address))
	add("version", Printable(s.Version))
	if s.Stock {
		add("kind", "plain WireGuard peer")
	}
	add("labels", cell.Labels(&s))
	add("path", cell.PathLine(&s.Path, o.Now))
	add("carries", cell.Carries(s.Path.Traffic, true))
	add("handshake", cell.HandshakeLine(&s, o.Now))
	add("received", fmt.Sprintf("%s (%s/s)", cell.Size(float64(s.RxBytes)), cell.Size(s.RxBytesPerSecond)))
	add("sent", fmt.Sprintf("%s (%s/s)", cell.Size(float64(s.TxBytes)), cell.Size(s.TxBytesPerSecond)))
	add("may reach", cell.OrNothing(s.Allow))
	if s.UndoneAt != nil {
		add("", "undone in "+cell.Age(s.UndoneAt.Sub(o.Now))+" unless it is kept: postern peer confirm "+Printable(s.Name))
	}
	if s.User != "" {
		add("user here", Printable(s.User))
	}
	add("offers us", cell.OrNothing(s.Offers))
	add("identity", cell.IdentityLine(&s, o.Now))
	lines = append(lines, "")
	lines = append(lines, cell.Reachability(&s, p)...)
	section := func(title string, rows []string) {
		if len(rows) == 0 {
			return
		}
		lines = append(lines, "", p.Text(cell.Quiet, title))
		for _, row := range rows {
			lines = append(lines, cell.Wrap("  ", row, width, "    ")...)
		}
	}
	section("listeners here", cell.Listeners(&s))
	section("candidates", cell.CandidateLines(&s))
	section("open connections", cell.Flows(&s, o.Now))
	section("path history", cell.History(&s, o.Now))
	for _, f := range cell.Order(cell.Findings(&s)) {
		lines = append(lines, "")
		lines = append(lines, f.Lines(width, p)...)
	}
	for i := range lines {
		lines[i] = cell.Fit(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}
