package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Help fits a terminal of 80 columns, and shows how each command is used, by a line that
// the command itself takes.
func TestHelpOfEveryCommand(t *testing.T) {
	n := 0
	walk(newApp(nil, io.Discard, io.Discard, func(string) string { return "" }).rootCommand(), func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		n++
		var out bytes.Buffer
		a := newApp(strings.NewReader(""), &out, io.Discard, func(string) string { return "" })
		if code := execute(context.Background(), a, append(strings.Fields(c.CommandPath())[1:], "--help")); code != exitOK {
			t.Fatalf("%s --help: exit code %d", c.CommandPath(), code)
		}
		for line := range strings.Lines(out.String()) {
			if w := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); w > helpWidth {
				t.Errorf("%s --help has a line of %d characters: %q", c.CommandPath(), w, line)
			}
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example of itself: %q", c.CommandPath(), c.Example)
		}
	})
	if n < 30 {
		t.Errorf("only %d commands were seen", n)
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"short\n", "short\n"},
		{"one two three four five six\n", "one two three four\nfive six\n"},
		{"  indented one two three\n", "  indented one two\n  three\n"},
		{"  --flag   what it does here\n", "  --flag   what it\n           does here\n"},
		{"a-word-that-is-longer-than-a-line\n", "a-word-that-is-longer-than-a-line\n"},
		{"äöü äöü äöü äöü äöü\n", "äöü äöü äöü äöü äöü\n"},
	} {
		if got := wrap(c.in, 20); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}
