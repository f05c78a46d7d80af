package screen

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/tui/cell"
)

// View implements tea.Model.
func (m *model) View() string {
	switch {
	case m.data.width <= 0 || m.data.height <= 0:
		return "" // The terminal has not reported its size yet.
	case m.data.graph == graphASCII:
		return cell.ASCII(m.picture())
	}
	return m.picture()
}

// picture returns the frame: a note if there is one, header, tab bar, the view, and a line at the
// foot.
func (m *model) picture() string {
	d := m.data
	lines := append(m.note(), m.header()...)
	m.tabTop = len(lines)
	lines = append(lines, m.tabBar())
	if d.height >= roomy {
		lines = append(lines, "")
	}
	m.viewTop, m.viewHeight = len(lines), d.height-len(lines)-1
	if m.viewHeight > 0 {
		body := strings.Split(m.body(m.viewHeight), "\n")
		for i := range body {
			if d.stale() && m.mode != modeHelp && !m.onFleet() {
				body[i] = d.greyed(body[i])
			}
		}
		var panel []string
		switch m.mode {
		case modeChoose:
			panel = m.choiceLines(d.width)
		case modeCommand:
			panel = m.palette(d.width, len(body)/2)
		case modeConfirm:
			panel = m.proposalLines(d.width, len(body))
			m.proposalCut = len(panel) > len(body)
		case modeKeys:
			panel = m.longNotice()
		}
		panel = panel[:min(len(panel), len(body))]
		body = append(body[:len(body)-len(panel)], panel...)
		lines = append(lines, body...)
	}
	return page(append(lines[:min(len(lines), d.height-1)], m.foot()), d.width, d.height)
}

// roomy is the height from which empty lines separate parts of the screen.
const roomy = 20

func (m *model) body(height int) string {
	d := m.data
	switch {
	case m.mode == modeHelp:
		return m.helpSheet(d.width, height)
	case d.statusAt.IsZero() && !m.onFleet():
		return m.waiting(d.width, height)
	}
	return m.view().draw(d, d.width, height)
}

// waiting is shown before the first snapshot.
func (m *model) waiting(width, height int) string {
	text := "asking the gateway …"
	if m.data.lost != nil {
		text = cell.Printable(m.data.lost.Error())
	}
	return sentence(text, width, height)
}

// page joins lines that fill a width and a height.
func page(lines []string, width, height int) string {
	return strings.Join(exactly(lines, width, height), "\n")
}

// sentence is a page with nothing but a text.
func sentence(text string, width, height int) string {
	return page(cell.Wrap("", text, width, ""), width, height)
}

// exactly cuts lines to a width and brings them to a number.
func exactly(lines []string, width, height int) []string {
	if len(lines) > height {
		lines = lines[:height]
	}
	for i, l := range lines {
		lines[i] = cell.Fit(l, width)
	}
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines
}

// tabBar names the views, close together if there is little room; if they do not fit, only the
// current one.
func (m *model) tabBar() string {
	const wide, close, short = 0, 1, 2
	for room := wide; ; room++ {
		var b strings.Builder
		at := 0
		m.tabs = m.tabs[:0]
		for i, v := range m.views {
			text := fmt.Sprintf("%d %s", i+1, v.title())
			style := cell.Plain
			switch {
			case i == m.at:
				text, style = "["+text+"]", cell.Selected
			case room == wide:
				text = " " + text + " "
			case room == short:
				text = fmt.Sprintf(" %d ", i+1)
			}
			if room == close && i > 0 {
				b.WriteString(" ")
				at++
			}
			w := ansi.StringWidth(text)
			m.tabs = append(m.tabs, span{at, at + w})
			at += w
			b.WriteString(m.data.paint.Text(style, text))
		}
		if at <= m.data.width || room == short {
			return b.String()
		}
	}
}

// foot returns the last line: what is being typed, or what was just done, or the available keys.
// The key of the help sheet is always included.
func (m *model) foot() string {
	d := m.data
	p := d.paint
	helpKey := keys().help.Help()
	help := p.Text(cell.Second, helpKey.Key) + " " + helpKey.Desc
	switch m.mode {
	case modeFilter:
		return cell.Fit("/"+m.input.draw(), d.width-8) + "  " + help
	case modeCommand:
		typed := ":" + m.input.draw()
		if c := m.completions(m.input.text()); len(c) > 0 {
			typed += "  " + p.Text(cell.Quiet, cell.Printable(strings.Join(lastWordOfEach(c), "  ")))
		}
		return cell.Fit(typed, d.width-8) + "  " + help
	}
	items := []string{help}
	switch m.mode {
	case modeChoose:
		return help + "  " + p.Text(cell.Second, "1–9") + " " + p.Text(cell.Quiet, m.offer.does) + "  " + hint(p, describe(keys().back, "leave"))
	case modeConfirm:
		return m.proposalFoot()
	case modeHelp:
		if all := len(m.helpLines(d.width)); all > m.viewHeight {
			items = append(items, fmt.Sprintf("lines %d–%d of %d", m.helpTop+1, m.helpTop+m.viewHeight, all))
		}
	}
	if d.filter.text != "" {
		items = append(items, p.Text(cell.Wary, "/"+cell.Printable(d.filter.text))+" "+p.Text(cell.Quiet, "esc clears"))
	}
	if d.checking != "" {
		items = append(items, m.spinner()+" checking "+cell.Printable(nameOf(d.checking)))
	}
	short := m.notice != "" && m.longNotice() == nil
	if short {
		items = append(items, cell.Printable(m.notice))
	}
	if d.checking != "" || short {
		return strings.Join(items, "  ")
	}
	used := ansi.StringWidth(strings.Join(items, "  "))
	for _, b := range m.hints() {
		h := b.Help()
		used += 3 + ansi.StringWidth(h.Key+h.Desc)
		if used > d.width {
			break
		}
		items = append(items, hint(p, b))
	}
	return strings.Join(items, "  ")
}

// noticeHidden reports whether something else takes the place of a notice.
func (m *model) noticeHidden() bool {
	switch m.mode {
	case modeKeys:
		return false
	case modeConfirm, modeHelp: // They have room for a short one.
		return m.longNotice() != nil
	}
	return true
}

// longNotice returns a notice in lines of its own, if the last line has no room for it.
func (m *model) longNotice() []string {
	const besideIt = len("? help  ")
	if d := m.data; besideIt+ansi.StringWidth(m.notice) > d.width {
		return cell.Wrap("", cell.Printable(m.notice), d.width, "")
	}
	return nil
}

// lastWordOfEach reduces each completion to the part that is not typed yet: its last word.
func lastWordOfEach(lines []string) []string {
	var out []string
	for _, l := range lines {
		words := strings.Fields(l)
		out = append(out, words[len(words)-1])
	}
	return out
}

// spinner is a sign of activity. Its characters turn.
func (m *model) spinner() string {
	const steps = `|/-\`
	return string(steps[m.spin%len(steps)])
}

// nameOf names what is checked.
func nameOf(peer string) string {
	if peer == allPeers {
		return "this gateway and all peers"
	}
	return peer
}
