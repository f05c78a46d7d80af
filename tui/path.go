package tui

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// Path draws every way to a peer: the one in use and why, each candidate with what became
// of it, and what happened lately. The width is in cells; 0 means that nothing is broken.
// The text ends in a line end.
func Path(s api.PeerStatus, width int, o Options) string {
	p := paint(o.Color)
	kind := pathStyle(&s.Path)
	lines := wrap("", "path to "+Printable(s.Name)+": "+pathLine(&s.Path, o.Now), width, "  ")
	lines[0] = strings.Replace(lines[0], Printable(s.Name), p.text(strong, Printable(s.Name)), 1)
	if s.Path.Kind != api.PathNone && s.Path.Kind != "" {
		lines[0] = strings.Replace(lines[0], ": "+Printable(s.Path.Kind), ": "+p.text(kind, Printable(s.Path.Kind)), 1)
		lines = append(lines, wrap("  why: ", Printable(s.Path.Reason), width, "       ")...)
	}
	if s.NextTry != nil {
		lines = append(lines, wrap("  ", "next try in "+age(s.NextTry.Sub(o.Now)), width, "  ")...)
	}
	lines = append(lines, "", p.text(quiet, "candidates"))
	if len(s.Candidates) == 0 {
		lines = append(lines, wrap("  ", "none: the peer has announced no address, so it must dial us", width, "  ")...)
	}
	lines = append(lines, candidateTable(s.Candidates, width, p)...)
	if rows := historyRows(&s, o.Now); len(rows) > 0 {
		lines = append(lines, "", p.text(quiet, "history"))
		for _, row := range rows {
			lines = append(lines, wrap("  ", row, width, "    ")...)
		}
	}
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}

func pathStyle(path *api.Path) style {
	switch path.Kind {
	case api.PathDirect:
		return good
	case api.PathRelay:
		return wary
	}
	return bad
}

// candidateTable has two lines a candidate: what it is in columns, and below it why it is
// used or not.
func candidateTable(cs []api.Candidate, width int, p paint) []string {
	columns := make([][4]string, len(cs))
	var widths [4]int
	for i, c := range cs {
		columns[i] = [4]string{Printable(c.State), candidateAddress(c), Printable(c.Source), rtt(c.RTTSeconds)}
		for j, text := range columns[i] {
			widths[j] = max(widths[j], ansi.StringWidth(text))
		}
	}
	var lines []string
	for i, c := range cs {
		glyph, st := candidateGlyph(c.State)
		var row strings.Builder
		for j, text := range columns[i] {
			pad := strings.Repeat(" ", widths[j]-ansi.StringWidth(text))
			if j == 0 {
				text = p.text(st, text)
			}
			row.WriteString(gap + text + pad)
		}
		lines = append(lines, "  "+p.text(st, glyph)+strings.TrimRight(row.String()[1:], " "))
		if c.Reason != "" {
			lines = append(lines, wrap("      ", Printable(c.Reason), width, "      ")...)
		}
	}
	return lines
}

// candidateAddress is where a candidate is and by which relay it is reached.
func candidateAddress(c api.Candidate) string {
	if c.Relay == "" {
		return Printable(c.Address)
	}
	return Printable(c.Address) + " via " + Printable(c.Relay)
}

// candidateGlyph says a candidate's state without words.
func candidateGlyph(state string) (string, style) {
	switch state {
	case "selected":
		return "●", good
	case "valid", "standby":
		return "○", good
	case "probing":
		return "◌", wary
	case "suspect":
		return "!", wary
	case "failed":
		return "✗", bad
	}
	return "–", quiet
}

// NetCheck draws what is known of the network around a gateway, and what it means. The
// width is in cells; 0 means that nothing is broken. The text ends in a line end.
func NetCheck(n api.NetCheck, width int, o Options) string {
	p := paint(o.Color)
	var lines []string
	add := func(name, value string) {
		label := name + strings.Repeat(" ", max(1, 18-ansi.StringWidth(name)))
		for _, l := range wrap(label, value, width, strings.Repeat(" ", 18)) {
			lines = append(lines, strings.Replace(l, name, p.text(quiet, name), 1))
		}
	}
	nat := Printable(n.Mapping)
	if n.Mapping == "none" {
		nat = "none: no NAT"
	}
	add("NAT mapping", nat)
	add("NAT filtering", Printable(n.Filtering))
	add("public addresses", orNone(n.PublicAddresses))
	add("port mapping", strings.TrimSuffix(Printable(n.PortMapping.Mode)+": "+Printable(n.PortMapping.State), ": "))
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
	for _, h := range n.Hints {
		lines = append(lines, "")
		lines = append(lines, wrap("→ ", Printable(h), width, "  ")...)
	}
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// name is the configured name with the address that it stands for.
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
	for _, part := range []string{about, rtt(seconds)} {
		if part != "" {
			out += ", " + part
		}
	}
	if failed != "" {
		out += " ✗ " + Printable(failed)
	}
	return out
}
