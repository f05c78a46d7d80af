package cell

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// CandidateTable returns two lines per candidate: its columns, and below why it is used or not.
// Lines may be wider than width, which only determines where reasons are wrapped.
func CandidateTable(cs []api.Candidate, width int, p Paint) []string {
	columns := make([][4]string, len(cs))
	var widths [4]int
	for i, c := range cs {
		columns[i] = [4]string{Printable(c.State), CandidateAddress(c), Printable(c.Source), RTT(c.RTTSeconds)}
		for j, text := range columns[i] {
			widths[j] = max(widths[j], ansi.StringWidth(text))
		}
	}
	var lines []string
	for i, c := range cs {
		glyph := Candidate(c.State)
		var row strings.Builder
		for j, text := range columns[i] {
			pad := strings.Repeat(" ", widths[j]-ansi.StringWidth(text))
			if j == 0 {
				text = p.Text(glyph.Style, text)
			}
			row.WriteString(Gap + text + pad)
		}
		lines = append(lines, "  "+p.Cell(glyph)+strings.TrimRight(row.String()[1:], " "))
		if c.Reason != "" {
			lines = append(lines, Wrap("      ", Printable(c.Reason), width, "      ")...)
		}
	}
	return lines
}

// CandidateLines returns the candidates, one per line.
func CandidateLines(s *api.PeerStatus) []string {
	var rows []string
	for _, c := range s.Candidates {
		row := CandidateAddress(c) + " (" + Printable(c.Source) + ")"
		for _, part := range []string{Printable(c.State), RTT(c.RTTSeconds), Printable(c.Reason)} {
			if part != "" {
				row += " " + part
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// CandidateAddress returns a candidate's address and the relay by which it is reached.
func CandidateAddress(c api.Candidate) string {
	if c.Relay == "" {
		return Printable(c.Address)
	}
	return Printable(c.Address) + " via " + Printable(c.Relay)
}
