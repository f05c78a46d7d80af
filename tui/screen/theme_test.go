package screen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// A theme of the user's own is taken by name while the screen runs, and one that is wrong says where.
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
