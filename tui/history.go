package tui

import (
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
	"github.com/postern-dev/postern/tui/past"
)

// historyWidth is that of strips where nothing says how wide they may be.
const historyWidth = 80

// History draws what became of a peer: strips over the time, and below them what happened. The width is
// in cells; 0 means that nothing is broken. The text ends in a line end.
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
