package cell

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Fit cuts a line that is too wide; a width of 0 cuts nothing.
func Fit(line string, width int) string {
	if width <= 0 {
		return line
	}
	return ansi.Truncate(line, width, "…")
}

// Pad fills a line with spaces up to a width, and cuts wider ones.
func Pad(line string, width int) string {
	w := ansi.StringWidth(line)
	if w > width {
		line = ansi.Truncate(line, width, "…")
		w = ansi.StringWidth(line) // One less if a wide character did not fit.
	}
	return line + strings.Repeat(" ", max(0, width-w))
}

// Flow puts items side by side and begins a new line when the next does not fit. A width of 0 keeps
// them on one line.
func Flow(items []string, width int) []string {
	const sep = " · "
	var lines []string
	line := ""
	for _, item := range items {
		switch {
		case item == "":
		case line == "":
			line = item
		case width > 0 && ansi.StringWidth(line)+ansi.StringWidth(sep)+ansi.StringWidth(item) > width:
			lines = append(lines, Fit(line, width))
			line = "  " + item
		default:
			line += sep + item
		}
	}
	if line != "" {
		lines = append(lines, Fit(line, width))
	}
	return lines
}

// Wrap puts the words of a text after the prefix and begins a new line, with the indent, when the
// next word does not fit. Words stay whole, even at hyphens, because they may be copied. Only one
// that is wider than a line is cut, if possible after a punctuation mark. A width of 0 keeps
// everything on one line.
func Wrap(prefix, text string, width int, indent string) []string {
	if width <= 0 {
		return []string{prefix + text}
	}
	lines := []string{prefix}
	empty := true // The last line has no word yet.
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		if !empty && ansi.StringWidth(*last)+1+ansi.StringWidth(word) > width {
			lines, empty = append(lines, indent), true
			last = &lines[len(lines)-1]
		}
		if !empty {
			*last += " "
		}
		*last += word
		empty = false
		for ansi.StringWidth(beginning(*last, width)) > width && ansi.StringWidth(indent) < width/2 {
			head, tail, ok := split(*last, width)
			if !ok {
				break
			}
			*last = head
			lines = append(lines, indent+tail)
			last = &lines[len(lines)-1]
		}
	}
	var out []string
	for _, line := range lines {
		out = append(out, strings.Split(ansi.Hardwrap(line, width, true), "\n")...)
	}
	return out
}

// split cuts a line that is too wide: after a punctuation mark in the second half, as in a path,
// else at the width. It is not ok if not even one character fits, or an escape sequence prevents
// it.
func split(line string, width int) (head, tail string, ok bool) {
	head = ansi.Truncate(beginning(line, width), width, "")
	if head == "" || !strings.HasPrefix(line, head) {
		return "", "", false
	}
	if mark := strings.LastIndexAny(head, "./:=,-"); mark >= 0 && ansi.StringWidth(head[:mark]) >= width/2 {
		head = head[:mark+1]
	}
	return head, line[len(head):], true
}

// beginning returns as much of a line as shows whether it is too wide, and where to cut it. A word of
// many lines would otherwise be measured to its end for each of them.
func beginning(line string, width int) string {
	if strings.Contains(line, "\x1b") {
		return line
	}
	for n := 8 * width; n < len(line); n *= 2 {
		if ansi.StringWidth(line[:n]) > width+2 { // a character that is cut in two is beyond the width
			return line[:n]
		}
	}
	return line
}

// NoServices says why there are no services of clusters to show. enabled reports whether the
// gateway exports and imports them.
func NoServices(enabled bool) string {
	if !enabled {
		return "services across clusters are off: set spec.kubernetes.mcs (Helm value mcs.enabled)"
	}
	return "no service is exported or imported; see services.export and services.import of the peers, and `kubectl get serviceexports -A` where there is a cluster. Named services are not listed here: `postern peer show PEER` shows them"
}
