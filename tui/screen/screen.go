// Package screen is postern's live screen: eight views of one gateway, updated once a second, and a
// table of several gateways.
//
// Views are drawn only from [data] and change nothing else, so that a test can check any screen
// without a terminal. The program around them queries the gateway at most once a second, and not at
// all while the terminal is out of focus or the screen is frozen. If a gateway does not answer, it
// keeps the last snapshot, says so, and retries.
//
// The terminal is never queried (see package noquery), and foreign text passes through
// [cell.Printable] before it is drawn.
//
// # Files
//
//   - screen.go: options of the screen
//   - run.go: takes over the terminal; how many pictures per second
//   - model.go: the program's state, messages, which view is shown, notices
//   - data.go: what all views draw: snapshot, checks, log, the selected peer
//   - view.go: what a view is, and the list of all views
//   - source.go: what the screen asks a gateway
//   - sources.go: several gateways: which one is shown, and the note above
//   - poll.go: when a gateway is asked again, and how fast after it is lost
//   - tasks.go: slow calls beside the screen, and their end
//   - frame.go: how the screen is put together: header, tabs, view, last line; what is cut first
//   - header.go: the lines at the top: totals, problems, the configuration on trial
//   - help.go: the help sheet, and which keys the last line names
//   - keymap.go: which key does what
//   - press.go: what a key or a click leads to; keys that arrive together
//   - line.go: editing the line being typed, and what may be pasted
//   - command.go: the : commands and their completion
//   - filter.go: /: what matches a filter, with !
//   - sorting.go: s: the sort column and its direction
//   - list.go: when a list is rebuilt; the mouse wheel; scrolling texts
//   - cursor.go: which row stays selected when rows come, go and move
//   - groups.go: b: grouping and folding the peers
//   - overview.go: the list of peers: its columns, order, and which texts the filter searches
//   - panes.go: which panes are beside the list, and what is in them
//   - peer.go: the view of one peer
//   - checks.go: the view of checks
//   - flows.go, flowmeter.go: the view of connections; their rates
//   - log.go: the view of the log: level, following
//   - timeline.go: the view of a peer's history
//   - past.go: which history is requested, how often, and how long it is kept
//   - throughput.go, ring.go: the view of traffic; the samples of an hour
//   - services.go: the view of cluster services
//   - fleet.go: the table of several gateways
//   - proposal.go: changes to a gateway (a): confirming them, keys typed too early, undo
//   - enrol.go: :invite, :join, :accept, :rotate, :confirm; pings and measurements
//   - copy.go: what can be copied, and the clipboard
//   - theme.go: theme, colours and chart characters for the terminal
package screen

import (
	"io"
	"time"

	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tui/theme"
)

// ErrNoTerminal reports that a screen was requested without a terminal.
var ErrNoTerminal = tui.ErrNoTerminal

// Options configure what the screen shows and where.
type Options struct {
	Source Source
	// Operator makes changes to it, each confirmed first; nil makes the screen read-only.
	Operator Operator
	// Sources are several gateways, one of which is shown at a time, the first one first. Source
	// and Operator are then not used.
	Sources []NamedSource
	// Fleet begins with the table of all of them.
	Fleet bool
	// Check runs the checks of the first selected peer, as a key does, once it is known. The
	// results of a gateway's own schedule may be minutes old, and measure neither loss nor sizes.
	Check bool
	// Note is shown at the top, wrapped; "" is nothing. It is called for each frame and must not
	// block.
	Note func() string
	// Actions are additional commands.
	Actions []Action
	// Color uses the terminal's first eight colours; see tui.ColorWanted.
	Color bool
	// TrueColor shades charts by value, in themes that have gradients; see tui.TrueColor.
	TrueColor bool
	// Theme is one of Themes, by name or path; empty is dark.
	Theme string
	// Themes are the user's own, besides the built-in ones.
	Themes theme.Dir
	// Graph is braille, block or ascii; empty is braille.
	Graph string
	// Mouse enables clicks and the wheel initially; selecting text then takes shift.
	Mouse bool
	// In and Out are the terminal; anything else is ErrNoTerminal.
	In  io.Reader
	Out io.Writer
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}
