package screen

import (
	"cmp"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/theme"
)

// noticeFor is how long a notice stays at the foot of the screen.
const noticeFor = 5 * time.Second

// spinInterval is the interval of the spinner.
const spinInterval = 200 * time.Millisecond

// spinMsg turns the spinner of a running check.
type spinMsg struct{}

// mode is the meaning of typed characters.
type mode int

const (
	modeKeys mode = iota // each is a key of its own
	modeFilter
	modeCommand
	modeHelp
	modeChoose  // one of several choices
	modeConfirm // a change
)

// model is the program's state: the data and the frame around the views. Only the program's
// goroutine uses it.
type model struct {
	sources []NamedSource
	source  int // index of the shown one
	// gateways are what is known of each of them, and data is that of the shown one.
	gateways []*data
	data     *data
	actions  []Action
	themes   theme.Dir
	// trueColor: the terminal has 16 million colours.
	trueColor bool
	noteText  func() string
	now       func() time.Time
	tasks     *tasks
	// out receives what is not part of the frame: the clipboard's content.
	out io.Writer

	// checkFirst: the first selected peer has yet to be checked.
	checkFirst bool

	views []view
	at    int   // the shown view
	trail []int // views that esc returns to, the next one last

	blurred   bool
	spin      int
	mouse     bool
	mode      mode
	input     line
	helpTop   int
	oldFilter filter
	offer     chooseMsg
	proposal  *proposal
	// proposalCut: the last frame had no room for all of it.
	proposalCut bool

	notice      string
	noticeUntil time.Time

	// The position of the view and the tabs in the last frame, for the mouse.
	viewTop, viewHeight, tabTop int
	tabs                        []span
}

func newModel(o Options, t *tasks) *model {
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Sources) == 0 {
		o.Sources = []NamedSource{{Source: o.Source, Operator: o.Operator}}
	}
	m := &model{checkFirst: o.Check, sources: o.Sources, actions: o.Actions, themes: o.Themes, trueColor: o.TrueColor, mouse: o.Mouse, noteText: o.Note, now: o.Now, tasks: t, out: o.Out, views: views()}
	for range m.sources {
		m.gateways = append(m.gateways, newData(o.Now()))
	}
	m.data = m.gateways[0]
	if o.Color {
		paint, err := o.Themes.Load(cmp.Or(o.Theme, theme.Dark))
		if err != nil {
			m.say(err.Error())
			paint = cell.Dark
		}
		m.dress(paint)
	}
	if o.Graph != "" {
		m.data.graph = o.Graph
	}
	if len(m.sources) > 1 {
		m.views = append(m.views, newFleet(m))
		if o.Fleet {
			m.show(len(m.views) - 1)
		}
	}
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd {
	return tea.Batch(m.poll(), m.tasks.after(interval, tickMsg{}))
}

// paused reports that the screen is frozen or out of focus.
func (m *model) paused() bool { return m.data.frozen || m.blurred }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if !m.paused() {
		m.data.now = m.now()
	}
	return m, m.update(msg)
}

func (m *model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.data.width, m.data.height = msg.Width, msg.Height
	case tea.FocusMsg:
		m.blurred = false
		m.data.now = m.now()
		return m.poll()
	case tea.BlurMsg:
		m.blurred = true
	case tickMsg:
		switch now := m.now(); {
		case m.noticeHidden():
			m.noticeUntil = now.Add(noticeFor)
		case now.After(m.noticeUntil):
			m.notice = ""
		}
		return tea.Batch(m.poll(), m.firstCheck(), m.tasks.after(interval, tickMsg{}))
	case polledMsg:
		m.polled(msg)
	case checkedMsg:
		if msg.of == m.data {
			return m.checked(msg)
		}
	case actedMsg:
		return m.say(cell.Printable(string(msg)))
	case spinMsg:
		if m.data.checking == "" {
			return nil
		}
		m.spin++
		return m.tasks.after(spinInterval, spinMsg{})
	case openMsg:
		m.open(msg.title)
	case enterMsg:
		return m.enter(int(msg))
	case probeMsg:
		return m.probe(msg.peer)
	case pingMsg:
		return m.ping(msg.peer)
	case measureMsg:
		return m.measure(msg.peer)
	case copyMsg:
		return m.copy(msg)
	case chooseMsg:
		if msg.from == nil || msg.from == m.data {
			m.mode, m.offer = modeChoose, msg
		}
	case groupMsg:
		return m.commandGroup(string(msg))
	case typeMsg:
		m.mode = modeCommand
		m.input.set(string(msg))
	case change:
		return m.propose(msg)
	case changedMsg:
		return m.changed(msg)
	case tea.ResumeMsg:
		if m.mouse {
			return tea.EnableMouseCellMotion
		}
	case copiedMsg:
		return m.say(string(msg))
	case tea.MouseMsg:
		return m.moused(msg)
	case tea.KeyMsg:
		if m.blurred { // A user who types looks at it, whatever the terminal reports.
			m.blurred = false
			m.data.now = m.now()
			return tea.Batch(m.pressed(msg), m.poll())
		}
		return m.pressed(msg)
	}
	return nil
}

// say shows a notice at the foot of the screen for a while.
func (m *model) say(text string) tea.Cmd {
	m.notice, m.noticeUntil = text, m.now().Add(noticeFor)
	return nil
}

// open shows the view of this title; esc returns.
func (m *model) open(title string) {
	for i, v := range m.views {
		if v.title() == title && i != m.at {
			m.trail = append(m.trail, m.at)
			m.at = i
			m.data.checksAt = time.Time{} // Fetch fresh results now.
		}
	}
}

// show changes the view by number or tab, without a way back by esc.
func (m *model) show(i int) {
	n := len(m.views)
	m.at, m.trail = (i%n+n)%n, nil
	m.data.checksAt = time.Time{}
}

func (m *model) view() view { return m.views[m.at] }
