package tui

import (
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

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
