package theme

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

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
		"low: red\nhigh: #ffffff":   `1: low: "red" is no #RRGGBB`,
		"\nhigh: #ffffff":           `2: a gradient has two ends (give low and high)`,
		"nothing: green":            `1: there is no role "nothing" (there are: bad, base, good, high, low, quiet, second, selected, strong, wary)`,
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

// Both ends of each gradient stand out from the background, the high one more; contrast has none, and a file may
// have its own.
func TestGradients(t *testing.T) {
	luminance := func(c ansi.RGBColor) float64 { // WCAG 2
		linear := func(v uint8) float64 {
			if s := float64(v) / 255; s > 0.04045 {
				return math.Pow((s+0.055)/1.055, 2.4)
			}
			return float64(v) / 255 / 12.92
		}
		return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
	}
	for name, want := range map[string]int{Dark: 5, Light: 5, ColorBlind: 5, Contrast: 0} {
		p, err := Dir("").Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if flat := p.Gradients(); flat != nil {
			t.Errorf("%s has gradients where there are few colours: %v", name, flat)
		}
		gradients := p.InTrueColor().Gradients()
		if len(gradients) != want {
			t.Errorf("%s has %d gradients, want %d", name, len(gradients), want)
		}
		contrast := func(c ansi.RGBColor) float64 {
			if name == Light {
				return 1.05 / (luminance(c) + 0.05)
			}
			return (luminance(c) + 0.05) / 0.05
		}
		for i, g := range gradients {
			if low, high := contrast(g.Low), contrast(g.High); low < 3 || high < 7 {
				t.Errorf("%s, gradient %d: contrasts %.1f and %.1f, want 3 and 7 at least", name, i, low, high)
			}
		}
	}
	p, err := Parse("base: contrast\nlow: \"#010203\"\nhigh: #040506\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.InTrueColor().Gradients(), (cell.Gradient{Low: ansi.RGBColor{R: 1, G: 2, B: 3}, High: ansi.RGBColor{R: 4, G: 5, B: 6}}); len(got) != 1 || got[0] != want {
		t.Errorf("the file's gradients are %v, want %v alone", got, want)
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
