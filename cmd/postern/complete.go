package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Completion scripts hand the line back to the shell's eval at the next TAB, and fish does so
// without the quotes of the words before. A word that is offered is therefore a part of a
// program that the operator's shell runs, and many words come from others: peers, gateways
// that strangers announce, a gateway in someone else's cluster.
//
// So everything that a shell is offered, whoever offers it, passes through [offers]: it is
// what cobra's completion command writes to.

// completing reports whether a command line is a shell's question for completions.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// offers passes on the completions that are safe in a shell: a line for each, a word and,
// after a tab, what is said of it; and last the directive.
type offers struct {
	to io.Writer
	// flags: the word that is being completed is a flag. Where it is none, a word that begins
	// with a hyphen would become one.
	flags bool
	rest  []byte
	seen  map[string]bool
}

func newOffers(to io.Writer, args []string) *offers {
	return &offers{to: to, flags: strings.HasPrefix(args[len(args)-1], "-"), seen: map[string]bool{}}
}

// Write takes whole lines, and keeps the beginning of one.
func (o *offers) Write(b []byte) (int, error) {
	o.rest = append(o.rest, b...)
	for {
		line, rest, whole := bytes.Cut(o.rest, []byte{'\n'})
		if !whole {
			return len(b), nil
		}
		o.rest = rest
		if safe, ok := o.line(string(line)); ok {
			if _, err := io.WriteString(o.to, safe+"\n"); err != nil {
				return 0, err
			}
		}
	}
}

// directive is the last line of cobra's answer.
var directive = regexp.MustCompile(`^:[0-9]{1,3}$`)

// line is a line as it may be offered; false for one that may not. A word is offered once:
// what two entries have in common is typed for the operator, and of two that differ in
// nothing but what is said of them that would be typed, too.
func (o *offers) line(s string) (string, bool) {
	if directive.MatchString(s) {
		return s, true
	}
	word, about, _ := strings.Cut(s, "\t")
	if !foreign.Bare(strings.TrimLeft(word, "-")) || strings.HasPrefix(word, "-") && !o.flags || o.seen[word] {
		return "", false
	}
	o.seen[word] = true
	if about = plain(about); about == "" {
		return word, true
	}
	return word + "\t" + about, true
}

// plain is a description without what any shell acts on.
func plain(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\'':
			return '’'
		case strings.ContainsRune("`$\\\"&|;<>*?[]{}#~!^:", r):
			return -1
		}
		return r
	}, foreign.Of(s).String()))
}

// fishScript is cobra's script for fish, which evaluates the words before the one that is
// completed without their quotes; here they get them back.
func fishScript(script string) string {
	const words = "set -l args (commandline -opc)\n"
	return strings.Replace(script, words, words+"    set args $args[1] (string escape -- $args[2..-1])\n", 1)
}
