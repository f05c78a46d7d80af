package screen

import (
	"cmp"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/theme"
)

// ThemeFor is the theme for the background that a terminal tells its programs of: by COLORFGBG, as
// rxvt, Konsole and others do, which ends with the number of a colour. The terminal is not asked.
func ThemeFor(getenv func(string) string) string {
	colors := strings.Split(getenv("COLORFGBG"), ";")
	switch colors[len(colors)-1] {
	case "7", "9", "10", "11", "12", "13", "14", "15":
		return theme.Light
	}
	return theme.Dark
}

// GraphFor is what charts are drawn with on the terminal that the environment tells of: without
// Unicode where its locale is set and not UTF-8, such as C or POSIX, or the terminal's own font lacks
// most of it. A locale that is not set says nothing: containers often have none, and are used from
// terminals that have UTF-8. Only a dumb terminal needs one that says so.
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

// dress takes other colours, as many as the terminal has.
func (m *model) dress(p cell.Paint) {
	if m.trueColor {
		p = p.InTrueColor()
	}
	m.data.paint = p
}
