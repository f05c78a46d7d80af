package tui

import (
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui/cell"
)

// Checks draws the results of checks: this gateway's own first, then peer by peer. A failing check
// is drawn with its cause, fix and stages; one that depends on another has a line that says so. For
// a peer with an error that is in the status, the path to it comes first. The last lines count, and
// say in which order to fix several faults. The width is in cells; 0 wraps nothing. The text ends in
// a newline.
func Checks(r api.CheckReport, s api.Status, width int, o Options) string {
	p := cell.Colors(o.Color)
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
		lines = append(lines, wayOf(r, s, peer, width, o)...)
		for i := range r.Checks {
			if c := &r.Checks[i]; c.Peer == peer {
				lines = append(lines, cell.CheckLines(c, cell.Subject(c, false), width, p, o.Now, o.Wide)...)
			}
		}
	}
	lines = append(lines, "")
	lines = append(lines, cell.Wrap("", cell.CheckSummary(r.Summary), width, "")...)
	if order := cell.FixOrder(r.Checks); order != "" {
		lines = append(lines, cell.Wrap("", order, width, "  ")...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// HasError reports whether a check of a peer fails.
func HasError(r api.CheckReport) bool {
	return slices.ContainsFunc(r.Checks, func(c api.Check) bool { return c.Peer != "" && c.Verdict.Verdict == api.Error })
}

// wayOf draws the path to a peer with an error.
func wayOf(r api.CheckReport, s api.Status, peer string, width int, o Options) []string {
	i := slices.IndexFunc(s.Peers, func(p api.PeerStatus) bool { return p.Name == peer })
	fails := slices.ContainsFunc(r.Checks, func(c api.Check) bool { return c.Peer == peer && c.Verdict.Verdict == api.Error })
	if i < 0 || !fails {
		return nil
	}
	w := way.Of(&s, &s.Peers[i], r.Checks, nil)
	return append(cell.WayDiagram(&w, width, cell.Colors(o.Color), o.lines(), o.Now), "")
}

// peersOf returns the peers that checks are about, sorted; "" is this gateway.
func peersOf(checks []api.Check) []string {
	var peers []string
	for _, c := range checks {
		peers = append(peers, c.Peer)
	}
	slices.SortFunc(peers, cell.CompareNames)
	return slices.Compact(peers)
}
