package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// Peer draws everything known of one peer. The width is in cells; 0 means that nothing
// is broken. The text ends in a line end.
func Peer(s api.PeerStatus, width int, o Options) string {
	p := paint(o.Color)
	var lines []string
	add := func(name, value string) {
		if value == "" {
			return
		}
		const indent = 14
		label := name + strings.Repeat(" ", max(1, indent-ansi.StringWidth(name)))
		for _, l := range wrap(label, value, width, strings.Repeat(" ", indent)) {
			lines = append(lines, fit(strings.Replace(l, name, p.text(quiet, name), 1), width))
		}
	}
	state := stateCell(s.State)
	lines = append(lines, fit("peer "+p.text(strong, Printable(s.Name))+"  "+p.text(state.style, state.text), width))
	add("public key", Printable(s.PublicKey))
	add("address", Printable(s.Address))
	add("version", Printable(s.Version))
	if s.Stock {
		add("kind", "plain WireGuard peer")
	}
	add("path", pathLine(&s.Path, o.Now))
	add("handshake", handshakeLine(&s, o.Now))
	add("received", fmt.Sprintf("%s (%s/s)", size(float64(s.RxBytes)), size(s.RxBytesPerSecond)))
	add("sent", fmt.Sprintf("%s (%s/s)", size(float64(s.TxBytes)), size(s.TxBytesPerSecond)))
	add("may reach", orNone(s.Allow))
	add("offers us", orNone(s.Offers))
	add("identity", identityLine(&s, o.Now))
	lines = append(lines, "")
	lines = append(lines, reachability(&s, p)...)
	section := func(title string, rows []string) {
		if len(rows) == 0 {
			return
		}
		lines = append(lines, "", p.text(quiet, title))
		for _, row := range rows {
			lines = append(lines, wrap("  ", row, width, "    ")...)
		}
	}
	section("listeners here", listenerRows(&s))
	section("candidates", candidateRows(&s))
	section("open connections", flowRows(&s, o.Now))
	section("path history", historyRows(&s, o.Now))
	for _, f := range findings(&s) {
		lines = append(lines, "")
		lines = append(lines, f.lines(width, p)...)
	}
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}

func pathLine(path *api.Path, now time.Time) string {
	if path.Kind == api.PathNone || path.Kind == "" {
		return strings.TrimSuffix("none: "+Printable(path.Reason), ": ")
	}
	out := Printable(path.Kind)
	for _, part := range []string{Printable(path.Remote), rtt(path.RTTSeconds)} {
		if part != "" {
			out += " " + part
		}
	}
	if path.Source != "" {
		out += " (" + Printable(path.Source) + ")"
	}
	if path.Since != nil {
		out += " since " + age(now.Sub(*path.Since))
	}
	return out
}

func handshakeLine(s *api.PeerStatus, now time.Time) string {
	out := "never"
	if s.LastHandshake != nil && !s.LastHandshake.IsZero() {
		out = age(now.Sub(*s.LastHandshake)) + " ago"
	}
	if s.NextTry != nil {
		out += ", next try in " + age(s.NextTry.Sub(now))
	}
	return out
}

func identityLine(s *api.PeerStatus, now time.Time) string {
	if s.Identity == nil {
		return "none"
	}
	return fmt.Sprintf("until %s, %s", s.Identity.NotAfter.UTC().Format(time.RFC3339), identityCell(s, now).text)
}

func orNone(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return Printable(strings.Join(items, ", "))
}

// reachability is the table of the three endpoints in both directions.
func reachability(s *api.PeerStatus, p paint) []string {
	out, in := &s.Reachability.Outbound, &s.Reachability.Inbound
	row := func(name string, a, b cell) string {
		pad := func(st style, text string, n int) string {
			return p.text(st, text) + strings.Repeat(" ", max(0, n-ansi.StringWidth(text)))
		}
		return pad(plain, name, 14) + pad(a.style, a.text, 12) + p.text(b.style, b.text)
	}
	return []string{
		row("", cell{"→ from here", quiet}, cell{"← from there", quiet}),
		row(api.ServiceAuth, verdictCell(&out.Auth), verdictCell(&in.Auth)),
		row(api.ServiceAPIServer, verdictCell(&out.APIServer), verdictCell(&in.APIServer)),
		row(api.ServiceGateway, verdictCell(&out.Gateway), verdictCell(&in.Gateway)),
	}
}

func listenerRows(s *api.PeerStatus) []string {
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

func candidateRows(s *api.PeerStatus) []string {
	var rows []string
	for _, c := range s.Candidates {
		row := candidateAddress(c) + " (" + Printable(c.Source) + ")"
		for _, part := range []string{Printable(c.State), rtt(c.RTTSeconds), Printable(c.Reason)} {
			if part != "" {
				row += " " + part
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func flowRows(s *api.PeerStatus, now time.Time) []string {
	var rows []string
	for _, f := range s.Flows {
		rows = append(rows, fmt.Sprintf("%s %s %s, rx %s, tx %s, %s", Printable(f.Direction), Printable(f.Service), Printable(f.Remote),
			size(float64(f.RxBytes)), size(float64(f.TxBytes)), age(now.Sub(f.StartedAt))))
	}
	return rows
}

func historyRows(s *api.PeerStatus, now time.Time) []string {
	var rows []string
	for _, e := range s.Path.History {
		rows = append(rows, strings.TrimSuffix(fmt.Sprintf("%s ago %s: %s", age(now.Sub(e.At)), Printable(e.Event), Printable(e.Reason)), ": "))
	}
	return rows
}
