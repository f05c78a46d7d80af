package screen

import (
	"slices"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// maxLine bounds what is typed or pasted, in characters: a ticket has some hundreds.
const maxLine = 4000

// line is a text being typed. Libraries' widgets are not used because they read the clipboard by
// running programs.
type line struct {
	runes []rune
	at    int // the cursor is before this one
}

// set replaces the line, as if the text were typed.
func (l *line) set(text string) {
	l.runes, l.at = nil, 0
	l.insert([]rune(text))
}

func (l *line) text() string { return string(l.runes) }

// key edits the line.
func (l *line) key(msg tea.KeyMsg) {
	switch msg.Type {
	case tea.KeyRunes, tea.KeySpace:
		l.insert(msg.Runes)
	case tea.KeyBackspace:
		if l.at > 0 {
			l.runes = slices.Delete(l.runes, l.at-1, l.at)
			l.at--
		}
	case tea.KeyDelete:
		if l.at < len(l.runes) {
			l.runes = slices.Delete(l.runes, l.at, l.at+1)
		}
	case tea.KeyLeft:
		l.at = max(0, l.at-1)
	case tea.KeyRight:
		l.at = min(len(l.runes), l.at+1)
	case tea.KeyHome, tea.KeyCtrlA:
		l.at = 0
	case tea.KeyEnd, tea.KeyCtrlE:
		l.at = len(l.runes)
	case tea.KeyCtrlU:
		l.runes, l.at = slices.Delete(l.runes, 0, l.at), 0
	case tea.KeyCtrlW:
		from := l.at
		for from > 0 && l.runes[from-1] == ' ' {
			from--
		}
		for from > 0 && l.runes[from-1] != ' ' {
			from--
		}
		l.runes, l.at = slices.Delete(l.runes, from, l.at), from
	}
}

// insert inserts printable characters before the cursor.
func (l *line) insert(runes []rune) {
	for _, r := range runes {
		if len(l.runes) < maxLine && foreign.Shown(r) {
			l.runes = slices.Insert(l.runes, l.at, r)
			l.at++
		}
	}
}

// draw shows the line with its cursor.
func (l *line) draw() string {
	return string(l.runes[:l.at]) + "▏" + string(l.runes[l.at:])
}
