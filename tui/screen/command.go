package screen

import (
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/suggest"
	"github.com/postern-dev/postern/tui/cell"
)

// command is a command of the command line.
type command struct {
	name, argument, does string
	// complete lists possible arguments; nil if there are none.
	complete func(m *model) []string
	run      func(m *model, argument string) tea.Cmd
}

// commands returns all commands, views first.
func (m *model) commands() []command {
	var out []command
	for i, v := range m.views {
		name := strings.ToLower(v.title())
		if name == "peer" {
			continue // It takes a name, below.
		}
		out = append(out, command{name: name, does: "show " + name, run: func(m *model, _ string) tea.Cmd { m.show(i); return nil }})
	}
	if len(m.sources) > 1 {
		out = append(out, command{"gateway", "NAME", "show another gateway", (*model).gatewayNames, (*model).commandGateway})
	}
	for _, a := range m.actions {
		out = append(out, command{name: a.Name, does: a.Does, run: func(m *model, _ string) tea.Cmd { return m.act(a) }})
	}
	return append(out, []command{
		{"peer", "NAME", "show one peer", (*model).peerNames, (*model).commandPeer},
		{"probe", "[NAME]", "check one peer now, or all", (*model).peerNames, (*model).commandProbe},
		{"approve", "NAME", "let a waiting peer in", (*model).peerNames, commandChange(approveByCommand)},
		{"allow", "NAME [SERVICES]", "what a peer may reach here", (*model).peerNames, commandChange(allowByCommand)},
		{"remove", "NAME", "forget a peer", (*model).peerNames, commandChange(removeByCommand)},
		{"undo", "", "take the last :allow back", nil, (*model).commandUndo},
		{"ping", "[NAME]", "round trip to a peer", (*model).peerNames, ofPeer((*model).ping)},
		{"measure", "[NAME]", "what a peer's path carries", (*model).peerNames, ofPeer((*model).measure)},
		{"copy", "[WHAT]", "copy fix, address, key, JSON", (*model).copyNames, (*model).commandCopy},
		{"invite", "[NAME] [SERVICES]", "make a ticket for a gateway", nil, (*model).commandInvite},
		{"join", "TICKET [SERVICES]", "redeem a ticket", nil, (*model).commandJoin},
		{"accept", "REPLY", "dial the gateway of a reply", nil, (*model).commandAccept},
		{"rotate", "", "give this gateway another key", nil, (*model).commandRotate},
		{"confirm", "", "keep a configuration on trial", nil, (*model).commandConfirm},
		{"sort", "COLUMN", "sort; again: the other way", (*model).sortColumns, (*model).commandSort},
		{"group", "BY", "by state, path, label or none", (*model).groupings, (*model).commandGroup},
		{"filter", "[TEXT]", "show what has it, !TEXT: not", nil, func(m *model, text string) tea.Cmd {
			m.data.filter = filter{text}
			return nil
		}},
		{"wide", "", "more columns, or fewer", nil, func(m *model, _ string) tea.Cmd { m.widen(); return nil }},
		{"freeze", "", "stop the picture, or go on", nil, func(m *model, _ string) tea.Cmd { return m.freeze() }},
		{"mouse", "", "use the mouse, or leave it", nil, func(m *model, _ string) tea.Cmd { return m.switchMouse() }},
		{"graph", "STYLE", "braille, block or ascii", func(*model) []string { return graphs() }, (*model).commandGraph},
		{"theme", "NAME", "take other colours", func(m *model) []string { return m.themes.Names() }, (*model).commandTheme},
		{"help", "", "show the keys", nil, func(m *model, _ string) tea.Cmd { m.mode, m.helpTop = modeHelp, 0; return nil }},
		{"quit", "", "leave", nil, func(*model, string) tea.Cmd { return tea.Quit }},
	}...)
}

// execute runs what was typed. A command may be abbreviated if that is unambiguous.
func (m *model) execute(text string) tea.Cmd {
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	if name == "" {
		return nil
	}
	commands := m.commands()
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == name })
	if i < 0 {
		var begin []int
		for j, c := range commands {
			if strings.HasPrefix(c.name, name) {
				begin = append(begin, j)
			}
		}
		if len(begin) != 1 {
			return m.say("no command " + name + "; : and tab list them")
		}
		i = begin[0]
	}
	return commands[i].run(m, strings.TrimSpace(argument))
}

// completions returns the possible completions of what was typed.
func (m *model) completions(text string) []string {
	name, argument, spaced := strings.Cut(strings.TrimLeft(text, " "), " ")
	var out []string
	for _, o := range m.commands() {
		switch {
		case !spaced && strings.HasPrefix(o.name, name):
			completed := o.name
			if o.argument != "" {
				completed += " "
			}
			out = append(out, completed)
		case spaced && o.name == name && o.complete != nil:
			for _, c := range o.complete(m) {
				if strings.HasPrefix(c, strings.TrimLeft(argument, " ")) {
					out = append(out, name+" "+c)
				}
			}
		}
	}
	return out
}

// palette describes the commands that match what was typed, in at most height lines.
func (m *model) palette(width, height int) []string {
	name, _, spaced := strings.Cut(strings.TrimLeft(m.input.text(), " "), " ")
	var entries [][2]string
	for _, c := range m.commands() {
		if c.name == name || !spaced && strings.HasPrefix(c.name, name) {
			entries = append(entries, c.help())
		}
	}
	if len(entries) == 0 || height < 2 {
		return nil
	}
	p := m.data.paint
	lines := append([]string{m.data.rule(p.Text(cell.Strong, "commands"), width)}, inColumns(entries, width, p)...)
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1], p.Text(cell.Quiet, "  … type on, or ? for all of them"))
	}
	return exactly(lines, width, len(lines))
}

// help returns how the command is typed, and what it does.
func (c *command) help() [2]string {
	return [2]string{strings.TrimRight(":"+c.name+" "+c.argument, " "), c.does}
}

// commonPrefix returns the common prefix of the texts.
func commonPrefix(texts []string) string {
	prefix := []rune(texts[0])
	for _, t := range texts[1:] {
		n := 0
		for _, r := range t {
			if n == len(prefix) || prefix[n] != r {
				break
			}
			n++
		}
		prefix = prefix[:n]
	}
	return string(prefix)
}

// peerNames returns the names that can be typed.
func (m *model) peerNames() []string {
	var names []string
	for _, p := range m.data.status.Peers {
		if cell.Printable(p.Name) == p.Name {
			names = append(names, p.Name)
		}
	}
	return names
}

func (m *model) sortColumns() []string {
	if v, ok := m.view().(sortable); ok {
		return v.sortColumns()
	}
	return nil
}

// choosePeer selects a peer by its name.
func (m *model) choosePeer(name string) bool {
	for i := range m.data.status.Peers {
		if p := &m.data.status.Peers[i]; p.Name == name {
			m.data.peers.choose(peerID(p))
			return true
		}
	}
	return false
}

func (m *model) commandPeer(name string) tea.Cmd {
	if name != "" && !m.choosePeer(name) {
		return m.sayNoPeer(name)
	}
	m.open(titlePeer)
	return nil
}

func (m *model) commandProbe(name string) tea.Cmd {
	if name == "" {
		return m.probe(allPeers)
	}
	if !slices.Contains(m.peerNames(), name) {
		return m.sayNoPeer(name)
	}
	return m.probe(name)
}

func (m *model) sayNoPeer(name string) tea.Cmd {
	p := suggest.Peer(name, m.peerNames())
	return m.say(p.Message + ": " + p.Hint)
}

func (m *model) commandSort(column string) tea.Cmd {
	v, ok := m.view().(sortable)
	if !ok {
		return m.say("nothing to sort here")
	}
	if !slices.Contains(v.sortColumns(), column) {
		return m.say("sort by one of " + strings.Join(v.sortColumns(), ", "))
	}
	v.sortBy(column)
	m.sayOrder(v)
	return nil
}

func (m *model) commandGraph(style string) tea.Cmd {
	if !slices.Contains(graphs(), style) {
		return m.say("graph is one of " + strings.Join(graphs(), ", "))
	}
	m.data.graph = style
	return nil
}
