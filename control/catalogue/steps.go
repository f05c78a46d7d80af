package catalogue

import (
	"regexp"
	"text/template/parse"

	"github.com/postern-dev/postern/control/api"
)

// placeholder is a word in a command that the reader has to replace.
var placeholder = regexp.MustCompile(`\b(NAME|FILE|DEVICE|ADDRESS|HOST|PORT|IP)\b`)

// steps returns the steps of a fix, by the marks of its lines.
func (c *catalogue) steps(t *parse.Tree, v *view) api.Steps {
	var out api.Steps
	for _, l := range c.lines(t, v) {
		switch l.mark {
		case "$ ", "> ":
			if last := len(out) - 1; last >= 0 { // a test checks that a step without a command precedes it
				out[last].Command, out[last].Here = l.text, l.mark == "$ " && !placeholder.MatchString(l.text)
			}
		default:
			out = append(out, api.Step{Text: l.text, Command: l.rule, Or: l.mark == "or "})
		}
	}
	return out
}
