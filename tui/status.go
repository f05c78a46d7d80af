package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

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

// maxName keeps one long name from pushing everything else off the screen. Names of peers have at
// most api.MaxNameLength characters.
const maxName = 24

// columns returns the columns from left to right. An arrow to the right marks what this gateway
// finds at the peer, one to the left what the peer reports about this gateway.
func columns(now time.Time, wide bool) []cell.Column[*api.PeerStatus] {
	type peer = *api.PeerStatus
	text := func(s string) cell.Cell { return cell.Cell{Text: s} }
	columns := []cell.Column[peer]{
		{Title: "PEER", Cell: func(p peer) cell.Cell {
			return cell.Cell{Text: ansi.Truncate(Printable(p.Name), maxName, "…"), Style: cell.Strong}
		}},
		{Title: "STATE", Cell: func(p peer) cell.Cell { return cell.PeerState(p) }},
		{Title: "PATH", Rank: 1, Cell: func(p peer) cell.Cell { return cell.Path(p.Path.Kind) }},
		{Title: "RTT", Rank: 5, Right: true, Cell: func(p peer) cell.Cell { return cell.Dash(cell.RTT(p.Path.RTTSeconds)) }},
		{Title: "→AUTH", Rank: 3, Cell: func(p peer) cell.Cell { return cell.Verdict(p, api.DirectionOutbound, api.ServiceAuth) }},
		{Title: "→API", Rank: 2, Cell: func(p peer) cell.Cell { return cell.Verdict(p, api.DirectionOutbound, api.ServiceAPIServer) }},
		{Title: "→GATEWAY", Rank: 4, Cell: func(p peer) cell.Cell { return cell.Verdict(p, api.DirectionOutbound, api.ServiceGateway) }},
		{Title: "←AUTH", Rank: 9, Cell: func(p peer) cell.Cell { return cell.Verdict(p, api.DirectionInbound, api.ServiceAuth) }},
		{Title: "←API", Rank: 8, Cell: func(p peer) cell.Cell { return cell.Verdict(p, api.DirectionInbound, api.ServiceAPIServer) }},
		{Title: "←GATEWAY", Rank: 10, Cell: func(p peer) cell.Cell { return cell.Verdict(p, api.DirectionInbound, api.ServiceGateway) }},
		{Title: "RX/s", Rank: 6, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(p.RxBytesPerSecond)) }},
		{Title: "TX/s", Rank: 7, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(p.TxBytesPerSecond)) }},
		{Title: "HANDSHAKE", Rank: 11, Cell: func(p peer) cell.Cell { return cell.Since(p.LastHandshake, now) }},
	}
	if !wide {
		return columns
	}
	return append(columns, []cell.Column[peer]{
		{Title: "REMOTE", Rank: 12, Cell: func(p peer) cell.Cell { return cell.Dash(Printable(p.Path.Remote)) }},
		{Title: "RX", Rank: 13, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(float64(p.RxBytes))) }},
		{Title: "TX", Rank: 13, Right: true, Cell: func(p peer) cell.Cell { return text(cell.Size(float64(p.TxBytes))) }},
		{Title: "IDENTITY", Rank: 14, Cell: func(p peer) cell.Cell { return cell.Left(p.Identity, now) }},
		{Title: "LOCAL", Rank: 15, Cell: func(p peer) cell.Cell { return cell.Dash(listeners(p)) }},
		{Title: "ALLOW", Rank: 16, Cell: func(p peer) cell.Cell { return cell.Dash(cell.Joined(p.Allow, ",")) }},
		{Title: "OFFERS", Rank: 17, Cell: func(p peer) cell.Cell { return cell.Dash(cell.Joined(p.Offers, ",")) }},
		{Title: "ADDRESS", Rank: 18, Cell: func(p peer) cell.Cell { return cell.Dash(Printable(p.Address)) }},
	}...)
}

func listeners(p *api.PeerStatus) string {
	var out []string
	for _, l := range p.Local {
		out = append(out, l.Service+"="+l.Address)
	}
	return cell.Joined(out, ",")
}
