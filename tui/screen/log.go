package screen

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const titleLog = "Log"

// logTail shows the gateway's recent log, the newest record last.
type logTail struct {
	level slog.Level // the minimum shown
	// still keeps the records in place instead of following the newest, from top on, which is a
	// record's Seq.
	still bool
	top   uint64
	// cut shows each record on one line; otherwise they are wrapped.
	cut  bool
	page int // lines for records
}

func newLog() *logTail { return &logTail{level: slog.LevelInfo} }

// logKeys are the keys of this view.
type logKeys struct{ less, more, follow, wrap key.Binding }

func keysOfLog() logKeys {
	bind := func(k, description string) key.Binding {
		return key.NewBinding(key.WithKeys(k), key.WithHelp(k, description))
	}
	return logKeys{
		less:   bind("l", "only more severe"),
		more:   bind("L", "less severe too"),
		follow: bind("f", "follow the newest"),
		wrap:   bind("z", "wrap lines"),
	}
}

func (*logTail) title() string { return titleLog }

func (*logTail) bindings() []key.Binding {
	k := keysOfLog()
	return []key.Binding{k.less, k.more, k.follow, k.wrap}
}

// levels returns the levels, from all records to the worst ones.
func levels() []slog.Level {
	return []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
}

// update implements view.
func (v *logTail) update(msg tea.Msg, d *data) tea.Cmd {
	switch msg := msg.(type) {
	case tea.MouseMsg:
		switch msg.Button {
		case tea.MouseButtonWheelUp:
			v.scroll(d, -wheel)
		case tea.MouseButtonWheelDown:
			v.scroll(d, wheel)
		}
	case tea.KeyMsg:
		if step, ok := stepOf(msg, v.page); ok {
			v.scroll(d, step)
			return nil
		}
		i := slices.Index(levels(), v.level)
		switch k := keysOfLog(); {
		case key.Matches(msg, k.less):
			v.level = levels()[min(i+1, len(levels())-1)]
		case key.Matches(msg, k.more):
			v.level = levels()[max(i-1, 0)]
		case key.Matches(msg, k.follow):
			v.still = !v.still
			if v.still {
				v.hold(d)
			}
		case key.Matches(msg, k.wrap):
			v.cut = !v.cut
		}
	}
	return nil
}

// scroll moves by records. Scrolling past the newest follows again.
func (v *logTail) scroll(d *data, step int) {
	shown := v.shown(d)
	at := v.first(d, shown) + step
	if at > v.lastPage(d, shown, d.width) || len(shown) == 0 {
		v.still = false
		return
	}
	v.still, v.top = true, d.log[shown[max(0, at)]].Seq
}

// hold stops following.
func (v *logTail) hold(d *data) {
	shown := v.shown(d)
	v.still = false
	if at := v.first(d, shown); at < len(shown) {
		v.still, v.top = true, d.log[shown[at]].Seq
	}
}

// shown returns the indexes of the records that are severe enough and match the filter.
func (v *logTail) shown(d *data) []int {
	var out []int
	for i := range d.log {
		r := &d.log[i]
		if v.level > slog.LevelDebug && levelOf(r) < v.level { // LevelDebug shows what is below it, too.
			continue
		}
		if d.filter.text != "" {
			texts := []string{r.Level, r.Message}
			for _, a := range r.Attrs {
				texts = append(texts, a.Key+"="+a.Value)
			}
			if !d.filter.match(texts...) {
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// levelOf parses a record's level; invalid ones count as information.
func levelOf(r *api.LogRecord) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(r.Level)); err != nil {
		return slog.LevelInfo
	}
	return l
}

// first returns the index in shown of the first record on the screen.
func (v *logTail) first(d *data, shown []int) int {
	last := v.lastPage(d, shown, d.width)
	if !v.still {
		return last
	}
	at, _ := slices.BinarySearchFunc(shown, v.top, func(i int, seq uint64) int {
		return cmp.Compare(d.log[i].Seq, seq)
	})
	return min(at, last)
}

// lastPage returns the index from which the rest fills a page.
func (v *logTail) lastPage(d *data, shown []int, width int) int {
	lines := 0
	for i := len(shown) - 1; i >= 0; i-- {
		lines += len(v.lines(d, &d.log[shown[i]], width))
		if lines >= v.page {
			if lines > v.page && i < len(shown)-1 {
				return i + 1
			}
			return i
		}
	}
	return 0
}

// draw implements view.
func (v *logTail) draw(d *data, width, height int) string {
	alarms := v.alarms(d, width)
	v.page = max(1, height-1-len(alarms))
	shown := v.shown(d)
	lines := append([]string{cell.Fit(v.summary(d, len(shown)), width)}, alarms...)
	if len(shown) == 0 {
		lines = append(lines, cell.Wrap("", v.nothing(d), width, "")...)
		return page(lines, width, height)
	}
	var records []string
	for i := v.first(d, shown); i < len(shown) && (len(records) < v.page || !v.still); i++ {
		records = append(records, v.lines(d, &d.log[shown[i]], width)...)
	}
	if !v.still && len(records) > v.page { // One record that is longer than the page.
		records = records[len(records)-v.page:]
	}
	return page(append(lines, records...), width, height)
}

// maxAlarms is how many alarms are shown above the records.
const maxAlarms = 3

// alarms returns the last maxAlarms, each on a line. Mere warnings, which others can cause at will,
// do not displace the alarms that an operator has to look at; those come below them. Their records
// may be gone.
func (v *logTail) alarms(d *data, width int) []string {
	ranked := slices.Clone(d.alarms)
	slices.SortStableFunc(ranked, func(a, b api.Alarm) int {
		if decided := a.Event == api.EventAlarm; decided == (b.Event == api.EventAlarm) {
			return 0
		} else if decided {
			return 1
		}
		return -1
	})
	var lines []string
	for i := max(0, len(ranked)-maxAlarms); i < len(ranked); i++ {
		a := &ranked[i]
		sign := d.paint.Text(cell.Wary, "!")
		if a.Event == api.EventAlarm {
			sign = d.paint.Text(cell.Bad, "✗")
		}
		lines = append(lines, cell.Fit(sign+" "+cell.Alarm(a, "15:04:05"), width))
	}
	if n := len(d.alarms) - maxAlarms; n > 0 {
		lines = append(lines, cell.Fit(d.paint.Text(cell.Quiet, fmt.Sprintf("  and %d more: postern status -o json", n)), width))
	}
	return lines
}

// summary says what is shown of the log.
func (v *logTail) summary(d *data, shown int) string {
	count := fmt.Sprintf("%d records", len(d.log))
	if shown != len(d.log) {
		count = fmt.Sprintf("%d of %s", shown, count)
	}
	level := "all levels"
	switch v.level {
	case slog.LevelError:
		level = "errors"
	case slog.LevelWarn:
		level = "warnings and errors"
	case slog.LevelInfo:
		level = "info and above"
	}
	follow := "following"
	if v.still {
		follow = d.paint.Text(cell.Wary, "= not following")
	}
	if d.logErr != nil {
		follow = d.paint.Text(cell.Bad, "✗ no new records: "+cell.Printable(d.logErr.Error()))
	}
	return onOneLine([]string{d.paint.Text(cell.Strong, count), level, follow})
}

// nothing says why there is nothing to show.
func (v *logTail) nothing(d *data) string {
	switch {
	case len(d.log) == 0:
		return "nothing was logged yet"
	case d.filter.text != "":
		return "no record fits the filter " + cell.Printable(d.filter.text) + " at this level; esc clears the filter, L shows less severe ones"
	}
	return "nothing this severe was logged; L shows less severe records"
}

// lines draws a record.
func (v *logTail) lines(d *data, r *api.LogRecord, width int) []string {
	p := d.paint
	layout := "15:04:05"
	if d.wide {
		layout = "2006-01-02 15:04:05.000"
	}
	at, level := r.Time.Format(layout), levelCell(r)
	prefix := at + " " + level.Text + " "
	const indent = "    "
	text := cell.Printable(r.Message)
	for _, a := range r.Attrs {
		text += " " + cell.Printable(a.Key) + "=" + cell.Printable(quoted(a.Value))
	}
	var lines []string
	if v.cut {
		lines = []string{cell.Fit(prefix+text, width)}
	} else {
		lines = cell.Wrap(prefix, text, width, indent)
	}
	if rest, ok := strings.CutPrefix(lines[0], prefix); ok {
		lines[0] = p.Text(cell.Quiet, at) + " " + p.Text(level.Style, level.Text) + " " + rest
	}
	return lines
}

// levelCell returns a level's sign and word, all of one width.
func levelCell(r *api.LogRecord) cell.Cell {
	switch l := levelOf(r); {
	case l >= slog.LevelError:
		return cell.Cell{Text: "✗ error", Style: cell.Bad}
	case l >= slog.LevelWarn:
		return cell.Cell{Text: "! warn ", Style: cell.Wary}
	case l >= slog.LevelInfo:
		return cell.Cell{Text: "· info "}
	}
	return cell.Cell{Text: "  debug", Style: cell.Quiet}
}

// quoted puts a value with spaces in quotes, as in logfmt.
func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n\"=") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
