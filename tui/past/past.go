// Package past draws a peer's history: strips in which a column is a period of time, the events
// below them, and the state at a moment.
package past

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/history"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
)

// Drawing is a time range and how to draw it.
type Drawing struct {
	From, To time.Time
	// Cursor is a marked moment; zero is none.
	Cursor time.Time
	Paint  cell.Paint
	Graph  chart.Graph
}

// LabelWidth is the width of the label before a strip, and figureWidth of the figure behind it, in
// cells.
const (
	LabelWidth  = len("events ")
	figureWidth = len(" max 999 MB/s")
)

// Columns returns the number of periods in a picture of this width.
func Columns(width int) int { return max(1, width-LabelWidth-figureWidth) }

// Moment returns the middle of a column of n.
func (d Drawing) Moment(column, n int) time.Time {
	piece := d.To.Sub(d.From) / time.Duration(n)
	return d.From.Add(time.Duration(column)*piece + piece/2)
}

// Column returns which of n columns contains a moment; false if none does.
func (d Drawing) Column(at time.Time, n int) (int, bool) {
	if at.Before(d.From) || at.After(d.To) || !d.To.After(d.From) {
		return 0, false
	}
	return min(n-1, int(float64(n)*float64(at.Sub(d.From))/float64(d.To.Sub(d.From)))), true
}

// lines returns the characters for strips.
func (d Drawing) lines() cell.PastLines {
	if d.Graph == chart.ASCII {
		return cell.ASCIIPast
	}
	return cell.BoxPast
}

// Strip is a line with a glyph for each period.
type Strip struct {
	Name string
	sign func(cell.PastLines, *api.HistoryPoint) string
}

// State is the strip of a peer's state and path.
var State = Strip{"state", cell.PastLines.State}

// Verdicts are the strips of the three endpoints in both directions, outbound first.
var Verdicts = []Strip{
	{"→auth", sign(func(x *api.HistoryPoint) api.Outcome { return x.Outbound.Auth })},
	{"→api", sign(func(x *api.HistoryPoint) api.Outcome { return x.Outbound.APIServer })},
	{"→gw", sign(onTheWay)},
	{"←auth", sign(func(x *api.HistoryPoint) api.Outcome { return x.Inbound.Auth })},
	{"←api", sign(func(x *api.HistoryPoint) api.Outcome { return x.Inbound.APIServer })},
	{"←gw", sign(func(x *api.HistoryPoint) api.Outcome { return x.Inbound.Gateway })},
}

// onTheWay returns the worst finding on the path to the peer's gateway, as way.See does for the
// present.
func onTheWay(x *api.HistoryPoint) api.Outcome {
	o := x.Outbound
	if o.Beside != "" {
		return way.Worse(o.Gateway, o.Beside)
	}
	return o.Gateway
}

func sign(of func(*api.HistoryPoint) api.Outcome) func(cell.PastLines, *api.HistoryPoint) string {
	return func(l cell.PastLines, x *api.HistoryPoint) string { return l.Outcome(x, of(x)) }
}

// Strip draws a strip of periods, as history.Columns returns them: a glyph for each.
func (d Drawing) Strip(s Strip, pieces []api.HistoryPoint) string {
	l := d.lines()
	var b strings.Builder
	for i := range pieces {
		b.WriteString(s.sign(l, &pieces[i]))
	}
	return b.String()
}

// Spark draws a figure over time, in n cells; 0 is not measured.
func (d Drawing) Spark(points []api.HistoryPoint, n int, figure func(*api.HistoryPoint) float64) string {
	columns := history.Columns(points, d.From, d.To, n*d.Graph.PerCell())
	values := make([]float64, len(columns))
	for i := range columns {
		if values[i] = figure(&columns[i]); values[i] <= 0 {
			values[i] = math.NaN()
		}
	}
	return chart.Spark(values, n, d.Graph, d.Paint)
}

// Figures of points.
func RTT(x *api.HistoryPoint) float64 { return x.RTTSeconds }
func rx(x *api.HistoryPoint) float64  { return x.RxBytesPerSecond }
func tx(x *api.HistoryPoint) float64  { return x.TxBytesPerSecond }
func loss(x *api.HistoryPoint) float64 {
	if x.LossRatio == nil {
		return 0
	}
	return *x.LossRatio
}

// row is one strip. Those with a high rank are omitted first, and those without measurements.
type row struct {
	name string
	rank int
	draw func() (strip, figure string)
}

// AllStrips is a height at which no strip is omitted, and FewestStrips the minimum.
const AllStrips, FewestStrips = 13, 3

// Strips draws a peer's history in at most height lines: a strip for each figure, the events, and
// the time. None is wider than width.
func (d Drawing) Strips(p *api.PeerHistory, width, height int) []string {
	n := Columns(width)
	pieces := history.Columns(p.Points, d.From, d.To, n)
	signs := func(s Strip, rank int) row {
		return row{s.Name, rank, func() (string, string) { return d.Paint.Text(cell.Signs, d.Strip(s, pieces)), "" }}
	}
	spark := func(figure func(*api.HistoryPoint) float64, words func(float64) string) func() (string, string) {
		return func() (string, string) {
			most := 0.0
			for i := range pieces {
				most = max(most, figure(&pieces[i]))
			}
			if most == 0 {
				return "", ""
			}
			return d.Spark(p.Points, n, figure), "max " + words(most)
		}
	}
	rows := []row{signs(State, 0)}
	for i, s := range Verdicts {
		rows = append(rows, signs(s, 2+i/3))
	}
	rows = append(rows, []row{
		{"rtt", 1, spark(RTT, cell.RTT)},
		{"loss", 6, spark(loss, func(v float64) string { return fmt.Sprintf("%.1f%%", 100*v) })},
		{"rx", 4, spark(rx, chart.Rate)},
		{"tx", 5, spark(tx, chart.Rate)},
		{"events", 0, func() (string, string) { return d.marks(p, n), "" }},
	}...)
	for len(rows)+1 > height && len(rows)+1 > FewestStrips {
		last := slices.MaxFunc(rows, func(a, b row) int { return cmp.Compare(a.rank, b.rank) })
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.rank == last.rank })
	}
	var lines []string
	for _, r := range rows {
		strip, figure := r.draw()
		if strip == "" {
			continue
		}
		line := d.Paint.Text(cell.Quiet, r.name) + strings.Repeat(" ", LabelWidth-ansi.StringWidth(r.name)) + cell.Pad(strip, n)
		if figure != "" {
			line += " " + figure
		}
		lines = append(lines, cell.Fit(line, width))
	}
	return append(lines, cell.Fit(d.axis(n), width))
}

// gravest are the letters of events, the gravest first.
const gravest = "VRKJP"

// letter returns the letter of a kind of events.
func letter(k api.EventKind) byte {
	if l := strings.ToUpper(string(k) + "?")[:1]; strings.Contains(gravest, l) {
		return l[0]
	}
	return '?'
}

// marks returns the letters of the events in each column, the gravest if there are several.
func (d Drawing) marks(p *api.PeerHistory, n int) string {
	marks := []byte(strings.Repeat(" ", n))
	for _, e := range p.Events {
		i, in := d.Column(e.At, n)
		if l := letter(e.Kind); in && (marks[i] == ' ' || strings.IndexByte(gravest+"?", l) < strings.IndexByte(gravest+"?", marks[i])) {
			marks[i] = l
		}
	}
	return string(marks)
}

// Legend explains the glyphs of a peer's state and the letters of events that occur.
func (d Drawing) Legend(p *api.PeerHistory) string {
	items := d.lines().Legend(d.Strip(State, history.Columns(p.Points, d.From, d.To, max(1, len(p.Points)))))
	for _, k := range []api.EventKind{api.EventVerdict, api.EventRestart, api.EventKey, api.EventJoined, api.EventPath} {
		if slices.ContainsFunc(p.Events, func(e api.HistoryEvent) bool { return e.Kind == k }) {
			items = append(items, string(letter(k))+" "+string(k))
		}
	}
	return strings.Join(items, cell.Gap)
}

// ticks are the possible times between two labels of the axis.
var ticks = []time.Duration{
	time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// axis draws times below the strips, and the cursor with its time.
func (d Drawing) axis(n int) string {
	tick, cursor := "┴", "▲"
	if d.Graph == chart.ASCII {
		tick, cursor = "+", "^"
	}
	layout := "15:04"
	if d.To.Sub(d.From) <= 10*time.Minute {
		layout = time.TimeOnly
	}
	room := len(layout) + 2
	step := ticks[len(ticks)-1]
	for _, t := range slices.Backward(ticks) {
		if float64(t)/float64(max(1, d.To.Sub(d.From)))*float64(n) >= float64(room) {
			step = t
		}
	}
	// The cursor and its time replace what would touch them.
	at, marked := d.Column(d.Cursor, n)
	mark := cursor + d.clock(d.Cursor)
	from, to := at, at+ansi.StringWidth(mark)
	if to > n {
		mark = d.clock(d.Cursor) + cursor
		from, to = max(0, at+1-ansi.StringWidth(mark)), at+1
	}
	var b strings.Builder
	used := 0
	write := func(column int, text string, style cell.Style) {
		b.WriteString(strings.Repeat(" ", column-used) + d.Paint.Text(style, text))
		used = column + ansi.StringWidth(text)
	}
	for t := d.From.Truncate(step); !t.After(d.To); t = t.Add(step) {
		i, in := d.Column(t, n)
		if marked && from <= i+room && used <= from {
			write(from, mark, cell.Strong)
			marked = false
		}
		if in && i+room <= n && (i >= used+1 || used == 0) && (!marked || i+room <= from || i > to) {
			write(i, tick+t.Format(layout), cell.Quiet)
		}
	}
	if marked && used <= from {
		write(from, mark, cell.Strong)
	}
	return strings.Repeat(" ", LabelWidth) + b.String()
}

// clock formats a moment, with its day unless that is the last one.
func (d Drawing) clock(at time.Time) string {
	at = at.In(d.To.Location())
	if at.YearDay() == d.To.YearDay() && at.Year() == d.To.Year() {
		return at.Format(time.TimeOnly)
	}
	return at.Format("Jan _2 15:04:05")
}

// Event describes an event, its time and its reason on lines of this width. The first line is a
// summary.
func (d Drawing) Event(e *api.HistoryEvent, width int) []string {
	head := string(letter(e.Kind)) + " " + d.clock(e.At) + "  "
	text := cell.Printable(e.Event)
	if e.Kind == api.EventVerdict {
		text = d.verdict(e)
		if e.Until != nil {
			text += ", for " + lasted(e.Until.Sub(e.At))
		}
	}
	if e.Reason != "" {
		text += ": " + cell.Printable(e.Reason)
	}
	return cell.Wrap(head, text, width, "    ")
}

// verdict describes a finding and its check.
func (d Drawing) verdict(e *api.HistoryEvent) string {
	return cell.Outcome(e.Verdict).Sign() + " " + cell.Printable(e.Code) + " " + arrow(e.Direction) + cell.Printable(strings.TrimPrefix(e.Check, "inbound-")) + " " + cell.Printable(e.Event)
}

func arrow(direction string) string {
	return map[string]string{api.DirectionOutbound: "→", api.DirectionInbound: "←"}[direction]
}

// lasted formats a duration, to the second.
func lasted(t time.Duration) string { return t.Round(time.Second).String() }

// Then describes the state at a moment.
func (d Drawing) Then(p *api.PeerHistory, at time.Time, width int) []string {
	x := history.At(p.Points, at)
	if x.State == "" {
		return cell.Wrap("", "nothing is known of this time", width, "")
	}
	then := cell.Then(&x)
	for i := range p.Events {
		if e := &p.Events[i]; e.Stands(at) && e.Check == api.ServiceGateway && e.Direction == api.DirectionOutbound {
			then.Reachability.Outbound.Gateway.Code = e.Code
		}
	}
	rtt, lost := cell.RTT(x.RTTSeconds), "not known"
	if x.Path == api.PathNone { // It is from before there was no path.
		rtt = ""
	}
	if x.LossRatio != nil {
		lost = fmt.Sprintf("%.1f%%", 100**x.LossRatio)
	}
	lines := cell.Flow([]string{
		d.Paint.Cell(cell.PeerState(&then)), d.Paint.Cell(cell.Path(x.Path)), "rtt " + cell.Dash(rtt).Text, "loss " + lost,
		"rx " + chart.Rate(x.RxBytesPerSecond) + " tx " + chart.Rate(x.TxBytesPerSecond),
	}, width)
	for _, direction := range []string{api.DirectionOutbound, api.DirectionInbound} {
		var items []string
		for i, target := range cell.Endpoints() {
			items = append(items, arrow(direction)+[]string{"auth", "api", "gw"}[i]+" "+d.Paint.Cell(cell.Verdict(&then, direction, target)))
		}
		lines = append(lines, cell.Flow(items, width)...)
	}
	for i := range p.Events {
		if e := &p.Events[i]; e.Stands(at) {
			found := cell.Wrap("", d.verdict(e)+": "+cell.Printable(e.Reason), width, "  ")
			if glyph, rest, ok := strings.Cut(found[0], " "); ok {
				found[0] = d.Paint.Text(cell.Signs, glyph) + " " + rest
			}
			lines = append(lines, found...)
		}
	}
	return lines
}
