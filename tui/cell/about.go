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

// PathOf is the path in use on one line, where it breaks without figures of before, and without guesses
// where it is known why there is none.
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

// Carries is what connections have shown of a path, in figures; empty where nothing is known. Loss may be
// left out.
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
