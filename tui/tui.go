// Package tui shows a gateway's Status on a terminal as text: [Table], [Peer], [Path], [Diagram],
// [NetCheck] and [Checks]. [Watch] redraws the table. The package renders the documents of
// control/api, and paths computed from them. Package screen is the live screen; package cell
// contains what both share.
//
// # Rules of the screen
//
// A state is a glyph, a word and a colour, so that it is readable without colours and by
// colour-blind users. The colours are the terminal's first eight, as its theme defines them. A
// narrow terminal loses the least important columns, and no line is ever wider than it. Peers are
// sorted by name. Foreign text passes through [Printable] first. The terminal is never queried: one
// that does not answer, such as a serial console, would delay the command.
package tui

import (
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// ColorWanted reports whether output to a terminal should be coloured: NO_COLOR is not
// set (no-color.org) and the terminal is not a dumb one.
func ColorWanted(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// TrueColor reports whether a terminal shows 16 million colours, judged by COLORTERM, which many
// set, or by its name. GNU screen, which passes COLORTERM on, has 256.
func TrueColor(getenv func(string) string) bool {
	term, told := getenv("TERM"), strings.ToLower(getenv("COLORTERM"))
	if strings.HasPrefix(term, "screen") && getenv("TMUX") == "" {
		return false
	}
	return told == "truecolor" || told == "24bit" || strings.HasSuffix(term, "-direct")
}

// Alarm is an alarm on one line; see [cell.Alarm].
func Alarm(a *api.Alarm) string { return cell.Alarm(a, time.DateTime) }

// Printable makes foreign text safe to show on one line; see [cell.Printable].
func Printable(s string) string { return cell.Printable(s) }
