package screen

import (
	"strings"
	"testing"
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
	s.press(":").typed("theme pink").press("enter").want("theme is one of dark, light, contrast")
	s = play(t, busy(), 80, 24, false).press(":").typed("theme light").press("enter")
	s.want("colours are off, by NO_COLOR").wantNot("\x1b[3")
}

func TestTheThemeFollowsTheBackgroundThatIsTold(t *testing.T) {
	for told, want := range map[string]string{
		"": themeDark, "15;0": themeDark, "0;15": themeLight, "0;default;15": themeLight, "0;7": themeLight, "7;8": themeDark,
		"default;default": themeDark, "0;": themeDark, "0;15\x1b": themeDark,
	} {
		if got := ThemeFor(func(string) string { return told }); got != want {
			t.Errorf("COLORFGBG=%q: got %s, want %s", told, got, want)
		}
	}
}
