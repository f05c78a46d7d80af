package screen

import (
	"cmp"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/theme"
)

// ThemeFor returns the theme for the terminal's background according to COLORFGBG, which rxvt,
// Konsole and others set, and which ends with the number of a colour. The terminal is not queried.
func ThemeFor(getenv func(string) string) string {
	colors := strings.Split(getenv("COLORFGBG"), ";")
	switch colors[len(colors)-1] {
	case "7", "9", "10", "11", "12", "13", "14", "15":
		return theme.Light
	}
	return theme.Dark
}

// GraphFor returns the characters for charts according to the environment: no Unicode if the locale
// is set and not UTF-8, such as C or POSIX, or if the terminal's own font lacks most of it. A
// missing locale says nothing: containers often have none, and are used from UTF-8 terminals. Only
// a dumb terminal needs an explicit one.
func GraphFor(getenv func(string) string) string {
	locale, term := cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")), getenv("TERM")
	_, charset, _ := strings.Cut(locale, ".")
	charset, _, _ = strings.Cut(strings.ToLower(strings.ReplaceAll(charset, "-", "")), "@")
	poor := slices.Contains([]string{"linux", "vt100", "vt102", "vt220"}, term)
	if poor || charset != "utf8" && (locale != "" || term == "dumb") {
		return graphASCII
	}
	return graphBraille
}

func (m *model) commandTheme(name string) tea.Cmd {
	p, err := m.themes.Load(name)
	switch {
	case err != nil:
		return m.say(err.Error())
	case m.data.paint == cell.Bare:
		return m.say("colours are off, by NO_COLOR or the kind of terminal")
	}
	m.dress(p)
	return nil
}

// dress applies a paint, with as many colours as the terminal has.
func (m *model) dress(p cell.Paint) {
	if m.trueColor {
		p = p.InTrueColor()
	}
	m.data.paint = p
}
