package tui

import (
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// Checks draws the outcome of checks: this gateway's own first, then peer by peer, each
// that fails with its cause, its fix and its stages, and what depends on another one in
// a line that says so. The last line counts. The width is in cells; 0 means that nothing
// is broken. The text ends in a line end.
func Checks(r api.CheckReport, width int, o Options) string {
	p := cell.Paint(o.Color)
	title := "checks of gateway " + Printable(r.Gateway)
	if !r.At.IsZero() {
		title += " at " + r.At.UTC().Format(time.RFC3339)
	}
	lines := []string{cell.Fit(title, width)}
	for _, peer := range peersOf(r.Checks) {
		name := Printable(peer)
		if peer == "" {
			name = "this gateway"
		}
		lines = append(lines, "", cell.Fit(p.Text(cell.Strong, name), width))
		for i := range r.Checks {
			if c := &r.Checks[i]; c.Peer == peer {
				lines = append(lines, cell.CheckLines(c, cell.Subject(c, false), width, p, o.Now, o.Wide)...)
			}
		}
	}
	lines = append(lines, "")
	lines = append(lines, cell.Wrap("", cell.CheckSummary(r.Summary), width, "")...)
	return strings.Join(lines, "\n") + "\n"
}

// peersOf are the peers that checks are about, sorted; "" is this gateway.
func peersOf(checks []api.Check) []string {
	var peers []string
	for _, c := range checks {
		peers = append(peers, c.Peer)
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}
