package screen

import (
	"context"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tui/cell"
)

// NamedSource is one of several gateways.
type NamedSource struct {
	Name   string
	Source Source
	// Operator makes changes; nil makes the screen read-only.
	Operator Operator
}

// Action is an additional command.
type Action struct {
	// Name is what is typed, and Does says in a few words what it does.
	Name, Does string
	// Do runs it and returns a message about the result. It must end with its context, and may be
	// called again before it has ended.
	Do func(ctx context.Context) (string, error)
}

// actionLimit bounds an action.
const actionLimit = 5 * time.Minute

// actedMsg is the result of an action.
type actedMsg string

// gatewayNames returns the names of the gateways.
func (m *model) gatewayNames() []string {
	var names []string
	for _, s := range m.sources {
		names = append(names, s.Name)
	}
	return names
}

// nextGateway shows the next of several.
func (m *model) nextGateway() tea.Cmd {
	if len(m.sources) < 2 {
		return nil
	}
	return m.showGateway((m.source + 1) % len(m.sources))
}

func (m *model) commandGateway(name string) tea.Cmd {
	for i, s := range m.sources {
		if s.Name == name {
			return m.showGateway(i)
		}
	}
	return m.say("there are the gateways " + strings.Join(m.gatewayNames(), ", "))
}

// showGateway shows another gateway in its last known state, in the same view. The data of both is
// kept.
func (m *model) showGateway(i int) tea.Cmd {
	if i == m.source {
		return m.say("gateway " + m.sources[i].Name)
	}
	old, d := m.data, m.gateways[i]
	old.frozen = false // a gateway that is not shown is not frozen
	d.now, d.nextTry, d.checking, d.frozen = m.now(), time.Time{}, "", false
	d.paint, d.graph, d.wide, d.filter = old.paint, old.graph, old.wide, old.filter
	d.width, d.height = old.width, old.height
	m.source, m.data, m.trail = i, d, nil
	d.failures, d.polledAt, d.checksAt = 0, time.Time{}, time.Time{}
	return tea.Batch(m.poll(), m.say("gateway "+m.sources[i].Name))
}

// enterMsg shows one of the gateways, from the table of all.
type enterMsg int

// enter shows a gateway's peers; esc returns.
func (m *model) enter(i int) tea.Cmd {
	at := m.at
	cmd := m.showGateway(i)
	m.data.filter = filter{} // It was for gateways.
	m.at, m.trail = 0, []int{at}
	return cmd
}

// onFleet reports whether the table of gateways is shown.
func (m *model) onFleet() bool {
	_, fleet := m.view().(*fleet)
	return fleet
}

// askStatus requests what is shown of a gateway beside others.
func (m *model) askStatus(i int, now time.Time) tea.Cmd {
	d, source := m.gateways[i], m.sources[i].Source
	d.polling, d.polledAt = true, now
	return m.tasks.run(pollLimit, func(ctx context.Context) tea.Msg {
		status, err := source.Status(ctx)
		return polledMsg{of: d, status: status, err: err}
	})
}

// act runs an action in the background.
func (m *model) act(a Action) tea.Cmd {
	return tea.Batch(m.say(a.Name+" …"), m.tasks.run(actionLimit, func(ctx context.Context) tea.Msg {
		text, err := a.Do(ctx)
		if err != nil {
			text = a.Name + ": " + err.Error()
		}
		return actedMsg(text)
	}))
}

// note returns the note at the top: at most a fifth of the screen.
func (m *model) note() []string {
	if m.noteText == nil {
		return nil
	}
	text := m.noteText()
	if text == "" {
		return nil
	}
	d := m.data
	var lines []string
	for _, part := range strings.Split(text, "\n") {
		lines = append(lines, cell.Wrap("", cell.Printable(part), d.width, "  ")...)
	}
	if room := max(1, d.height/5); len(lines) > room {
		lines = lines[:room]
		lines[room-1] = cell.Fit(lines[room-1], max(1, d.width-2)) + " …"
	}
	for i := range lines {
		lines[i] = d.paint.Text(cell.Wary, lines[i])
	}
	return lines
}
