package cell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// PathLine is the path in use on one line.
func PathLine(path *api.Path, now time.Time) string {
	if path.Kind == api.PathNone || path.Kind == "" {
		return strings.TrimSuffix("none: "+Printable(path.Reason), ": ")
	}
	out := Printable(path.Kind)
	for _, part := range []string{Printable(path.Remote), RTT(path.RTTSeconds)} {
		if part != "" {
			out += " " + part
		}
	}
	if path.Source != "" {
		out += " (" + Printable(path.Source) + ")"
	}
	if path.Since != nil {
		out += " since " + Age(now.Sub(*path.Since))
	}
	return out
}

// Limit is what limits how fast a connection's data is sent; empty where nothing is on its way, or
// that is not known.
func Limit(f *api.Flow, t *api.Traffic) string {
	switch {
	case f.WaitingBytes > 0 && t != nil:
		return Printable(t.LimitedBy)
	case f.InFlightBytes > 0:
		return api.LimitData
	}
	return ""
}

// HandshakeLine is when the last handshake was and when the next is tried.
func HandshakeLine(s *api.PeerStatus, now time.Time) string {
	out := Since(s.LastHandshake, now).Text
	if s.NextTry != nil {
		out += ", next try in " + Age(s.NextTry.Sub(now))
	}
	return out
}

// IdentityLine is whom the peer's API server knows us as, and until when.
func IdentityLine(s *api.PeerStatus, now time.Time) string {
	if s.Identity == nil {
		return "none"
	}
	as := ""
	if s.Identity.User != "" {
		as = "as " + Printable(s.Identity.User) + " "
	}
	return as + fmt.Sprintf("until %s, %s", s.Identity.NotAfter.UTC().Format(time.RFC3339), Left(s.Identity, now).Text)
}

// Labels are a peer's on one line, sorted.
func Labels(s *api.PeerStatus) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		all = append(all, name+"="+s.Labels[name])
	}
	return Joined(all, ", ")
}

// OrNothing is a list on one line, with a word for an empty one.
func OrNothing(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return Joined(items, ", ")
}

// Reachability is the table of the three endpoints in both directions.
func Reachability(s *api.PeerStatus, p Paint) []string {
	out, in := &s.Reachability.Outbound, &s.Reachability.Inbound
	row := func(name string, a, b Cell) string {
		pad := func(c Cell, n int) string {
			return p.Cell(c) + strings.Repeat(" ", max(0, n-ansi.StringWidth(c.Text)))
		}
		return pad(Cell{Text: name}, 14) + pad(a, 12) + p.Cell(b)
	}
	return []string{
		row("", Cell{"→ from here", Quiet}, Cell{"← from there", Quiet}),
		row(api.ServiceAuth, Verdict(s, &out.Auth), Verdict(s, &in.Auth)),
		row(api.ServiceAPIServer, Verdict(s, &out.APIServer), Verdict(s, &in.APIServer)),
		row(api.ServiceGateway, Verdict(s, &out.Gateway), Verdict(s, &in.Gateway)),
	}
}

// Listeners are the listeners here that lead to the peer, one a line.
func Listeners(s *api.PeerStatus) []string {
	var rows []string
	for _, l := range s.Local {
		row := Printable(l.Address) + " → " + Printable(l.Service)
		if l.Error != "" {
			row += " ✗ " + Printable(l.Error)
		}
		rows = append(rows, row)
	}
	return rows
}

// Flows are the open connections, one a line.
func Flows(s *api.PeerStatus, now time.Time) []string {
	var rows []string
	for _, f := range s.Flows {
		row := fmt.Sprintf("%s %s %s, rx %s, tx %s, %s", Printable(f.Direction), Printable(f.Service), Remote(&f),
			Size(float64(f.RxBytes)), Size(float64(f.TxBytes)), Age(now.Sub(f.StartedAt)))
		if l := Limit(&f, s.Path.Traffic); l != "" {
			row += ", limited by " + l
		}
		rows = append(rows, row)
	}
	if n := Unlisted(s); n > 0 {
		rows = append(rows, fmt.Sprintf("and %d more flows of UDP", n))
	}
	return rows
}

// Remote is who opened a flow, with the protocol if it is not TCP.
func Remote(f *api.Flow) string {
	if f.Protocol == api.UDP && f.Remote != "" {
		return Printable(f.Remote) + "/UDP"
	}
	return Printable(f.Remote)
}

// Unlisted is how many flows of UDP there are that the status does not list.
func Unlisted(s *api.PeerStatus) int {
	n := s.UDPFlows
	for i := range s.Flows {
		if s.Flows[i].Protocol == api.UDP {
			n--
		}
	}
	return max(n, 0)
}

// History is what happened to the path, one event a line.
func History(s *api.PeerStatus, now time.Time) []string {
	var rows []string
	for _, e := range s.Path.History {
		rows = append(rows, strings.TrimSuffix(fmt.Sprintf("%s ago %s: %s", Age(now.Sub(e.At)), Printable(e.Event), Printable(e.Reason)), ": "))
	}
	return rows
}
