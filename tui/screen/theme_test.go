package screen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/theme"
)

func TestThemes(t *testing.T) {
	s := play(t, busy(), 80, 24, true).press("3")
	for _, vanishing := range []string{"\x1b[33m", "\x1b[37m"} {
		s.press(":").typed("theme light").press("enter").wantNot(vanishing)
	}
	s.press(":").typed("theme contrast").press("enter")
	for _, sequence := range strings.Split(s.View(), "\x1b[")[1:] {
		if style, _, _ := strings.Cut(sequence, "m"); style != "" && style != "1" && style != "7" && style != "1;7" {
			t.Errorf("the style %q has a hue or is faint", style)
		}
	}
	s.press(":").typed("theme pink").press("enter").want(`no theme is called "pink" (there are:`, "dark, light)")
	s = play(t, busy(), 80, 24, false).press(":").typed("theme light").press("enter")
	s.want("colours are off, by NO_COLOR").wantNot("\x1b[3")
}

// With 16 million colours charts are shaded, and nothing else changes. With fewer, and in the theme
// without hues, there are no such colours.
func TestChartsInTrueColor(t *testing.T) {
	var themes strings.Builder
	for _, size := range sizes() {
		for _, keys := range [][]string{{"1"}, {"1", "w"}, {"2"}, {"3"}, {"7"}} {
			s := flowing(t, size[0], size[1], true).press(keys...)
			for _, name := range theme.BuiltIn() {
				of := fmt.Sprintf("%dx%d %s %s", size[0], size[1], strings.Join(keys, " "), name)
				s.trueColor = false
				s.commandTheme(name)
				few := s.View()
				s.trueColor = true
				s.commandTheme(name)
				many := s.View()
				if ansi.Strip(few) != ansi.Strip(many) {
					t.Errorf("%s: shades change more than colours:\n%s", of, ansi.Strip(many))
				}
				if strings.Contains(few, "38;2") || name == theme.Contrast && few != many {
					t.Errorf("%s: there is a shade:\n%q", of, many)
				}
				if shaded := strings.Contains(many, "38;2"); keys[0] == "3" && size[1] >= 24 && shaded != (name != theme.Contrast) {
					t.Errorf("%s: the chart is shaded: %v", of, shaded)
				}
				if name == theme.Dark && keys[0] == "3" {
					golden(t, fmt.Sprintf("throughput-%dx%d-truecolor", size[0], size[1]), many)
				}
				fmt.Fprintf(&themes, "%s: %s\n", of, stylesOf(many))
			}
		}
	}
	golden(t, "truecolor-themes", themes.String())
}

// A user's theme can be selected by name at run time, and the error of an invalid one says where it
// is.
func TestAThemeOfTheUsersOwn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("night.theme", "base: light\nbad: bold #010203\n")
	write("broken.theme", "\ngood: grean\n")
	s := play(t, busy(), 200, 24, true)
	s.themes = theme.Dir(dir)
	s.press(":").typed("theme n").press("tab", "enter").want("\x1b[1;38;2;1;2;3m✗ failed", "\x1b[35m")
	s.press(":").typed("theme broken").press("enter").want(`broken.theme:2: good: "grean" is no colour`, "\x1b[1;38;2;1;2;3m✗ failed")
	write("night.theme", "bad: 9\n")
	s.press(":").typed("theme " + dir + "/night.theme").press("enter").want("\x1b[38;5;9m✗ failed")
	s.press(":").typed("theme colour-blind").press("enter").wantNot("\x1b[31m", "\x1b[32m")
}

func TestTheThemeFollowsTheBackgroundThatIsTold(t *testing.T) {
	for told, want := range map[string]string{
		"": theme.Dark, "15;0": theme.Dark, "0;15": theme.Light, "0;default;15": theme.Light, "0;7": theme.Light, "7;8": theme.Dark,
		"default;default": theme.Dark, "0;": theme.Dark, "0;15\x1b": theme.Dark,
	} {
		if got := ThemeFor(func(string) string { return told }); got != want {
			t.Errorf("COLORFGBG=%q: got %s, want %s", told, got, want)
		}
	}
}
