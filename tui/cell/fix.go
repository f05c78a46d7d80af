package cell

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// FixLines formats a fix after a label. Several steps are numbered, "or" replaces an alternative's
// number, and commands have their own lines, to be copied. A width of 0 keeps everything on one
// line.
func FixLines(label string, fix api.Steps, width int) []string {
	if width <= 0 && len(fix) > 0 {
		return []string{label + Printable(fix.String())}
	}
	var lines []string
	number := 0
	for _, s := range fix {
		begin := label
		switch {
		case s.Or:
			begin += "or "
		case len(fix) > 1:
			number++
			begin += fmt.Sprintf("%d. ", number)
		}
		text, indent := Printable(s.Text), strings.Repeat(" ", ansi.StringWidth(begin))
		if s.Command != "" {
			text += ":"
		}
		lines = append(lines, Wrap(begin, text, width, indent)...)
		if s.Command != "" {
			lines = append(lines, Wrap(indent+"  ", Printable(s.Command), width, indent+"    ")...)
		}
		label = strings.Repeat(" ", ansi.StringWidth(label))
	}
	return lines
}
