package screen

import "github.com/charmbracelet/bubbles/key"

// keyMap contains every key of the screen. The help sheet and the footer are generated from it.
type keyMap struct {
	quit, help, back, filter, command      key.Binding
	up, down, first, last                  key.Binding
	pageUp, pageDown, enter                key.Binding
	left, right                            key.Binding
	view, next, previous                   key.Binding
	sort, wide, freeze, probe, copy, mouse key.Binding
	group, fold                            key.Binding
	wider, narrower                        key.Binding
	gateway, suspend                       key.Binding
	act, confirm, decline                  key.Binding
}

func keys() keyMap {
	bind := func(help, description string, keys ...string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, description))
	}
	return keyMap{
		quit:     bind("q", "quit", "q", "ctrl+c"),
		help:     bind("?", "help", "?"),
		back:     bind("esc", "back", "esc"),
		filter:   bind("/", "filter", "/"),
		command:  bind(":", "command", ":"),
		up:       bind("k ↑", "up", "k", "up"),
		down:     bind("j ↓", "down", "j", "down"),
		first:    bind("g", "first", "g", "home"),
		last:     bind("G", "last", "G", "end"),
		pageUp:   bind("pgup", "page up", "pgup", "ctrl+b"),
		pageDown: bind("pgdn", "page down", "pgdown", "ctrl+f", " "),
		left:     bind("←", "previous peer", "left", "h"),
		right:    bind("→", "next peer", "right", "l"),
		enter:    bind("enter", "open", "enter"),
		view:     bind("1–9", "view", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
		next:     bind("tab", "next view", "tab"),
		previous: bind("shift+tab", "view before", "shift+tab"),
		sort:     bind("s", "sort", "s"),
		group:    bind("b", "group", "b"),
		fold:     bind("enter", "fold", "enter", " "),
		wide:     bind("w", "wide", "w"),
		freeze:   bind("p", "freeze", "p"),
		act:      bind("a", "act", "a"),
		confirm:  bind("y", "do it", "y"),
		decline:  bind("esc", "leave", "esc", "n", "q"),
		probe:    bind("r", "probe now", "r"),
		copy:     bind("c", "copy", "c"),
		mouse:    bind("m", "mouse", "m"),
		suspend:  bind("ctrl+z", "suspend", "ctrl+z"),
		gateway:  bind("n", "next gateway", "n"),
		wider:    bind("+", "longer window", "+", "="),
		narrower: bind("-", "shorter window", "-"),
	}
}
