package tui

import (
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// cell is what a table shows of one peer in one column.
type cell struct {
	text  string
	style style
}

// column is one column of the overview.
type column struct {
	title string
	// rank says when it is dropped: the highest goes first, 0 never.
	rank int
	// wide marks a column that only -o wide shows.
	wide  bool
	right bool // flush right
	cell  func(p *api.PeerStatus, now time.Time) cell
}

// maxName keeps one long name from pushing everything else off the screen. Names of
// peers have at most api.MaxNameLength characters.
const (
	maxName = 24
	minName = 12 // What "◌ connecting" takes, and enough to tell most names apart.
)

// columns lists them from left to right. An arrow to the right is what this gateway
// finds at the peer, one to the left what the peer reports of this gateway.
func columns() []column {
	out := func(pick func(*api.Targets) *api.Verdict) func(*api.PeerStatus, time.Time) cell {
		return func(p *api.PeerStatus, _ time.Time) cell { return verdictCell(pick(&p.Reachability.Outbound)) }
	}
	in := func(pick func(*api.Targets) *api.Verdict) func(*api.PeerStatus, time.Time) cell {
		return func(p *api.PeerStatus, _ time.Time) cell { return verdictCell(pick(&p.Reachability.Inbound)) }
	}
	auth := func(t *api.Targets) *api.Verdict { return &t.Auth }
	apiServer := func(t *api.Targets) *api.Verdict { return &t.APIServer }
	gateway := func(t *api.Targets) *api.Verdict { return &t.Gateway }
	return []column{
		{title: "PEER", cell: func(p *api.PeerStatus, _ time.Time) cell {
			return cell{ansi.Truncate(Printable(p.Name), maxName, "…"), strong}
		}},
		{title: "STATE", cell: func(p *api.PeerStatus, _ time.Time) cell { return stateCell(p.State) }},
		{title: "PATH", rank: 1, cell: pathCell},
		{title: "RTT", rank: 5, right: true, cell: func(p *api.PeerStatus, _ time.Time) cell {
			return dash(rtt(p.Path.RTTSeconds))
		}},
		{title: "→AUTH", rank: 3, cell: out(auth)},
		{title: "→API", rank: 2, cell: out(apiServer)},
		{title: "→GATEWAY", rank: 4, cell: out(gateway)},
		{title: "←AUTH", rank: 9, cell: in(auth)},
		{title: "←API", rank: 8, cell: in(apiServer)},
		{title: "←GATEWAY", rank: 10, cell: in(gateway)},
		{title: "RX/s", rank: 6, right: true, cell: func(p *api.PeerStatus, _ time.Time) cell {
			return cell{text: size(p.RxBytesPerSecond)}
		}},
		{title: "TX/s", rank: 7, right: true, cell: func(p *api.PeerStatus, _ time.Time) cell {
			return cell{text: size(p.TxBytesPerSecond)}
		}},
		{title: "HANDSHAKE", rank: 11, cell: func(p *api.PeerStatus, now time.Time) cell {
			if p.LastHandshake == nil || p.LastHandshake.IsZero() {
				return cell{"never", quiet}
			}
			return cell{text: age(now.Sub(*p.LastHandshake)) + " ago"}
		}},
		{title: "REMOTE", rank: 12, wide: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return dash(Printable(p.Path.Remote)) }},
		{title: "RX", rank: 13, wide: true, right: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return cell{text: size(float64(p.RxBytes))} }},
		{title: "TX", rank: 13, wide: true, right: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return cell{text: size(float64(p.TxBytes))} }},
		{title: "IDENTITY", rank: 14, wide: true, cell: identityCell},
		{title: "LOCAL", rank: 15, wide: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return dash(listeners(p)) }},
		{title: "ALLOW", rank: 16, wide: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return dash(joined(p.Allow)) }},
		{title: "OFFERS", rank: 17, wide: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return dash(joined(p.Offers)) }},
		{title: "ADDRESS", rank: 18, wide: true, cell: func(p *api.PeerStatus, _ time.Time) cell { return dash(Printable(p.Address)) }},
	}
}

func stateCell(s api.PeerState) cell {
	switch s {
	case api.StateConnected:
		return cell{"● connected", good}
	case api.StateConnecting:
		return cell{"◌ connecting", wary}
	case api.StatePending:
		return cell{"◇ pending", wary}
	case api.StateFailed:
		return cell{"✗ failed", bad}
	}
	return cell{"? " + Printable(string(s)), quiet}
}

func verdictCell(v *api.Verdict) cell {
	switch v.Verdict {
	case api.OK:
		return cell{"✓ ok", good}
	case api.Warning:
		return cell{"! warning", wary}
	case api.Error:
		return cell{"✗ error", bad}
	case api.Off:
		return cell{"- off", quiet}
	}
	return cell{"? unknown", quiet}
}

func pathCell(p *api.PeerStatus, _ time.Time) cell {
	switch p.Path.Kind {
	case api.PathDirect:
		return cell{text: "direct"}
	case api.PathRelay:
		return cell{"relay", wary}
	}
	return cell{"none", quiet}
}

func identityCell(p *api.PeerStatus, now time.Time) cell {
	if p.Identity == nil {
		return cell{"-", quiet}
	}
	left := p.Identity.NotAfter.Sub(now)
	if left <= 0 {
		return cell{"✗ expired", bad}
	}
	return cell{text: age(left) + " left"}
}

func listeners(p *api.PeerStatus) string {
	var out []string
	for _, l := range p.Local {
		out = append(out, l.Service+"="+l.Address)
	}
	return joined(out)
}

func joined(items []string) string { return Printable(strings.Join(items, ",")) }

// dash stands for what is not there.
func dash(s string) cell {
	if s == "" {
		return cell{"-", quiet}
	}
	return cell{text: s}
}
