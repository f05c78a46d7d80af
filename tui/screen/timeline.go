package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
	"github.com/postern-dev/postern/tui/past"
)

const titleTimeline = "Timeline"

// timeline shows the history of the selected peer, and its state at a moment.
type timeline struct {
	// window is an index of pasts.
	window int
	// cursor is the moment; zero is now.
	cursor time.Time
	// What was last drawn: the range, the events, the number of columns, and the lines of the
	// strips. What is known is from begin to end.
	drawn      past.Drawing
	events     []api.HistoryEvent
	columns    int
	strips     span
	begin, end time.Time
}

func newTimeline() *timeline { return &timeline{window: 1} }

// pasts returns the ranges of the view.
func pasts() []time.Duration {
	return []time.Duration{10 * time.Minute, hour, 6 * time.Hour, 24 * time.Hour}
}

func (*timeline) title() string { return titleTimeline }

func (*timeline) bindings() []key.Binding {
	k := keys()
	return []key.Binding{
		both(k.left, k.right, "← →", "through time"), both(k.up, k.down, "k j", "events"), k.wider, k.narrower, describe(k.sort, "next peer"), describe(k.enter, "open peer"),
	}
}

// both combines two keys in one entry.
func both(a, b key.Binding, help, does string) key.Binding {
	return key.NewBinding(key.WithKeys(append(a.Keys(), b.Keys()...)...), key.WithHelp(help, does))
}

// update implements view.
func (v *timeline) update(msg tea.Msg, d *data) tea.Cmd {
	k := keys()
	switch msg := msg.(type) {
	case tea.MouseMsg:
		switch {
		case msg.Button == tea.MouseButtonWheelUp:
			v.toEvent(-1)
		case msg.Button == tea.MouseButtonWheelDown:
			v.toEvent(1)
		case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress && msg.Y >= v.strips.from && msg.Y < v.strips.to:
			v.toColumn(msg.X - past.LabelWidth)
		}
	case tea.KeyMsg:
		step, moved := stepOf(msg, 5)
		switch {
		case key.Matches(msg, k.left):
			v.toColumn(v.column() - 1)
		case key.Matches(msg, k.right):
			v.toColumn(v.column() + 1)
		case moved:
			v.toEvent(step)
		case key.Matches(msg, k.wider):
			v.window = min(v.window+1, len(pasts())-1)
		case key.Matches(msg, k.narrower):
			v.window = max(v.window-1, 0)
		case key.Matches(msg, k.sort):
			v.nextPeer(d)
		default:
			return peerKey(msg, d)
		}
	}
	return nil
}

// column returns the cursor's column.
func (v *timeline) column() int {
	if i, in := v.drawn.Column(v.moment(), v.columns); in {
		return i
	}
	return v.columns - 1
}

// moment returns the cursor's time, or the end.
func (v *timeline) moment() time.Time {
	if v.cursor.IsZero() {
		return v.end
	}
	return v.cursor
}

// toColumn moves the cursor to a column, even outside the drawn range. At the end it follows the
// time again.
func (v *timeline) toColumn(i int) {
	if v.columns == 0 {
		return
	}
	switch at := v.drawn.Moment(i, v.columns); {
	case !at.Before(v.end):
		v.cursor = time.Time{}
	case at.Before(v.begin):
		v.cursor = v.begin
	default:
		v.cursor = at
	}
}

// toEvent moves the cursor by a number of events.
func (v *timeline) toEvent(step int) {
	at := v.event() + step
	if at >= len(v.events) {
		v.cursor = time.Time{}
	} else if len(v.events) > 0 {
		v.cursor = v.events[max(0, at)].At
	}
}

// event returns the index of the last event before the cursor, or -1. At the end of the range it is
// after the last.
func (v *timeline) event() int {
	if v.cursor.IsZero() {
		return len(v.events)
	}
	n := 0
	for n < len(v.events) && !v.events[n].At.After(v.cursor) {
		n++
	}
	return n - 1
}

// nextPeer selects the next peer by name, and after the last the first.
func (v *timeline) nextPeer(d *data) {
	peers := d.status.Peers
	if len(peers) == 0 {
		return
	}
	at := d.peerIndex()
	d.peers.choose(peerID(&peers[(at+1)%len(peers)]))
}

// eventsWidth is the width of the list of events beside the strips.
const eventsWidth = 52

// draw implements view.
func (v *timeline) draw(d *data, width, height int) string {
	p := d.selected()
	if p == nil {
		return sentence(d.nobody(), width, height)
	}
	window := pasts()[v.window]
	left := width
	if width >= twoColumns {
		left = width - besideGap - eventsWidth
	}
	answer := &d.past.timeline
	v.place(d, answer.history, window)
	v.columns = past.Columns(left)
	back := (v.end.Sub(v.drawn.From) + window - 1) / window * window // whole windows, so that a step of the cursor requests nothing new
	d.past.timelineWish = &api.HistoryRequest{Peers: []string{p.Name}, Since: min(back, pasts()[len(pasts())-1]), Step: window / time.Duration(v.columns)}
	i := slices.IndexFunc(answer.history.Peers, func(h api.PeerHistory) bool { return h.Peer == p.Name })
	if i < 0 {
		v.events, v.columns = nil, 0
		why := "asking the gateway …"
		if d.past.err != nil {
			why = "no history: " + cell.Printable(d.past.err.Error())
		}
		return page(append([]string{v.heading(d, p, time.Time{})}, cell.Wrap("", why, width, "")...), width, height)
	}
	h := &answer.history.Peers[i]
	v.events = h.Events
	lines := []string{v.heading(d, p, answer.history.Since)}
	strips := v.drawn.Strips(h, left, max(6, height-8))
	v.strips = span{len(lines), len(lines) + len(strips)}
	then := append([]string{d.rule(d.paint.Text(cell.Strong, "as it was "+v.when()), left)}, v.drawn.Then(h, v.moment(), left)...)
	below := append(strips, then...)
	if width >= twoColumns {
		columns := [][]string{exactly(below, left, height-1), exactly(v.list(d, eventsWidth, height-1), eventsWidth, height-1)}
		return page(append(lines, beside(d, columns, []int{left, eventsWidth})...), width, height)
	}
	room := height - len(lines) - len(below)
	if least := min(4, height/4); room < least {
		below = below[:max(0, len(below)-least+room)]
		room = least
	}
	return page(append(append(lines, below...), v.list(d, width, room)...), width, height)
}

// place ends the window at the latest known time, or centres it on an earlier cursor.
func (v *timeline) place(d *data, h api.History, window time.Duration) {
	zone := d.now.Location()
	v.begin, v.end, v.cursor = h.Since.In(zone), h.To.In(zone), in(v.cursor, zone)
	if earliest := v.end.Add(-pasts()[len(pasts())-1]); v.begin.Before(earliest) {
		v.begin = earliest
	}
	to := v.end
	if !v.cursor.IsZero() && v.cursor.Before(to.Add(-window)) {
		to = v.cursor.Add(window / 2)
	}
	v.drawn = past.Drawing{From: to.Add(-window), To: to, Cursor: v.moment(), Paint: d.paint, Graph: chart.Graph(d.graph)}
}

// in converts a moment to a zone; zero stays zero.
func in(t time.Time, zone *time.Location) time.Time {
	if t.IsZero() {
		return t
	}
	return t.In(zone)
}

// heading names the peer and the range, and since when there is history.
func (v *timeline) heading(d *data, p *api.PeerStatus, since time.Time) string {
	var spans []string
	for i, w := range pasts() {
		text := windowName(w)
		if i == v.window {
			text = d.paint.Text(cell.Strong, "["+text+"]")
		}
		spans = append(spans, text)
	}
	out := d.paint.Text(cell.Strong, cell.Printable(p.Name)) + " " + d.paint.Cell(cell.PeerState(p)) + "  " + strings.Join(spans, " ")
	if since.After(v.drawn.From) {
		out += " · gateway started at " + since.In(d.now.Location()).Format(time.TimeOnly)
	}
	return out
}

// when formats the cursor's moment.
func (v *timeline) when() string {
	if v.cursor.IsZero() {
		return "at " + v.end.Format(time.TimeOnly) + ", the latest"
	}
	return "at " + v.cursor.Format(time.TimeOnly) + ", " + cell.Age(v.end.Sub(v.cursor)) + " before"
}

// list draws the events, the one before the cursor in full.
func (v *timeline) list(d *data, width, height int) []string {
	if height < 2 {
		return nil
	}
	at := v.event()
	title := d.paint.Text(cell.Strong, "events") + fmt.Sprintf(" %d", len(v.events))
	if at >= 0 && at < len(v.events) {
		title = d.paint.Text(cell.Strong, "events") + fmt.Sprintf(" %d of %d", at+1, len(v.events))
	}
	lines := []string{d.rule(title, width)}
	if len(v.events) == 0 {
		return append(lines, "nothing happened in this time")
	}
	var rows []string
	first, last := 0, 0
	for i := range v.events {
		event := v.drawn.Event(&v.events[i], 0)
		if i == at {
			event = v.drawn.Event(&v.events[i], unmarked(width))
		}
		if i <= at {
			first, last = len(rows), len(rows)+len(event)
		}
		for _, l := range event {
			rows = append(rows, marked(l, i == at, width, d.paint))
		}
	}
	room := height - 1
	top := max(0, min(first, last-room))
	if v.cursor.IsZero() {
		top = max(0, len(rows)-room)
	}
	return append(lines, rows[top:min(len(rows), top+room)]...)
}
