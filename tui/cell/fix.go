package cell

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// FixLines says behind a label what to do. Clauses are steps, numbered where there are several, and a
// command that a colon leads to has lines of its own, to be copied. A width of 0 keeps all on one line.
func FixLines(label, fix string, width int) []string {
	if width <= 0 {
		return []string{label + fix}
	}
	all := steps(fix)
	var lines []string
	blank := strings.Repeat(" ", ansi.StringWidth(label))
	for i, s := range all {
		begin, indent := label, blank
		if len(all) > 1 {
			number := fmt.Sprintf("%d. ", i+1)
			begin, indent = begin+number, indent+strings.Repeat(" ", len(number))
		}
		for _, part := range s {
			if part.command {
				lines = append(lines, Wrap(indent+"  ", part.text, width, indent+"    ")...)
			} else {
				lines = append(lines, Wrap(begin, part.text, width, indent)...)
			}
			begin = indent
		}
		label = blank
	}
	return lines
}

// part is a piece of a step: words, or a command without its backticks.
type part struct {
	text    string
	command bool
}

// steps are the clauses of a fix. They end with a full stop or a semicolon outside of backticks and
// brackets.
func steps(fix string) [][]part {
	var out [][]part
	var step []part
	begin, depth := 0, 0
	cut := func(end int, command bool) {
		if text := strings.Trim(fix[begin:end], " ,"); text != "" {
			step = append(step, part{text, command})
		}
	}
	for i := 0; i < len(fix); i++ {
		switch c := fix[i]; {
		case c == '`':
			end := strings.IndexByte(fix[i+1:], '`') + i + 1
			if end == i {
				i = len(fix) // It is not closed.
				break
			}
			if depth == 0 && strings.HasSuffix(fix[:i], ": ") {
				cut(i, false)
				begin = i + 1
				cut(end, true)
				begin = end + 1
			}
			i = end
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth = max(0, depth-1)
		case depth == 0 && (c == ';' || c == '.') && strings.HasPrefix(fix[i+1:], " "):
			cut(i, false)
			out, step, begin = append(out, step), nil, i+1
		}
	}
	begin = min(begin, len(fix))
	cut(len(fix), false)
	if len(step) > 0 {
		out = append(out, step)
	}
	return out
}
