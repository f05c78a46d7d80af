package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// maxCopy bounds what is copied, in bytes: terminals drop longer sequences.
const maxCopy = 8 << 10

// copiedMsg is the result of copying.
type copiedMsg string

// copyFix copies a finding's command for this gateway. Without one, it offers the commands of the
// fix, which may be for the other side or alternatives, and the fix as text. The text is copied
// without backquotes: a shell into which it is pasted by mistake would run them all.
func copyFix(fix api.Steps, of string) tea.Msg {
	if command := fix.Command(); command != "" {
		return copyMsg{command, "the command for " + of}
	}
	words := copyMsg{strings.ReplaceAll(fix.String(), "`", "'"), "the fix for " + of + " in words"}
	offer := chooseMsg{title: "copy which?", does: "copy it"}
	for _, s := range fix {
		if s.Command != "" && len(offer.choices) < maxChoices && !slices.ContainsFunc(offer.choices, func(c choice) bool { return c.text == s.Command }) {
			offer.choices = append(offer.choices, choice{s.Command, copyMsg{s.Command, "the command, for where the fix says"}})
		}
	}
	if len(offer.choices) == 0 {
		return words
	}
	offer.choices = append(offer.choices, choice{words.text, words})
	return offer
}

// copies returns what can be copied of a peer, by the names that :copy takes.
func copies(d *data, p *api.PeerStatus) (names []string, all map[string]tea.Msg) {
	all = map[string]tea.Msg{}
	add := func(name, text string) {
		if text != "" {
			names, all[name] = append(names, name), copyMsg{text, "the " + name + " of " + p.Name}
		}
	}
	if f := d.fix(p); len(f.Steps) > 0 {
		names, all["fix"] = append(names, "fix"), copyFix(f.Steps, p.Name)
	}
	add("address", p.Address)
	add("remote", p.Path.Remote)
	add("key", p.PublicKey)
	add("fingerprint", p.ApprovalFingerprint)
	if text, err := json.Marshal(p); err == nil && len(text) <= maxCopy {
		add("json", string(text))
	}
	return names, all
}

// offerCopies asks what to copy.
func offerCopies(d *data, p *api.PeerStatus) chooseMsg {
	offer := chooseMsg{from: d, title: "copy what of " + p.Name + "?", does: "copy it"}
	names, all := copies(d, p)
	for _, name := range names {
		text := name
		if c, ok := all[name].(copyMsg); ok && len(c.text) <= longestShown {
			text += ": " + c.text
		}
		offer.choices = append(offer.choices, choice{text, all[name]})
	}
	return offer
}

// longestShown bounds the texts that are shown beside their names, in bytes.
const longestShown = 100

func (m *model) copyNames() []string {
	p := m.data.peer()
	if p == nil {
		return nil
	}
	names, _ := copies(m.data, p)
	return names
}

// commandCopy copies something of the selected peer by its name, or asks what.
func (m *model) commandCopy(what string) tea.Cmd {
	p := m.data.peer()
	if p == nil {
		return m.say("no peer is selected")
	}
	names, all := copies(m.data, p)
	switch msg, known := all[what]; {
	case what == "":
		return m.update(offerCopies(m.data, p))
	case known:
		return m.update(msg)
	}
	return m.say(p.Name + " has no " + what + " to copy; it has " + strings.Join(names, ", "))
}

// chooseMsg asks for one of several choices, selected by a digit.
type chooseMsg struct {
	from        *data  // the gateway that it is about, nil for none; it closes when another gateway is shown
	title, does string // the question, and what a digit does
	choices     []choice
}

// choice is a text to choose, and its message.
type choice struct {
	text string
	msg  tea.Msg
}

// maxChoices bounds the commands that are offered: one digit each, with one left for the text.
const maxChoices = 8

// pressedInChoice selects by a digit; any other key leaves.
func (m *model) pressedInChoice(msg tea.KeyMsg) tea.Cmd {
	m.mode = modeKeys
	if msg.Type == tea.KeyRunes && len(msg.Runes) == 1 {
		if i := int(msg.Runes[0] - '1'); i >= 0 && i < len(m.offer.choices) {
			return m.update(m.offer.choices[i].msg)
		}
	}
	return nil
}

// choiceLines returns the choices, each after its digit.
func (m *model) choiceLines(width int) []string {
	p := m.data.paint
	lines := []string{m.data.rule(p.Text(cell.Strong, cell.Printable(m.offer.title)), width)}
	for i, c := range m.offer.choices {
		prefix := fmt.Sprintf("%d  ", i+1)
		for n, l := range cell.Wrap(prefix, cell.Printable(c.text), width, "   ") {
			if rest, ok := strings.CutPrefix(l, prefix); ok && n == 0 {
				l = p.Text(cell.Second, prefix) + rest
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// copy writes a text to the terminal's clipboard by OSC 52. A text with unprintable characters is
// not copied: pasted into a shell, a newline would run what precedes it.
func (m *model) copy(msg copyMsg) tea.Cmd {
	if msg.text == "" {
		return m.say("nothing to copy here")
	}
	switch {
	case cell.Printable(msg.text) != msg.text:
		return m.say("not copied: the text holds what is not shown")
	case len(msg.text) > maxCopy:
		return m.say(fmt.Sprintf("not copied: terminals drop what is longer than %d bytes", maxCopy))
	}
	out := m.out
	return func() tea.Msg {
		// One write, so that it does not mix with a frame being written.
		if _, err := io.WriteString(out, ansi.SetSystemClipboard(msg.text)); err != nil {
			return copiedMsg(fmt.Sprintf("not copied: %v", err))
		}
		return copiedMsg("copied " + msg.what + " (if the terminal permits)")
	}
}
