package tui

import (
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
	"github.com/postern-dev/postern/tui/past"
)

// historyWidth is the width of strips if it is not given.
const historyWidth = 80

// History draws a peer's history: strips over time, and below them the events. The width is in
// cells; 0 wraps nothing. The text ends in a newline.
func History(h api.History, p *api.PeerHistory, width int, o Options) string {
	d := past.Drawing{From: h.From.In(o.Now.Location()), To: h.To.In(o.Now.Location()), Paint: cell.Colors(o.Color)}
	if o.ASCII {
		d.Graph = chart.ASCII
	}
	title := "history of " + Printable(p.Peer) + " at " + Printable(h.Gateway) + " from " + d.From.Format("2006-01-02 15:04:05 MST") + " to " + d.To.Format(time.TimeOnly)
	if !h.From.After(h.Since) {
		title += "; the gateway started then, and knows nothing of before"
	}
	lines := append(cell.Wrap("", title, width, "  "), "")
	strips := width
	if width <= 0 {
		strips = historyWidth
	}
	lines = append(append(lines, d.Strips(p, strips, past.AllStrips)...), "")
	for i := range p.Events {
		lines = append(lines, d.Event(&p.Events[i], width)...)
	}
	if len(p.Events) == 0 {
		lines = append(lines, "nothing happened in this time")
	}
	for i := range lines {
		lines[i] = cell.Fit(strings.TrimRight(lines[i], " "), width)
	}
	return strings.Join(lines, "\n") + "\n"
}
