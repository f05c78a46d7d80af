package cell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
)

// PathLine describes the path in use on one line.
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

// PathOf describes the path in use on one line. If the path breaks, it leaves out figures from
// before, and refers to the fault instead of guessing at a reason.
func PathOf(w *way.Way, path *api.Path, now time.Time) string {
	p := *path
	if f := Crossing(w); f != nil && f.Before {
		p.RTTSeconds = 0
	}
	if b := w.Break; b != nil && b.Code != "" && b.At != way.Service && b.Outcome == api.Error {
		p.Reason = "see " + b.Code
	}
	return PathLine(&p, now)
}

// Carries returns the figures that connections have measured of a path, with or without loss; "" if
// there are none.
func Carries(t *api.Traffic, loss bool) string {
	if t == nil || t.BytesPerSecond == 0 {
		return ""
	}
	items := []string{"bursts of up to " + Size(t.BytesPerSecond) + "/s by its connections"}
	if t.PolicedBytesPerSecond > 0 {
		items = append(items, "rate limiter at "+Size(t.PolicedBytesPerSecond)+"/s")
	}
	if t.BaseRTTSeconds > 0 {
		items = append(items, "round trip "+RTT(t.RTTSeconds)+" ("+RTT(t.BaseRTTSeconds)+" without a queue)")
	}
	if loss && t.LossKnown() {
		items = append(items, fmt.Sprintf("%.2f%% lost and %.2f%% in queues", 100*t.LossRatio, 100*t.QueueLossRatio))
	}
	if t.LimitedBy != "" {
		return strings.Join(append(items, "limited by "+Printable(t.LimitedBy)), ", ")
	}
	return strings.Join(append(items, "idle for "+Age(time.Duration(t.IdleSeconds*float64(time.Second)))), ", ")
}

// Limit says what limits a connection's rate; "" if nothing is on its way or it is unknown.
func Limit(f *api.Flow, t *api.Traffic) string {
	switch {
	case f.WaitingBytes > 0 && t != nil:
		return Printable(t.LimitedBy)
	case f.InFlightBytes > 0:
		return api.LimitData
	}
	return ""
}

// HandshakeLine says when the last handshake was and when the next is tried.
func HandshakeLine(s *api.PeerStatus, now time.Time) string {
	out := Since(s.LastHandshake, now).Text
	if s.NextTry != nil {
		out += ", next try in " + Age(s.NextTry.Sub(now))
	}
	return out
}

// IdentityLine says who this gateway is at the peer's API server, and until when.
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

// Labels returns a peer's labels on one line, sorted.
func Labels(s *api.PeerStatus) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		all = append(all, name+"="+s.Labels[name])
	}
	return Joined(all, ", ")
}

// OrNothing returns a list on one line, with a word for an empty one.
func OrNothing(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return Joined(items, ", ")
}

// Reachability returns the table of the three endpoints in both directions.
func Reachability(s *api.PeerStatus, p Paint) []string {
	row := func(name string, a, b Cell) string {
		pad := func(c Cell, n int) string {
			return p.Cell(c) + strings.Repeat(" ", max(0, n-ansi.StringWidth(c.Text)))
		}
		return pad(Cell{Text: name}, 14) + pad(a, 12) + p.Cell(b)
	}
	rows := []string{row("", Cell{"→ from here", Quiet}, Cell{"← from there", Quiet})}
	for _, name := range Endpoints() {
		rows = append(rows, row(name, Verdict(s, api.DirectionOutbound, name), Verdict(s, api.DirectionInbound, name)))
	}
	return rows
}

// Listeners returns the listeners here that lead to the peer, one per line.
func Listeners(s *api.PeerStatus) []string {
	var rows []string
	for _, l := range s.Local {
		row := Printable(l.Address) + " → " + Printable(l.Service)
		if l.Error != "" {
			row += " ✗ " + Printable(l.Error)
		} else if l.Lost != nil {
			row += " ! " + Printable(l.Lost.Code+" "+l.Lost.Cause)
		}
		rows = append(rows, row)
	}
	return rows
}

// ServiceAddresses returns where this gateway listens for an imported service: with the service's
// ports if there are several.
func ServiceAddresses(s *api.ClusterService) []string {
	if len(s.Listeners) < 2 {
		return s.Addresses
	}
	var out []string
	for _, l := range s.Listeners {
		out = append(out, l.Port+"="+l.Address)
	}
	return out
}

// Flows returns the open connections, one per line.
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

// Remote returns who opened a flow, with the protocol if it is not TCP.
func Remote(f *api.Flow) string {
	if f.Protocol == api.UDP && f.Remote != "" {
		return Printable(f.Remote) + "/UDP"
	}
	return Printable(f.Remote)
}

// Unlisted returns the number of UDP flows that the status does not list.
func Unlisted(s *api.PeerStatus) int {
	n := s.UDPFlows
	for i := range s.Flows {
		if s.Flows[i].Protocol == api.UDP {
			n--
		}
	}
	return max(n, 0)
}

// History returns the events of the path, one per line.
func History(s *api.PeerStatus, now time.Time) []string {
	var rows []string
	for _, e := range s.Path.History {
		rows = append(rows, strings.TrimSuffix(fmt.Sprintf("%s ago %s: %s", Age(now.Sub(e.At)), Printable(e.Event), Printable(e.Reason)), ": "))
	}
	return rows
}
