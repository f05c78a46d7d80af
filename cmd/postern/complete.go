package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Completion scripts pass the line to the shell's eval at the next TAB, and fish does so without
// the quotes of earlier words. So an offered word is part of a program that the operator's shell
// runs, and many words come from others: peers, gateways announced by strangers, a gateway in
// someone else's cluster.
//
// Therefore everything that is offered to a shell passes through [offers]: cobra's completion
// command writes to it.

// completing reports whether a command line is a shell's request for completions.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// complete sets how a flag is completed.
func complete(c *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // there is no such flag: a mistake of this program
	}
}

// listed completes to one of a list, whatever was typed before.
func listed(list func() []string, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return list(), directive }
}

// offers passes on completions that are safe in a shell: a line for each with a word and, after a
// tab, its description, and finally the directive.
type offers struct {
	to io.Writer
	// flags: a flag is being completed. Otherwise a word that begins with a hyphen would become a
	// flag.
	flags bool
	rest  []byte
	seen  map[string]bool
}

func newOffers(to io.Writer, args []string) *offers {
	return &offers{to: to, flags: strings.HasPrefix(args[len(args)-1], "-"), seen: map[string]bool{}}
}

// Write passes on complete lines, and buffers the beginning of one.
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

// line returns a line as it may be offered; false if it may not. Each word is offered once: a shell
// types the common prefix of all entries, which for two entries with the same word would include
// the beginning of their descriptions.
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

// plain returns a description without characters that any shell interprets.
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

// fishScript returns cobra's script for fish, changed to keep the quotes of the words before the
// completed one. Cobra's evaluates them without.
func fishScript(script string) string {
	const words = "set -l args (commandline -opc)\n"
	return strings.Replace(script, words, words+"    set args $args[1] (string escape -- $args[2..-1])\n", 1)
}
