package tui

import (
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui/cell"
)

// Path draws all paths to a peer: the one in use and why, each candidate with its result, and
// recent events. The width is in cells; 0 wraps nothing. The text ends in a newline.
func Path(s api.PeerStatus, width int, o Options) string {
	p := cell.Colors(o.Color)
	kind := pathStyle(&s.Path)
	lines := cell.Wrap("", "path to "+Printable(s.Name)+": "+cell.PathLine(&s.Path, o.Now), width, "  ")
	lines[0] = strings.Replace(lines[0], Printable(s.Name), p.Text(cell.Strong, Printable(s.Name)), 1)
	if s.Path.Kind != api.PathNone && s.Path.Kind != "" {
		lines[0] = strings.Replace(lines[0], ": "+Printable(s.Path.Kind), ": "+p.Text(kind, Printable(s.Path.Kind)), 1)
		lines = append(lines, cell.Wrap("  why: ", Printable(s.Path.Reason), width, "       ")...)
	}
	if carries := cell.Carries(s.Path.Traffic, true); carries != "" {
		lines = append(lines, cell.Wrap("  carries: ", carries, width, "       ")...)
	}
	if s.NextTry != nil {
		lines = append(lines, cell.Wrap("  ", "next try in "+cell.Age(s.NextTry.Sub(o.Now)), width, "  ")...)
	}
	lines = append(lines, "", p.Text(cell.Quiet, "candidates"))
	if len(s.Candidates) == 0 {
		lines = append(lines, cell.Wrap("  ", "none: the peer has announced no address, so it must dial us", width, "  ")...)
	}
	lines = append(lines, cell.CandidateTable(s.Candidates, width, p)...)
	if rows := cell.History(&s, o.Now); len(rows) > 0 {
		lines = append(lines, "", p.Text(cell.Quiet, "history"))
		for _, row := range rows {
			lines = append(lines, cell.Wrap("  ", row, width, "    ")...)
		}
	}
	for i := range lines {
		lines[i] = cell.Fit(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Diagram draws the path to a peer from top to bottom, and below it where it breaks and what to do.
// The width is in cells; 0 wraps nothing. The text ends in a newline.
func Diagram(w way.Way, width int, o Options) string {
	p := cell.Colors(o.Color)
	lines := cell.WayDiagram(&w, width, p, o.lines(), o.Now)
	if w.Break != nil {
		lines = append(append(lines, ""), cell.BreakFinding(&w).Lines(width, p)...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func pathStyle(path *api.Path) cell.Style {
	switch path.Kind {
	case api.PathDirect:
		return cell.Good
	case api.PathRelay:
		return cell.Wary
	}
	return cell.Bad
}

// NetCheck draws what is known about the network around a gateway, and what it means. The width is
// in cells; 0 wraps nothing. The text ends in a newline.
func NetCheck(n api.NetCheck, width int, o Options) string {
	p := cell.Colors(o.Color)
	var lines []string
	add := func(name, value string) {
		label := name + strings.Repeat(" ", max(1, 18-ansi.StringWidth(name)))
		for _, l := range cell.Wrap(label, value, width, strings.Repeat(" ", 18)) {
			lines = append(lines, strings.Replace(l, name, p.Text(cell.Quiet, name), 1))
		}
	}
	nat := Printable(n.Mapping)
	if n.Mapping == "none" {
		nat = "none: no NAT"
	}
	add("NAT mapping", nat)
	add("NAT filtering", Printable(n.Filtering))
	add("public addresses", cell.OrNothing(n.PublicAddresses))
	add("port mapping", mappingLine(n.PortMapping, o.Now))
	for _, s := range n.STUNServers {
		add("STUN server", serverLine(name(s.Name, s.Address), join("sees us at ", s.Mapped), s.RTTSeconds, s.Error))
	}
	for _, s := range n.TURNServers {
		about := join("relays at ", s.Relayed)
		if s.Transport != "" && about != "" {
			about += " over " + Printable(s.Transport)
		}
		add("TURN server", serverLine(s.Address, about, s.RTTSeconds, s.Error))
	}
	if n.Proxy != nil {
		add("HTTP proxy", proxyLine(*n.Proxy, o.Now))
	}
	for _, h := range n.Hints {
		lines = append(lines, "")
		lines = append(lines, cell.Wrap("→ ", Printable(h), width, "  ")...)
	}
	for i := range lines {
		lines[i] = cell.Fit(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// proxyLine returns the results of the connections through a proxy.
func proxyLine(s api.ProxyStatus, now time.Time) string {
	if len(s.Targets) == 0 {
		return Printable(s.Address) + ", not used yet"
	}
	out := Printable(s.Address)
	for _, t := range s.Targets[:min(len(s.Targets), 3)] {
		verb := ", connected to "
		if t.Error != "" {
			verb = ", not to "
		}
		out += verb + Printable(t.Address) + " " + cell.Age(now.Sub(t.At)) + " ago" + join(" ✗ ", t.Error)
	}
	return out
}

// mappingLine returns what the router maps, for how long and how it was verified, or why it does
// not.
func mappingLine(m api.PortMappingStatus, now time.Time) string {
	out := strings.TrimSuffix(Printable(m.Mode)+": "+Printable(m.State), ": ")
	if m.External != "" {
		out += ", " + Printable(m.External) + " → " + Printable(m.Internal)
	}
	if m.Protocol != "" {
		out += " by " + Printable(m.Protocol)
	}
	out += join(", router ", m.Router)
	if m.ExpiresAt != nil {
		out += ", lease " + cell.Age(m.ExpiresAt.Sub(now))
	}
	out += join(", verified: ", m.Verified)
	out += join(" ✗ ", m.Error)
	if m.RetryAt != nil {
		out += ", next try in " + cell.Age(m.RetryAt.Sub(now))
	}
	return out
}

// name returns the configured name with the address that it resolved to.
func name(configured, address string) string {
	if configured == "" || configured == address {
		return address
	}
	if address == "" {
		return configured
	}
	return configured + " (" + address + ")"
}

func join(what, value string) string {
	if value == "" {
		return ""
	}
	return what + Printable(value)
}

func serverLine(server, about string, seconds float64, failed string) string {
	out := Printable(server)
	for _, part := range []string{about, cell.RTT(seconds)} {
		if part != "" {
			out += ", " + part
		}
	}
	if failed != "" {
		out += " ✗ " + Printable(failed)
	}
	return out
}
