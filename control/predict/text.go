package predict

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text returns the prediction as text, in lines of at most width characters if the words permit;
// 0 means 80.
func (p Prediction) Text(width int) string {
	if width <= 0 {
		width = 80
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s – %s\n", p.A, p.B)
	for _, m := range p.Modes {
		fmt.Fprintf(&b, "\n%-10s %s\n", m.Mode, m.Answer.words())
		wrap(&b, width, "  path     ", m.Path.words())
		for _, r := range m.Reasons {
			wrap(&b, width, "  because  ", r)
		}
		for _, n := range m.Needs {
			verb := "lacks"
			if n.Answer == Conditional {
				verb = "if"
			}
			wrap(&b, width, fmt.Sprintf("  %-8s ", verb), fmt.Sprintf("%s of %s: %s", n.Service, n.Cluster, n.Lacks))
			wrap(&b, width, "  fix      ", n.Fix)
		}
	}
	return b.String()
}

func (a Answer) words() string {
	switch a {
	case Works:
		return "works"
	case Conditional:
		return "works if the following holds"
	}
	return "does not work"
}

func (p Path) words() string {
	who := p.Dialer + " dials"
	if p.Dialer == Both {
		who = "either dials"
		if p.Kind == PathPunch {
			who = "both dial at the same time"
		}
	}
	switch p.Kind {
	case PathNone:
		return "none"
	case PathRelay:
		return "over the relay"
	case PathPunch:
		return "direct, punched through both NATs: " + who
	}
	if p.Address != "" {
		who += " " + p.Address
	}
	return "direct: " + who
}

// wrap writes a text after a label, with further lines below the first.
func wrap(b *strings.Builder, width int, label, text string) {
	indent := utf8.RuneCountInString(label)
	b.WriteString(label)
	at := indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
}
