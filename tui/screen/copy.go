package screen

import (
	"fmt"
	"io"
	"strings"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// maxCopy bounds what is copied, in bytes: terminals drop longer sequences.
const maxCopy = 8 << 10

// copiedMsg says how copying went.
type copiedMsg string

// copyFix is what is copied of a verdict: the command to be typed at this gateway, or the
// fix in words where there is no such one. The words lose their backquotes: pasted into a
// shell by mistake they would run what is meant for the other side, or all of several ways.
func copyFix(v *api.Verdict, of string) copyMsg {
	if v.Command != "" {
		return copyMsg{v.Command, "the command for " + of}
	}
	return copyMsg{strings.ReplaceAll(v.Fix, "`", "'"), "the fix for " + of + " in words"}
}

// copy hands a text to the terminal's clipboard by OSC 52. A text that holds anything
// but what the screen shows is not copied: pasted into a shell, a line end in it would
// run what stands before it.
func (m *model) copy(msg copyMsg) tea.Cmd {
	if msg.text == "" {
		return m.say("nothing to copy here")
	}
	if cell.Printable(msg.text) != msg.text || len(msg.text) > maxCopy {
		return m.say("not copied: the text holds what is not shown")
	}
	out := m.out
	return func() tea.Msg {
		// One write, so that it does not get into a picture being written.
		if _, err := io.WriteString(out, ansi.SetSystemClipboard(msg.text)); err != nil {
			return copiedMsg(fmt.Sprintf("not copied: %v", err))
		}
		return copiedMsg("copied " + msg.what + " (if the terminal permits)")
	}
}
