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

// Pad fills a line with spaces up to a width, and cuts what is wider.
func Pad(line string, width int) string {
	w := ansi.StringWidth(line)
	if w > width {
		line = ansi.Truncate(line, width, "…")
		w = ansi.StringWidth(line) // One less where a wide character did not fit.
	}
	return line + strings.Repeat(" ", max(0, width-w))
}

// Flow puts items side by side and begins a new line where the next does not fit. A
// width of 0 keeps them on one line.
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

// Wrap puts the words of a text behind the prefix and begins a new line, with the
// indent, where the next word does not fit. Words stay whole, hyphens or not, for they
// may be meant to be copied; only one that is wider than a line is cut, if possible behind a mark. A width of 0
// keeps everything on one line.
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
		for ansi.StringWidth(*last) > width && ansi.StringWidth(indent) < width/2 {
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

// split cuts a line that is too wide: behind a mark in the second half of what fits, such as one of a
// path, else where the room ends. It is not ok if not even one character fits, or a sequence of the terminal is in the way.
func split(line string, width int) (head, tail string, ok bool) {
	head = ansi.Truncate(line, width, "")
	if head == "" || !strings.HasPrefix(line, head) {
		return "", "", false
	}
	if mark := strings.LastIndexAny(head, "./:=,-"); mark >= 0 && ansi.StringWidth(head[:mark]) >= width/2 {
		head = head[:mark+1]
	}
	return head, line[len(head):], true
}

// NoServices says why there are no services of clusters to see. enabled is whether the gateway takes
// part in them.
func NoServices(enabled bool) string {
	if !enabled {
		return "services across clusters are off: set spec.kubernetes.mcs (Helm value mcs.enabled)"
	}
	return "no service is exported or imported; see services.export and services.import of the peers, and `kubectl get serviceexports -A` where there is a cluster"
}
