package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// strange is what a completion may be made of that asks others.
var strange = []string{
	"gw`curl -s x|sh`-1", "gw$(reboot)", "gw;reboot", "gw(reboot)", "a b", "a\nb", "-x", "--force", "~root", "=ls", "!!", "a'b", "a\"b", "a\\b", "#a", "*", "{a,b}",
	"\x1b[31m", "\u202e", ":0", ":4", "_activeHelp_ run this", "",
	"plain\tand `reboot` $(reboot) \x1b[2J ; reboot", "plain\ttwice", "10.0.0.1:80\tan address", "gw:1",
}

func strangely(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return strange, cobra.ShellCompDirectiveNoFileComp
}

// safe is a line that shells are given: a word, and what is said of it.
var safe = regexp.MustCompile("^(:[0-9]+|[0-9A-Za-z_./-][0-9A-Za-z_./:+=@%,-]*(\t[^`$\\\\\"'&|;<>*?\\[\\]{}#~!^:\x00-\x1f\u202e]+)?)$")

// asked gives the lines with which a command line is completed, by a tree in which every
// argument and every flag's value that nobody completes is completed strangely.
func asked(t *testing.T, words ...string) []string {
	t.Helper()
	var out bytes.Buffer
	a := newApp(strings.NewReader(""), &out, io.Discard, func(string) string { return "" })
	a.socket = t.TempDir() + "/none"
	root := a.rootCommand()
	walk(root, func(c *cobra.Command) {
		c.ValidArgs, c.ValidArgsFunction = nil, strangely
		eachFlag(c, func(f *pflag.Flag) { _ = c.RegisterFlagCompletionFunc(f.Name, strangely) })
	})
	if code := a.run(context.Background(), root, append([]string{cobra.ShellCompRequestCmd}, words...)); code != exitOK {
		t.Fatalf("%q: exit code %d", words, code)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

func eachFlag(c *cobra.Command, visit func(*pflag.Flag)) {
	c.LocalFlags().VisitAll(visit)
}

// Whatever a completion function of any command offers, what reaches the shell is safe.
func TestEveryCompletionIsSafeInAShell(t *testing.T) {
	root := newApp(nil, io.Discard, io.Discard, func(string) string { return "" }).rootCommand()
	asks := map[string][]string{}
	walk(root, func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		asks[c.CommandPath()] = append(slices.Clone(path), "")
		asks[c.CommandPath()+" -"] = append(slices.Clone(path), "-")
		eachFlag(c, func(f *pflag.Flag) {
			if f.NoOptDefVal == "" {
				asks[c.CommandPath()+" --"+f.Name] = append(slices.Clone(path), "--"+f.Name, "")
				asks[c.CommandPath()+" --"+f.Name+"="] = append(slices.Clone(path), "--"+f.Name+"=")
			}
		})
	})
	if len(asks) < 100 {
		t.Fatalf("only %d questions: the tree was not walked", len(asks))
	}
	strangers := 0
	for name, words := range asks {
		lines := asked(t, words...)
		for i, line := range lines {
			if !safe.MatchString(line) || strings.HasPrefix(line, ":") && i != len(lines)-1 && line != ":0" && line != ":4" {
				t.Errorf("%s: %q is offered", name, line)
			}
			if strings.HasPrefix(line, "-") && !strings.HasPrefix(words[len(words)-1], "-") {
				t.Errorf("%s: the flag %q is offered as a word", name, line)
			}
		}
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "plain") }) {
			strangers++
		}
	}
	if strangers < 100 {
		t.Errorf("only %d of %d questions reached a strange function", strangers, len(asks))
	}
}

func TestOffers(t *testing.T) {
	for _, c := range []struct{ name, typed, in, want string }{
		{"words and a directive", "", "cloud\nedge\n:4\n", "cloud\nedge\n:4\n"},
		{"flags", "--", "--wait\thow long\n--wait=\n:4\n", "--wait\thow long\n--wait=\n:4\n"},
		{"flags as words", "", "--force\nedge\n:4\n", "edge\n:4\n"},
		{"a word twice", "", "edge\tone\nedge\ttwo\n:4\n", "edge\tone\n:4\n"},
		{"a description", "", "edge\tthe peer's `id` $(id) [x]: y\n", "edge\tthe peer’s id (id) x y\n"},
		{"nothing of a description", "", "edge\t`;`\n", "edge\n"},
		{"commands", "", "a`id`\na$(id)\na;id\na|id\na&\na b\n'a'\n", ""},
		{"active help", "", "_activeHelp_ run this\n", ""},
	} {
		var out bytes.Buffer
		o := newOffers(&out, []string{cobra.ShellCompRequestCmd, c.typed})
		for _, b := range []byte(c.in) { // in whatever parts it comes
			if n, err := o.Write([]byte{b}); n != 1 || err != nil {
				t.Fatalf("%s: %d, %v", c.name, n, err)
			}
		}
		if out.String() != c.want {
			t.Errorf("%s: got %q, want %q", c.name, out.String(), c.want)
		}
	}
}

// The script is cobra's: another version of it may have other lines.
func TestTheScriptForFishQuotesWords(t *testing.T) {
	var script strings.Builder
	if err := (&cobra.Command{Use: "postern"}).GenFishCompletion(&script, true); err != nil {
		t.Fatal(err)
	}
	if got := fishScript(script.String()); got == script.String() || strings.Count(got, "string escape -- $args") != 1 {
		t.Error("the words are not quoted: cobra's script has changed")
	}
}

func FuzzOffers(f *testing.F) {
	for _, s := range strange {
		f.Add(s, "")
		f.Add(s, "-")
	}
	f.Fuzz(func(t *testing.T, in, typed string) {
		var out bytes.Buffer
		if _, err := newOffers(&out, []string{typed}).Write([]byte(in + "\n")); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			word, about, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			if !directive.MatchString(word) && !foreign.Bare(strings.TrimLeft(word, "-")) || strings.ContainsAny(about, "`$\\\"';|&<>\t") || foreign.Line(about) != about {
				t.Errorf("%q of %q is offered", line, in)
			}
		}
	})
}
