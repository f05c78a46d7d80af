package screen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const titleServices = "Services"

// servicesEvery is how often services are requested while they are shown: there may be thousands.
const servicesEvery = 2 * time.Second

// offered are the services of clusters as the gateway last listed them. They are not requested
// while they are not shown.
type offered struct {
	wished  bool // they were drawn since they were requested
	askedAt time.Time
	at      time.Time // when they arrived; zero before
	enabled bool
	rows    []*serviceRow
	err     error // why they did not
}

// importedEvery is how often the services of the peer whose path is drawn are requested.
const importedEvery = 10 * time.Second

// imported are the services of clusters of the peer whose path was drawn last.
type imported struct {
	wish    string // the peer; "" if no path was drawn since they were requested
	peer    string // the peer they were requested for, at askedAt
	askedAt time.Time
	list    []api.ClusterService
}

// of returns those of a peer; nil while they are unknown.
func (i *imported) of(peer string) []api.ClusterService {
	i.wish = peer
	if i.peer != peer {
		return nil
	}
	return i.list
}

// ask returns the peer whose services to request now, or "".
func (i *imported) ask(now time.Time) string {
	wish := i.wish
	if wish == "" || wish == i.peer && now.Sub(i.askedAt) < importedEvery {
		return ""
	}
	if wish != i.peer {
		i.list = nil
	}
	i.wish, i.peer, i.askedAt = "", wish, now
	return wish
}

// serviceRow is a service for a peer, with its rates.
type serviceRow struct {
	api.ClusterService
	id string
	// Per second since the previous list, if known.
	connections, failed, rx, tx float64
	known                       bool
}

// ask reports whether to request them now.
func (o *offered) ask(now time.Time) bool {
	if !o.wished || now.Sub(o.askedAt) < servicesEvery {
		return false
	}
	o.wished, o.askedAt = false, now
	return true
}

// took stores a list, and its differences from the previous one.
func (o *offered) took(list api.ClusterServices, at time.Time) {
	step := at.Sub(o.at)
	before := map[string]*serviceRow{}
	if step > 0 && step <= maxStep {
		for _, r := range o.rows {
			before[r.id] = r
		}
	}
	o.at, o.enabled, o.rows = at, list.Enabled, make([]*serviceRow, 0, len(list.Services))
	same := map[string]int{}
	for _, s := range list.Services {
		r := &serviceRow{ClusterService: s, id: strings.Join([]string{s.Direction, s.Peer, s.Service, s.Code}, " ")}
		if same[r.id]++; same[r.id] > 1 { // distinguished by their order
			r.id = fmt.Sprintf("%s#%d", r.id, same[r.id])
		}
		if last := before[r.id]; last != nil {
			r.since(last.Used, step.Seconds())
		}
		o.rows = append(o.rows, r)
	}
}

// since computes the rates since a previous state. Counters decrease by a restart, and then the
// rates are unknown.
func (r *serviceRow) since(before *api.ServiceUse, seconds float64) {
	now := r.Used
	if now == nil || before == nil || now.Connections < before.Connections || now.RxBytes < before.RxBytes || now.TxBytes < before.TxBytes {
		return
	}
	r.known = true
	r.connections = float64(now.Connections-before.Connections) / seconds
	r.rx, r.tx = float64(now.RxBytes-before.RxBytes)/seconds, float64(now.TxBytes-before.TxBytes)/seconds
	for reason, n := range now.Failures {
		r.failed += float64(n-min(n, before.Failures[reason])) / seconds
	}
}

// serviceStanding is a service's overall condition.
type serviceStanding int

// The most urgent first.
const (
	serviceRefused serviceStanding = iota
	serviceUnready                 // granted, and no backend is ready
	serviceFailing                 // connections currently fail
	serviceWaiting
	serviceOther // in a state that this version does not know
	serviceUngranted
	serviceInUse
)

func (r *serviceRow) standing() serviceStanding {
	switch {
	case r.State == api.ServiceRefused:
		return serviceRefused
	case r.State == api.ServiceUngranted:
		return serviceUngranted
	case r.ReadyBackends != nil && *r.ReadyBackends == 0:
		return serviceUnready
	case r.failed > 0, r.State == api.ServiceFailing:
		return serviceFailing
	case r.State == api.ServiceWaiting:
		return serviceWaiting
	case r.State == api.ServiceInUse:
		return serviceInUse
	}
	return serviceOther
}

var serviceCells = [...]cell.Cell{
	serviceRefused: {Text: "✗ refused", Style: cell.Bad}, serviceUnready: {Text: "! unready", Style: cell.Wary},
	serviceFailing: {Text: "! failing", Style: cell.Wary}, serviceWaiting: {Text: "◌ waiting", Style: cell.Wary},
	serviceOther: {Text: "? unknown", Style: cell.Quiet}, serviceUngranted: {Text: "- ungranted", Style: cell.Quiet}, serviceInUse: {Text: "✓ ok", Style: cell.Good},
}

// services lists the services of clusters, in both directions.
type services struct {
	sorting
	listing[*serviceRow]
}

// Sort columns of services, in addition to those of flows.
const (
	sortOpen        = "open"
	sortConnections = "connections"
)

func newServices() *services {
	return &services{sorting: sorting{
		columns:       []string{sortTrouble, sortService, sortPeer, sortDirection, sortRate, sortConnections, sortOpen},
		greatestFirst: []string{sortRate, sortConnections, sortOpen},
		column:        sortTrouble,
	}}
}

func (*services) title() string { return titleServices }

func (*services) bindings() []key.Binding {
	k := keys()
	return []key.Binding{describe(k.enter, "open its peer"), describe(k.probe, "check its peer now"), describe(k.copy, "copy its fix")}
}

// update implements view.
func (v *services) update(msg tea.Msg, d *data) tea.Cmd {
	switch msg := msg.(type) {
	case tea.MouseMsg:
		d.services.mouse(msg, v.ids, servicesTop)
	case tea.KeyMsg:
		if d.services.key(msg, v.ids) {
			return nil
		}
		i := slices.Index(v.ids, d.services.id)
		if i < 0 {
			return nil
		}
		r := v.rows[i]
		if key.Matches(msg, keys().copy) {
			return ask(copyFix(api.StepsOf(r.Steps, r.Fix, ""), r.Service))
		}
		if j := slices.IndexFunc(d.status.Peers, func(p api.PeerStatus) bool { return p.Name == r.Peer }); j >= 0 {
			d.peers.choose(peerID(&d.status.Peers[j]))
			return peerKey(msg, d)
		}
	}
	return nil
}

// servicesTop is the line at which the list begins, after the summary and the titles.
const servicesTop = 2

// draw implements view.
func (v *services) draw(d *data, width, height int) string {
	d.offered.wished = true
	v.list(d)
	rows := v.rows
	if len(rows) == 0 {
		return sentence(d.noServices(), width, height)
	}
	d.services.settle(v.ids)
	below := d.aboutService(rows[d.services.at], width)
	below = below[:min(len(below), max(height-servicesTop-len(rows), height/3))]
	first, last := d.services.window(v.ids, height-servicesTop-len(below))
	table := cell.Layout(serviceColumns(d.wide), rows[first:last], unmarked(width))
	lines := []string{cell.Fit(v.summary(d, rows), width), "  " + table.Header(d.paint)}
	for i := range rows[first:last] {
		lines = append(lines, marked(table.Row(d.paint, i), rows[first+i].id == d.services.id, width, d.paint))
	}
	return page(append(exactly(lines, width, height-len(below)), below...), width, height)
}

// noServices says why there are none to show.
func (d *data) noServices() string {
	o := &d.offered
	switch {
	case len(o.rows) > 0:
		return "the filter picks no service; esc clears it"
	case o.err != nil:
		return cell.Printable(o.err.Error())
	case o.at.IsZero():
		return "asking the gateway …"
	}
	return cell.NoServices(o.enabled)
}

// list updates the list: the filtered services, sorted.
func (v *services) list(d *data) {
	if !v.stale(listOf{firstOf(d.offered.rows), d.filter, v.column, v.descending, nil}) {
		return
	}
	for _, r := range d.offered.rows {
		if d.filter.match(r.Service, r.Direction, r.Peer, serviceCells[r.standing()].Text, r.Code, r.Cause) {
			v.rows = append(v.rows, r)
		}
	}
	slices.SortStableFunc(v.rows, func(a, b *serviceRow) int {
		return cmp.Or(v.directed(v.compare(a, b)), cell.CompareNames(a.Service, b.Service), cell.CompareNames(a.Peer, b.Peer))
	})
	for _, r := range v.rows {
		v.ids = append(v.ids, r.id)
	}
}

func (v *services) compare(a, b *serviceRow) int {
	switch v.column {
	case sortService:
		return cell.CompareNames(a.Service, b.Service)
	case sortPeer:
		return cell.CompareNames(a.Peer, b.Peer)
	case sortDirection:
		return cmp.Compare(a.Direction, b.Direction)
	case sortRate:
		return cmp.Compare(a.rx+a.tx, b.rx+b.tx)
	case sortConnections:
		return cmp.Compare(a.connections, b.connections)
	case sortOpen:
		return cmp.Compare(a.Connections, b.Connections)
	}
	return cmp.Compare(a.standing(), b.standing())
}

// summary counts the services by condition, and names their order.
func (v *services) summary(d *data, rows []*serviceRow) string {
	count := someOf(len(rows), len(d.offered.rows), "service", "services")
	fares := map[serviceStanding]int{}
	var rx, tx float64
	for _, r := range rows {
		fares[r.standing()]++
		rx, tx = rx+r.rx, tx+r.tx
	}
	var states []string
	for _, s := range slices.Sorted(maps.Keys(fares)) {
		states = append(states, d.paint.Cell(serviceCells[s].Counted(fares[s])))
	}
	why := ""
	if d.offered.err != nil {
		why = d.paint.Text(cell.Bad, "as of "+d.offered.at.Format(time.TimeOnly)+": "+cell.Printable(d.offered.err.Error()))
	}
	return onOneLine([]string{d.paint.Text(cell.Strong, count), why, "by " + v.column + " " + v.arrow(), strings.Join(states, " "), "rx " + cell.Size(rx) + "/s tx " + cell.Size(tx) + "/s"})
}

// serviceColumns returns the columns of the list; the least informative are dropped first.
func serviceColumns(wide bool) []cell.Column[*serviceRow] {
	type row = *serviceRow
	rate := func(title string, rank int, pick func(row) float64, format func(float64) string) cell.Column[row] {
		return cell.Column[row]{Title: title, Rank: rank, Min: len("999 kB/s"), Right: true, Cell: func(r row) cell.Cell {
			if !r.known {
				return cell.Dash("")
			}
			return cell.Cell{Text: format(pick(r))}
		}}
	}
	size := func(v float64) string { return cell.Size(v) + "/s" }
	total := func(title string, rank int, pick func(*api.ServiceUse) string) cell.Column[row] {
		return cell.Column[row]{Title: title, Rank: rank, Min: len("999 MB"), Right: true, Cell: func(r row) cell.Cell {
			if r.Used == nil {
				return cell.Dash("")
			}
			return cell.Cell{Text: pick(r.Used)}
		}}
	}
	list := func(title string, rank int, pick func(row) []string) cell.Column[row] {
		return cell.Column[row]{Title: title, Rank: rank, Max: maxServiceList, Cell: func(r row) cell.Cell { return cell.Dash(cell.Joined(pick(r), ", ")) }}
	}
	columns := []cell.Column[row]{
		{Title: "SERVICE", Cell: func(r row) cell.Cell {
			return cell.Cell{Text: cmp.Or(cell.Printable(r.Service), "-"), Style: cell.Strong}
		}},
		{Title: "PEER", Rank: 1, Max: shortName, Cell: func(r row) cell.Cell { return cell.Dash(r.toward()) }},
		{Title: "STATE", Cell: func(r row) cell.Cell { return serviceCells[r.standing()] }},
		{Title: "WHY", Rank: 2, Cell: func(r row) cell.Cell { return cell.Dash(cell.Printable(r.Code)) }},
		{Title: "READY", Rank: 5, Right: true, Cell: func(r row) cell.Cell {
			if r.ReadyBackends == nil {
				return cell.Dash("")
			}
			return cell.Cell{Text: fmt.Sprint(*r.ReadyBackends)}
		}},
		{Title: "OPEN", Rank: 4, Min: len("9999"), Right: true, Cell: func(r row) cell.Cell { return cell.Cell{Text: fmt.Sprint(r.Connections)} }},
		rate("CONN/s", 6, func(r row) float64 { return r.connections }, func(v float64) string { return fmt.Sprintf("%.1f", v) }),
		rate("RX/s", 3, func(r row) float64 { return r.rx }, size),
		rate("TX/s", 3, func(r row) float64 { return r.tx }, size),
		list("PORTS", 7, func(r row) []string { return r.Ports }),
		total("RX", 8, func(u *api.ServiceUse) string { return cell.Size(float64(u.RxBytes)) }),
		total("TX", 8, func(u *api.ServiceUse) string { return cell.Size(float64(u.TxBytes)) }),
	}
	if wide {
		columns = append(columns, list("ADDRESSES", 9, func(r row) []string { return cell.ServiceAddresses(&r.ClusterService) }))
	}
	return columns
}

// maxServiceList bounds a list of ports, in cells, so that it does not take all the room.
const maxServiceList = 24

// toward returns the peer, after an arrow to it if the service is offered there.
func (r *serviceRow) toward() string {
	switch {
	case r.Peer == "":
		return ""
	case r.Direction == api.ServiceExported:
		return "→ " + cell.Printable(r.Peer)
	}
	return "← " + cell.Printable(r.Peer)
}

// aboutService shows what a service's row has no room for.
func (d *data) aboutService(r *serviceRow, width int) []string {
	title := strings.TrimSpace(d.paint.Text(cell.Strong, cell.Printable(cmp.Or(r.Service, r.Direction))) + " " + r.toward())
	lines := []string{d.rule(title, width)}
	say := func(style cell.Style, text string) {
		if text != "" {
			for _, l := range cell.Wrap("", cell.Printable(text), width, "") {
				lines = append(lines, d.paint.Text(style, l))
			}
		}
	}
	say(serviceCells[r.standing()].Style, strings.TrimSpace(r.Code+" "+r.Cause))
	lines = append(lines, cell.FixLines("fix: ", api.StepsOf(r.Steps, r.Fix, ""), width)...)
	if r.standing() == serviceUnready {
		say(cell.Wary, "no backend is ready: kubectl get endpointslices -n "+strings.Replace(r.Service, "/", " -l kubernetes.io/service-name=", 1))
	}
	if u := r.Used; u != nil {
		var failed []string
		for _, reason := range slices.Sorted(maps.Keys(u.Failures)) {
			failed = append(failed, fmt.Sprintf("%d %s", u.Failures[reason], strings.ReplaceAll(reason, "_", " ")))
		}
		say(cell.Plain, onOneLine([]string{fmt.Sprintf("%d connections carried", u.Connections), strings.Join(failed, ", ")}))
	}
	say(cell.Quiet, onOneLine([]string{r.Type, strings.Join(r.Ports, ", "), strings.Join(cell.ServiceAddresses(&r.ClusterService), ", ")}))
	return lines
}
