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
