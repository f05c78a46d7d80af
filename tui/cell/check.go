package cell

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// Subject names what a check is about: for a check of this gateway its name; for a peer's the peer, the
// direction and the name. The peer can be omitted if it is shown above.
func Subject(c *api.Check, withPeer bool) string {
	name := Printable(strings.TrimPrefix(c.Name, "inbound-"))
	if c.Peer == "" {
		return name
	}
	arrow := "→ "
	if c.Direction == api.DirectionInbound {
		arrow = "← "
	}
	if withPeer {
		return Printable(c.Peer) + " " + arrow + name
	}
	return arrow + name
}

// CheckLines returns a check's verdict on one line and, if it fails, its cause and fix in full, and
// with detail the time of each stage. A check that depends on another one only names that, and with
// detail its stages.
func CheckLines(c *api.Check, subject string, width int, p Paint, now time.Time, detail bool) []string {
	lines := checkHead(c, subject, width, p, now)
	failed := c.Verdict.Verdict == api.Error || c.Verdict.Verdict == api.Warning
	switch {
	case c.DependsOn != "" && !detail:
		return lines
	case c.DependsOn != "": // Its cause and fix are shown with the other.
		return append(lines, stageLines(c.Stages, width, p)...)
	}
	const cause, fix = "  cause: ", "  fix:   "
	part := func(label string, drawn []string) {
		for i, l := range drawn {
			if rest, ok := strings.CutPrefix(l, label); ok && i == 0 {
				l = "  " + p.Text(Quiet, label[2:]) + rest
			}
			lines = append(lines, Fit(l, width))
		}
	}
	if c.Cause != "" {
		part(cause, wrapBehind(cause, Printable(c.Cause), width))
	}
	part(fix, FixLines(fix, api.StepsOf(c.Steps, c.Fix, c.Command), width))
	if failed || detail {
		lines = append(lines, stageLines(c.Stages, width, p)...)
	}
	return lines
}

// wrapBehind puts a text after a label, and its further lines below it.
func wrapBehind(label, text string, width int) []string {
	return Wrap(label, text, width, strings.Repeat(" ", ansi.StringWidth(label)))
}

// checkHead returns the line of a verdict, in columns if it fits and wrapped otherwise.
func checkHead(c *api.Check, subject string, width int, p Paint, now time.Time) []string {
	word := Outcome(c.Verdict.Verdict)
	if c.DependsOn != "" {
		word.Style = Quiet
	}
	word.Text += strings.Repeat(" ", max(0, len("! warning")-ansi.StringWidth(word.Text)))
	parts := []Cell{word, {subject, Strong}}
	if c.Code != "" {
		parts = append(parts, Cell{Text: strings.TrimSpace(Printable(c.Code) + " " + Printable(c.Stage))})
	}
	if c.Confidence != "" && c.Confidence != api.Certain {
		parts = append(parts, Cell{Printable(string(c.Confidence)), Quiet})
	}
	if c.DependsOn != "" {
		parts[1].Style = Quiet
		parts = append(parts, Cell{"depends on " + dependency(c.DependsOn), Quiet})
	}
	if r := RTT(c.RTTSeconds); r != "" {
		parts = append(parts, Cell{r, Quiet})
	}
	if c.CheckedAt != nil && !c.CheckedAt.IsZero() && !now.IsZero() {
		parts = append(parts, Cell{Age(now.Sub(*c.CheckedAt)) + " ago", Quiet})
	}
	return partLines(parts, width, p)
}

// partLines puts parts side by side and begins a new line when the next does not fit.
func partLines(parts []Cell, width int, p Paint) []string {
	const indent = "    "
	line, used := p.Cell(parts[0]), ansi.StringWidth(parts[0].Text)
	var lines []string
	for i, part := range parts[1:] {
		w := ansi.StringWidth(part.Text)
		if width <= 0 || used+len(Gap)+w <= width {
			line, used = line+Gap+p.Cell(part), used+len(Gap)+w
			continue
		}
		if len(indent)+w <= width {
			lines = append(lines, line)
			line, used = indent+p.Cell(part), len(indent)+w
			continue
		}
		prefix := strings.TrimRight(parts[0].Text, " ") + " "
		if i > 0 {
			lines = append(lines, line)
			prefix = indent
		}
		pieces := Wrap(prefix, part.Text, width, indent) // It is wider than the screen.
		lines = append(lines, pieces[:len(pieces)-1]...)
		line = pieces[len(pieces)-1]
		used = ansi.StringWidth(line)
	}
	lines = append(lines, line)
	for i := range lines {
		lines[i] = Fit(lines[i], width)
	}
	return lines
}

// dependency formats the name of a check.
func dependency(name string) string {
	if own, ok := strings.CutPrefix(name, "own/"); ok {
		return "this gateway's " + Printable(own)
	}
	return Printable(strings.TrimPrefix(name, "inbound-"))
}

// stageLines returns a line for each stage: its outcome, its duration, and its detail.
func stageLines(stages []api.CheckStage, width int, p Paint) []string {
	name := 0
	for _, s := range stages {
		name = max(name, ansi.StringWidth(Printable(s.Stage)))
	}
	var lines []string
	for _, s := range stages {
		glyph, word := Outcome(s.Verdict).Sign(), Outcome(s.Verdict).Word()
		prefix := "    " + glyph + " " + Pad(Printable(s.Stage), name) + Gap
		seen := Pad(word, 7) + " " + Pad(took(s.Seconds), 7)
		if s.Via != "" {
			seen += " " + Printable(s.Via)
		}
		line := prefix + strings.TrimRight(seen, " ")
		if s.Detail != "" {
			line += Gap + Printable(s.Detail)
		}
		if width > 0 && ansi.StringWidth(line) > width { // The detail goes below.
			lines = append(lines, Fit(prefix+strings.TrimRight(seen, " "), width))
			for _, l := range Wrap("        ", Printable(s.Detail), width, "        ") {
				lines = append(lines, Fit(l, width))
			}
		} else {
			lines = append(lines, line)
		}
		first := len(lines) - 1
		for first > 0 && !strings.HasPrefix(lines[first], "    "+glyph) {
			first--
		}
		if rest, ok := strings.CutPrefix(lines[first], "    "+glyph); ok {
			lines[first] = "    " + p.Text(Outcome(s.Verdict).Style, glyph) + rest
		}
	}
	return lines
}

// took returns how long a stage took; "" if it was immediate, for example because the answer was
// already there.
func took(seconds float64) string {
	const least = 50e-6 // less is shown as 0.0 ms
	if seconds < least {
		return ""
	}
	return RTT(seconds)
}

// CompareChecks orders errors and warnings by which to fix first, then unknown (those that depend on
// another check last), ok, off.
func CompareChecks(a, b *api.Check) int {
	return cmp.Or(severity(a)-severity(b), urgencyOf(b)-urgencyOf(a))
}

func severity(c *api.Check) int {
	order := []api.Outcome{api.Error, api.Warning, api.Unknown, api.OK, api.Off}
	i := slices.Index(order, c.Verdict.Verdict)
	if i < 0 {
		i = slices.Index(order, api.Unknown)
	}
	if c.DependsOn != "" {
		return 2*i + 1
	}
	return 2 * i
}

// CheckSummary formats the counts of verdicts, without zeros.
func CheckSummary(s api.CheckSummary) string {
	var out []string
	for _, n := range []struct {
		count     int
		one, many string
	}{
		{s.Error, "error", "errors"}, {s.Warning, "warning", "warnings"}, {s.Unknown, "unknown", "unknown"}, {s.OK, "ok", "ok"}, {s.Off, "off", "off"},
	} {
		if n.count > 0 {
			out = append(out, Count(n.count, n.one, n.many))
		}
	}
	if len(out) == 0 {
		return "nothing was checked"
	}
	return strings.Join(out, ", ")
}

// FixOrder says in which order to fix what checks found; empty unless there are several faults.
func FixOrder(checks []api.Check) string {
	const most = 4
	var faults []Finding
	for i := range checks {
		if f, found := CheckFinding(&checks[i]); found {
			faults = append(faults, f)
		}
	}
	if len(faults) < 2 {
		return ""
	}
	out := "fix first "
	for i, f := range Order(faults) {
		switch {
		case i == most:
			return out + fmt.Sprintf(", and %d more", len(faults)-most)
		case i > 0:
			out += ", then "
		}
		out += strings.TrimSpace(f.Code + " " + f.Subject)
	}
	return out
}

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
