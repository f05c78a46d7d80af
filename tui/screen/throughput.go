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
)

const titleThroughput = "Throughput"

// throughput draws what one peer, or all of them on top of each other, receive and send.
type throughput struct {
	// window is an index of windows.
	window int
	// single shows the selected peer instead of all.
	single bool
}

func newThroughput() *throughput { return &throughput{} }

// windows returns the ranges of a chart; samples are kept for the longest.
func windows() []time.Duration { return []time.Duration{time.Minute, 10 * time.Minute, keep} }

func (*throughput) title() string { return titleThroughput }

func (*throughput) bindings() []key.Binding {
	k := keys()
	return []key.Binding{k.wider, k.narrower, describe(k.sort, "next peer, or all"), describe(k.enter, "open peer")}
}

// update implements view.
func (v *throughput) update(msg tea.Msg, d *data) tea.Cmd {
	k := keys()
	switch msg := msg.(type) {
	case tea.MouseMsg:
		switch msg.Button {
		case tea.MouseButtonWheelUp:
			v.move(d, -1)
		case tea.MouseButtonWheelDown:
			v.move(d, 1)
		}
	case tea.KeyMsg:
		step, moved := stepOf(msg, 1)
		switch {
		case key.Matches(msg, k.wider):
			v.window = min(v.window+1, len(windows())-1)
		case key.Matches(msg, k.narrower):
			v.window = max(v.window-1, 0)
		case key.Matches(msg, k.sort):
			v.cycle(d)
		case key.Matches(msg, k.enter) && v.shown(d) != nil:
			return ask(openMsg{titlePeer})
		case moved:
			v.move(d, step)
		}
	}
	return nil
}

// cycle shows the next peer; all come after the last one, and the first after all. It returns what
// is then shown.
func (v *throughput) cycle(d *data) string {
	if i, n := v.position(d); i == n {
		v.single = false
	} else {
		v.move(d, 1)
	}
	if p := v.shown(d); p != nil {
		return cell.Printable(p.Name)
	}
	return "all peers"
}

// position returns the index of what is shown, from all peers at 0 to the last peer at n.
func (v *throughput) position(d *data) (i, n int) {
	peers := v.peers(d)
	if p := v.shown(d); p != nil {
		i = 1 + slices.Index(peers, p)
	}
	return i, len(peers)
}

// move changes the position by step.
func (v *throughput) move(d *data, step int) {
	i, n := v.position(d)
	i = min(max(0, i+step), n)
	if v.single = i > 0; v.single {
		d.peers.choose(peerID(v.peers(d)[i-1]))
	}
}

// peers returns the filtered peers, by name.
func (*throughput) peers(d *data) []*api.PeerStatus {
	var out []*api.PeerStatus
	for i := range d.status.Peers {
		if p := &d.status.Peers[i]; d.filter.match(p.Name) {
			out = append(out, p)
		}
	}
	return out
}

// shown returns the shown peer; nil means all.
func (v *throughput) shown(d *data) *api.PeerStatus {
	p := d.peer()
	if !v.single || p == nil || !d.filter.match(p.Name) {
		return nil
	}
	return p
}

// draw implements view.
func (v *throughput) draw(d *data, width, height int) string {
	t := v.traffic(d)
	lines := []string{cell.Fit(v.heading(d), width)}
	figures := t.figures(d, width, height >= roomyFigures)
	legend := 0
	if len(t.legend) > 0 {
		legend = 1
		if height >= roomyFigures && len(t.legend) > 1 && width < 100 {
			legend = 2
		}
	}
	room := height - len(lines) - legend - len(figures)
	if room < minCharts { // Without room, figures are better than charts.
		return page(append(lines, figures...), width, height)
	}
	lines = append(lines, t.charts(d, width, room)...)
	lines = append(lines, chart.Legend(t.legend, width, legend, t.options)...)
	return page(append(lines, figures...), width, height)
}

const (
	// roomyFigures is the height of a view from which figures have a line of titles.
	roomyFigures = 14
	// minCharts is the height of two charts without axes, and minPanes that of two below each other
	// with a time axis.
	minCharts = 2
	minPanes  = 6
)

// heading says whose traffic it is, and over which time.
func (v *throughput) heading(d *data) string {
	p := d.paint
	who := "all peers"
	if _, n := v.position(d); d.filter.text != "" || n != len(d.status.Peers) {
		who = fmt.Sprintf("%d of %d peers", n, len(d.status.Peers))
	}
	who = p.Text(cell.Strong, who)
	if peer := v.shown(d); peer != nil {
		who = onOneLine([]string{p.Text(cell.Strong, cell.Printable(peer.Name)), p.Cell(cell.PeerState(peer)), p.Cell(cell.Path(peer.Path.Kind))})
	}
	var spans []string
	for i, w := range windows() {
		text := windowName(w)
		if i == v.window {
			text = p.Text(cell.Strong, "["+text+"]")
		}
		spans = append(spans, text)
	}
	return who + "  " + strings.Join(spans, " ")
}

func windowName(w time.Duration) string {
	if w < time.Hour {
		return fmt.Sprintf("%d min", w/time.Minute)
	}
	return fmt.Sprintf("%d h", w/time.Hour)
}

// traffic is what is drawn: a series for each peer in each direction, and their sums.
type traffic struct {
	rx, tx           []chart.Points
	legend           []chart.Entry
	sum              []sample
	rxBytes, txBytes uint64
	options          chart.Options
}

// traffic collects it. If there are too many peers to distinguish, those with less traffic are
// drawn as one. The others are sorted by name, so that they keep their appearance.
func (v *throughput) traffic(d *data) traffic {
	window := windows()[v.window]
	coloured, light := d.paint.Hues()
	t := traffic{options: chart.Options{Graph: chart.Graph(d.graph), Color: coloured, Light: light, Gradients: d.paint.Gradients(), Now: d.now, Window: window}}
	peers := v.peers(d)
	if p := v.shown(d); p != nil {
		peers = []*api.PeerStatus{p}
	}
	samples, weights := make([][]sample, len(peers)), make([]float64, len(peers))
	total := 0.0
	for i, p := range peers {
		samples[i] = d.samples(peerID(p), d.now.Add(-window-chart.Hold))
		for _, s := range samples[i] {
			weights[i] += float64(s.rx) + float64(s.tx)
		}
		total += weights[i]
		t.rxBytes += p.RxBytes
		t.txBytes += p.TxBytes
	}
	shown, rest := chart.Rank(weights, chart.Layers)
	slices.Sort(shown)
	var layers, others [][]sample
	left := total
	for _, i := range shown {
		layers = append(layers, samples[i])
		left -= weights[i]
		t.legend = append(t.legend, chart.Entry{Name: peers[i].Name, Value: share(weights[i], total)})
	}
	if len(rest) > 0 {
		for _, i := range rest {
			others = append(others, samples[i])
		}
		layers = append(layers, together(others))
		t.legend = append(t.legend, chart.Entry{Name: fmt.Sprintf("%d others", len(rest)), Value: share(left, total)})
	}
	for _, l := range layers {
		t.rx, t.tx = append(t.rx, rxOf(l)), append(t.tx, txOf(l))
	}
	t.sum = together(layers)
	if len(peers) < 2 {
		t.legend = nil
	}
	return t
}

// share formats a part of a sum; "" if the sum is zero.
func share(part, sum float64) string {
	if !(sum > 0) {
		return ""
	}
	return fmt.Sprintf("%.0f %%", max(0, 100*part/sum))
}

func rxOf(samples []sample) chart.Points {
	return pointsOf(samples, func(s sample) float32 { return s.rx })
}

func txOf(samples []sample) chart.Points {
	return pointsOf(samples, func(s sample) float32 { return s.tx })
}

func pointsOf(samples []sample, rate func(sample) float32) chart.Points {
	return func(yield func(int64, float64) bool) {
		for _, s := range samples {
			if !yield(s.unixMilli, float64(rate(s))) {
				return
			}
		}
	}
}

// charts draws what is received above what is sent, or beside it on a low screen.
func (t traffic) charts(d *data, width, height int) []string {
	rx, tx := t.options, t.options
	rx.Title, tx.Title = "rx", "tx"
	if len(t.legend) == 0 {
		tx.Tint = chart.Magenta
	}
	if height < minPanes {
		const gap = 2
		half := (width - gap) / 2
		left, right := chart.Area(t.rx, half, height, rx), chart.Area(t.tx, width-gap-half, height, tx)
		if len(left) != height || len(right) != height {
			return nil
		}
		for i := range left {
			left[i] += strings.Repeat(" ", gap) + right[i]
		}
		return left
	}
	rx.NoTime = true
	const axis = 2
	above := (height - axis) / 2
	return append(chart.Area(t.rx, width, above, rx), chart.Area(t.tx, width, height-above, tx)...)
}

// figureRow is a direction and its figures.
type figureRow struct {
	name  string
	bytes uint64
	chart.Figures
}

// figures draws a table, or a line for each direction.
func (t traffic) figures(d *data, width int, roomy bool) []string {
	rows := []figureRow{
		{"rx", t.rxBytes, chart.FiguresOf(rxOf(t.sum), d.now, t.options.Window)},
		{"tx", t.txBytes, chart.FiguresOf(txOf(t.sum), d.now, t.options.Window)},
	}
	if !roomy {
		var lines []string
		for _, r := range rows {
			lines = append(lines, fmt.Sprintf("%s %s mean %s max %s", r.name, chart.Rate(r.Now), chart.Rate(r.Mean), chart.Rate(r.Max)))
		}
		return lines
	}
	rate := func(title string, rank int, pick func(figureRow) float64) cell.Column[figureRow] {
		return cell.Column[figureRow]{Title: title, Rank: rank, Min: len("999 MB/s"), Right: true, Cell: func(r figureRow) cell.Cell {
			return cell.Cell{Text: chart.Rate(pick(r))}
		}}
	}
	table := cell.Layout([]cell.Column[figureRow]{
		{Title: "", Cell: func(r figureRow) cell.Cell { return cell.Cell{Text: r.name, Style: cell.Strong} }},
		rate("NOW", 1, func(r figureRow) float64 { return r.Now }),
		rate("MEAN", 2, func(r figureRow) float64 { return r.Mean }),
		rate("MAX", 3, func(r figureRow) float64 { return r.Max }),
		{Title: "SINCE START", Rank: 4, Right: true, Cell: func(r figureRow) cell.Cell { return cell.Cell{Text: cell.Size(float64(r.bytes))} }},
	}, rows, width)
	lines := []string{table.Header(d.paint)}
	for i := range rows {
		lines = append(lines, table.Row(d.paint, i))
	}
	return lines
}
