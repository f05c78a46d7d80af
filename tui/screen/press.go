package screen

import (
	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"
)

// pressed handles a key: by the line being typed first, then the frame, then the view.
func (m *model) pressed(msg tea.KeyMsg) tea.Cmd {
	switch msg.Type {
	case tea.KeyCtrlC:
		return tea.Quit
	case tea.KeyCtrlZ:
		return tea.Suspend
	}
	if msg.Type == tea.KeyRunes && len(msg.Runes) > 1 && !msg.Paste {
		return m.pressedAtOnce(msg)
	}
	switch m.mode {
	case modeFilter:
		return m.typeFilter(msg)
	case modeCommand:
		return m.typeCommand(msg)
	case modeChoose:
		return m.pressedInChoice(msg)
	case modeConfirm:
		return m.pressedInProposal(msg)
	case modeHelp:
		if cmd, taken := m.pressedInHelp(msg); taken {
			return cmd
		}
	}
	if cmd, taken := m.pressedInFrame(msg); taken {
		return cmd
	}
	return m.view().update(msg, m.data)
}

// pressedAtOnce handles keys that were typed faster than they were read and arrived together. Those
// typed before a change was shown do not confirm it.
func (m *model) pressedAtOnce(msg tea.KeyMsg) tea.Cmd {
	var cmds []tea.Cmd
	for i, r := range msg.Runes {
		if m.mode == modeConfirm {
			break
		}
		if i > 0 {
			m.View() // A view knows its rows once they are drawn.
		}
		cmds = append(cmds, m.pressed(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}, Alt: msg.Alt}))
	}
	return tea.Sequence(cmds...)
}

// pressedInFrame handles the keys that have the same meaning in every view.
func (m *model) pressedInFrame(msg tea.KeyMsg) (cmd tea.Cmd, taken bool) {
	k := keys()
	switch {
	case key.Matches(msg, k.quit):
		return tea.Quit, true
	case key.Matches(msg, k.help):
		m.mode, m.helpTop = modeHelp, 0
	case key.Matches(msg, k.back):
		m.back()
	case key.Matches(msg, k.filter):
		m.mode, m.oldFilter = modeFilter, m.data.filter
		m.input.set(m.data.filter.text)
	case key.Matches(msg, k.command):
		m.mode = modeCommand
		m.input.set("")
	case key.Matches(msg, k.view):
		if i := int(msg.Runes[0] - '1'); i < len(m.views) {
			m.show(i)
		}
	case key.Matches(msg, k.next):
		m.show(m.at + 1)
	case key.Matches(msg, k.previous):
		m.show(m.at - 1)
	case key.Matches(msg, k.sort):
		return nil, m.sortNext()
	case key.Matches(msg, k.group):
		return m.askGroup(), true
	case key.Matches(msg, k.wide):
		m.widen()
	case key.Matches(msg, k.freeze):
		return m.freeze(), true
	case key.Matches(msg, k.gateway):
		return m.nextGateway(), true
	case key.Matches(msg, k.mouse):
		return m.switchMouse(), true
	default:
		return nil, false
	}
	return nil, true
}

func (m *model) widen() { m.data.wide = !m.data.wide }

// freeze freezes the screen, or unfreezes it.
func (m *model) freeze() tea.Cmd {
	m.data.frozen = !m.data.frozen
	m.data.now = m.now()
	return m.poll()
}

func (m *model) switchMouse() tea.Cmd {
	m.mouse = !m.mouse
	if m.mouse {
		m.say("mouse on: shift selects text as usual, m switches it off")
		return tea.EnableMouseCellMotion
	}
	m.say("mouse off")
	return tea.DisableMouse
}

// back undoes one thing: the last change of view, then the filter.
func (m *model) back() {
	if n := len(m.trail); n > 0 {
		m.at, m.trail = m.trail[n-1], m.trail[:n-1]
		return
	}
	m.data.filter = filter{}
}

// sortNext sorts by the next column, in a view that has columns.
func (m *model) sortNext() bool {
	v, ok := m.view().(sortable)
	if !ok {
		return false
	}
	columns := v.sortColumns()
	now, _ := v.sortedBy()
	for i, c := range columns {
		if c == now {
			v.sortBy(columns[(i+1)%len(columns)])
			break
		}
	}
	m.sayOrder(v)
	return true
}

func (m *model) sayOrder(v sortable) {
	column, descending := v.sortedBy()
	order := "sorted by " + column
	if descending {
		order += ", the greatest first"
	}
	m.say(order)
}

func (m *model) typeFilter(msg tea.KeyMsg) tea.Cmd {
	switch msg.Type {
	case tea.KeyEnter:
		m.mode = modeKeys
	case tea.KeyEsc:
		m.mode, m.data.filter = modeKeys, m.oldFilter
		return nil
	default:
		m.input.key(msg)
	}
	m.data.filter = filter{m.input.text()}
	return nil
}

func (m *model) typeCommand(msg tea.KeyMsg) tea.Cmd {
	switch msg.Type {
	case tea.KeyEnter:
		m.mode = modeKeys
		return m.execute(m.input.text())
	case tea.KeyEsc:
		m.mode = modeKeys
	case tea.KeyTab:
		if c := m.completions(m.input.text()); len(c) > 0 {
			m.input.set(commonPrefix(c))
		}
	default:
		m.input.key(msg)
	}
	return nil
}

// moused handles a mouse event: a click on a tab opens it, the rest is for the view.
func (m *model) moused(msg tea.MouseMsg) tea.Cmd {
	if m.mode == modeHelp {
		s := scroller{top: m.helpTop}
		s.update(msg)
		m.helpTop = s.top
		return nil
	}
	if m.mode != modeConfirm && msg.Y == m.tabTop && msg.Action == tea.MouseActionPress && msg.Button == tea.MouseButtonLeft {
		for i, s := range m.tabs {
			if msg.X >= s.from && msg.X < s.to {
				m.show(i)
			}
		}
		return nil
	}
	if m.mode == modeConfirm || msg.Y < m.viewTop || msg.Y >= m.viewTop+m.viewHeight {
		return nil
	}
	msg.Y -= m.viewTop
	return m.view().update(msg, m.data)
}

// span is a piece of a line, in cells.
type span struct{ from, to int }
