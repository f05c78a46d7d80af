package theme

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tui/cell"
)

func TestRolesOfAFile(t *testing.T) {
	p, err := Parse("# mine\nbase: light\n#\ngood : #5fd7af\nbad: \"bold bright-white on 160\" # red\nquiet: plain\r\nselected: reverse underline\n")
	if err != nil {
		t.Fatal(err)
	}
	for style, want := range map[cell.Style]string{
		cell.Good: "\x1b[38;2;95;215;175mx\x1b[m", cell.Bad: "\x1b[1;97;48;5;160mx\x1b[m", cell.Quiet: "x",
		cell.Selected: "\x1b[7;4mx\x1b[m", cell.Second: "\x1b[34mx\x1b[m", // of the base
	} {
		if got := p.Text(style, "x"); got != want {
			t.Errorf("style %v is %q, want %q", style, got, want)
		}
	}
	if coloured, light := p.Hues(); !coloured || !light {
		t.Error("what it is based on is for a light background")
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"\ngod: green":              `2: there is no role "god" (did you mean good?)`,
		"nothing: green":            `1: there is no role "nothing" (there are: bad, base, good, quiet, second, selected, strong, wary)`,
		"good: grean":               `1: good: "grean" is no colour (want black, red, green, yellow, blue, magenta, cyan, white with or without bright-, a number to 255, or #RRGGBB; before it bold, faint, underline or reverse)`,
		"good: 256":                 `1: good: "256" is no colour`,
		"good: #12345":              `1: good: "#12345" is no colour`,
		"good: red on":              `1: good: "on" is no colour`,
		"good:":                     `1: good: no colour`,
		"good green":                `1: "good green" is no line of a theme (want ROLE: COLOUR, such as good: green)`,
		"bad: red\ngood: 1\nbad: 2": `3: bad is given twice, first in line 1 (remove one)`,
		"base: mine":                `1: base: no theme that is built in is called "mine" (there are: colour-blind, contrast, dark, light)`,
		"good: \x1b[2J":             `1: good: "\x1b[2j" is no colour`,
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestThemesAreFoundByNameAndPath(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	d := DirFor(func(name string) string { return env[name] })
	if want := filepath.Join(home, ".config/postern/themes"); string(d) != want {
		t.Errorf("the directory is %s, want %s", d, want)
	}
	env["XDG_CONFIG_HOME"] = filepath.Join(home, "x")
	d = DirFor(func(name string) string { return env[name] })
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"mine.theme": "good: 1\n", "dark.theme": "good: 2\n", "large.theme": strings.Repeat("#", maxSize+1)} {
		if err := os.WriteFile(filepath.Join(string(d), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(d.Names(), " "); got != "dark light contrast colour-blind large mine" {
		t.Errorf("there are %s", got)
	}
	for _, name := range []string{"mine", filepath.Join(string(d), "mine.theme"), "dark"} {
		if _, err := d.Load(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"mime": "did you mean mine?", "../x/mine": "no such file", "large": "more than 65536 bytes", home: "no regular file", "": "no theme is called", "/dev/zero": "no regular file"} {
		if _, err := d.Load(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if _, err := DirFor(func(string) string { return "" }).Load("mine"); err == nil {
		t.Error("a theme without a directory")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("base: light\ngood: bold #5fd7af on 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Parse(text); err == nil && !strings.Contains(p.Text(cell.Bad, "x"), "x") {
			t.Errorf("%q loses the text", text)
		}
	})
}
