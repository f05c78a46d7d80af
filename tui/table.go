package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// Options configure how a table is drawn.
type Options struct {
	// Color uses the terminal's first eight colours; see ColorWanted.
	Color bool
	// Wide adds the columns of -o wide.
	Wide bool
	// ASCII draws without Unicode's lines.
	ASCII bool
	// Now is the time from which ages are computed.
	Now time.Time
}

func (o Options) lines() cell.Lines {
	if o.ASCII {
		return cell.ASCIILines
	}
	return cell.BoxLines
}

// Table draws a gateway and its peers, and below them what fails, why, and what to do. The width is
// in cells; 0 drops and wraps nothing. The text ends in a newline.
func Table(s api.Status, width int, o Options) string {
	p := cell.Colors(o.Color)
	lines := header(&s.Gateway, width, o)
	peers := slices.Clone(s.Peers)
	slices.SortStableFunc(peers, func(a, b api.PeerStatus) int { return cell.CompareNames(a.Name, b.Name) })
	lines = append(lines, "")
	if len(peers) == 0 {
		lines = append(lines, cell.Wrap("", "no peers yet: postern invite makes a ticket, postern join redeems one", width, "")...)
	} else {
		rows := make([]*api.PeerStatus, len(peers))
		for i := range peers {
			rows[i] = &peers[i]
		}
		table := cell.Layout(columns(o.Now, o.Wide), rows, width)
		lines = append(lines, cell.Fit(table.Header(p), width))
		for i := range rows {
			lines = append(lines, cell.Fit(table.Row(p, i), width))
		}
	}
	for _, f := range cell.Order(append(cell.FindingsOf(peers), cell.Beside(s.Problems, peers)...)) {
		lines = append(lines, "")
		lines = append(lines, f.Lines(width, p)...)
	}
	for i := range s.Alarms {
		if a := &s.Alarms[i]; a.Event == api.EventAlarm {
			const sign = "✗ alarm"
			alarm := cell.Wrap(sign+" ", Alarm(a), width, "  ")
			alarm[0] = p.Text(cell.Bad, sign) + strings.TrimPrefix(alarm[0], sign)
			lines = append(append(lines, ""), alarm...)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// header describes the gateway that answers.
func header(g *api.GatewayStatus, width int, o Options) []string {
	p := cell.Colors(o.Color)
	first := []string{"gateway " + p.Text(cell.Strong, Printable(g.Name))}
	if g.ListenPort != 0 {
		first = append(first, fmt.Sprintf("UDP port %d", g.ListenPort))
	}
	if !g.StartedAt.IsZero() {
		first = append(first, "up "+cell.Age(o.Now.Sub(g.StartedAt)))
	}
	first = append(first, Printable(g.Address))
	if o.Wide {
		first = append(first, "key "+Printable(g.PublicKey), Printable(g.Version))
	}
	lines := cell.Flow(first, width)
	if at := g.ConfigUndoneAt; at != nil {
		lines = append(lines, cell.Flow([]string{"configuration undone in " + cell.Age(at.Sub(o.Now)) + " unless it is kept: postern config confirm"}, width)...)
	}
	var second []string
	if m := g.NAT.Mapping; m != "" && m != "unknown" {
		nat := "NAT " + Printable(m)
		if m == "none" {
			nat = "no NAT"
		}
		second = append(second, nat)
	}
	for _, c := range g.Candidates {
		second = append(second, fmt.Sprintf("%s (%s)", Printable(c.Address), Printable(c.Source)))
	}
	return append(lines, cell.Flow(second, width)...)
}
