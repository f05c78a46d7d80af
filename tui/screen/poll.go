package screen

import (
	"context"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const (
	// interval is the minimum time between two snapshots.
	interval = time.Second
	// peerInterval is the minimum for each peer: many peers make it longer than interval, up to
	// slowest. 1,000 peers are 2.5 MB, which take some 30 ms to parse.
	peerInterval, slowest = 3 * time.Millisecond, 4 * time.Second
	// checksInterval is the time between two requests for the results of the checks, and
	// peerChecksInterval its part per peer. The gateway runs them every half minute or so.
	checksInterval, peerChecksInterval = 5 * time.Second, 10 * time.Millisecond
	// pollLimit bounds one request of a snapshot, snapshotLimit all of them, and checkLimit one run
	// of checks, which a gateway ends within 10 s.
	pollLimit, snapshotLimit, checkLimit = 5 * time.Second, 15 * time.Second, 30 * time.Second
	// fleetInterval is the time between two snapshots of a gateway that is only shown beside
	// others.
	fleetInterval = 5 * time.Second
	// maxBackoff bounds the wait before a lost gateway is tried again.
	maxBackoff = 15 * time.Second
)

// tickMsg comes once per interval.
type tickMsg struct{}

// polledMsg is a snapshot, or why there is none.
type polledMsg struct {
	of     *data // the gateway it belongs to
	status api.Status
	age    time.Duration // of the status, when all parts are there
	err    error
	// What was not requested is nil.
	log         *api.Log
	logErr      error
	report      *api.CheckReport
	reportErr   error
	past        pastMsg
	services    *api.ClusterServices
	servicesErr error
	// imported are the services of clusters of the peer importedOf; "" if they were not requested.
	imported   []api.ClusterService
	importedOf string
}

// checkedMsg is the result of a run of checks.
type checkedMsg struct {
	of     *data
	peer   string
	report api.CheckReport
	err    error
}

// poll requests a snapshot if one is due, and those of all other gateways while they are shown.
func (m *model) poll() tea.Cmd {
	if m.paused() {
		return nil
	}
	now := m.now()
	var cmds []tea.Cmd
	if d := m.data; d.due(now, interval) {
		cmds = append(cmds, m.ask(now))
	}
	for i, d := range m.gateways {
		if d != m.data && m.onFleet() && d.due(now, fleetInterval) {
			cmds = append(cmds, m.askStatus(i, now))
		}
	}
	return tea.Batch(cmds...)
}

// due reports whether to query a gateway, which is done once per interval, or less often if it has
// so many peers that parsing the response takes a while.
func (d *data) due(now time.Time, every time.Duration) bool {
	every = max(every, min(slowest, time.Duration(len(d.status.Peers))*peerInterval))
	return !d.polling && !now.Before(d.nextTry) && now.Sub(d.polledAt) >= every*9/10
}

// ask requests the shown data from the shown gateway.
func (m *model) ask(now time.Time) tea.Cmd {
	d, source := m.data, m.sources[m.source].Source
	d.polling, d.polledAt = true, now
	checks := now.Sub(d.checksAt) >= max(checksInterval, time.Duration(len(d.status.Peers))*peerChecksInterval)
	if checks {
		d.checksAt = now
	}
	after, started := d.lastLogged(), d.status.Gateway.StartedAt
	asks, services, imported := d.past.ask(now), d.offered.ask(now), d.imported.ask(now)
	return m.tasks.run(snapshotLimit, func(ctx context.Context) tea.Msg {
		msg := polledMsg{of: d}
		if msg.status, msg.err = bounded(ctx, source.Status); msg.err != nil {
			return msg
		}
		arrived := time.Now()
		if !msg.status.Gateway.StartedAt.Equal(started) {
			after = 0 // the log of another process, which numbers its records from 1
		}
		l, err := bounded(ctx, func(ctx context.Context) (api.Log, error) { return source.Log(ctx, after) })
		msg.log, msg.logErr = &l, err
		if checks {
			r, err := bounded(ctx, source.Checks)
			msg.report, msg.reportErr = &r, err
		}
		msg.past = asks.fetch(ctx, source)
		if services {
			s, err := bounded(ctx, func(ctx context.Context) (api.ClusterServices, error) { return source.ClusterServices(ctx, "") })
			msg.services, msg.servicesErr = &s, err
		}
		if imported != "" {
			msg.importedOf = imported
			s, err := bounded(ctx, func(ctx context.Context) (api.ClusterServices, error) { return source.ClusterServices(ctx, imported) })
			if err == nil { // an earlier gateway does not know this request
				msg.imported = s.Services
			}
		}
		msg.age = time.Since(arrived).Round(time.Second)
		return msg
	})
}

// bounded gives one request pollLimit. Over a slow link a whole snapshot takes longer, and each
// part that arrives is used.
func bounded[A any](ctx context.Context, ask func(context.Context) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	return ask(ctx)
}

// polled takes a snapshot. One that fails leaves the last one there, and makes the next
// wait longer.
func (m *model) polled(msg polledMsg) {
	d, now := msg.of, m.now()
	d.polling = false
	if d.frozen && !d.statusAt.IsZero() {
		return // It was requested before the screen was frozen.
	}
	if msg.err != nil {
		if d.lost == nil {
			d.lostSince = now
		}
		d.lost = msg.err
		d.nextTry = now.Add(min(maxBackoff, interval<<min(d.failures, 4)))
		d.failures++
		d.checksAt = time.Time{}
		return
	}
	d.failures = 0
	restarted := !d.status.Gateway.StartedAt.Equal(msg.status.Gateway.StartedAt)
	d.took(msg.status, now.Add(-msg.age))
	if restarted {
		d.checksAt = time.Time{} // Its checks start over, and so does its log.
		d.log = nil
		d.offered, d.imported = offered{}, imported{}
		d.past = remembered{hours: map[string]*lastHour{}}
	}
	if msg.log != nil {
		if d.logErr = msg.logErr; msg.logErr == nil {
			d.logged(msg.log.Records)
			d.alarms = msg.log.Alarms
		}
	}
	d.past.took(msg.past)
	if msg.services != nil {
		if d.offered.err = msg.servicesErr; msg.servicesErr == nil {
			d.offered.took(*msg.services, now)
		}
	}
	if msg.importedOf != "" && msg.importedOf == d.imported.peer {
		d.imported.list = msg.imported
	}
	if msg.report != nil {
		if d.reportErr = msg.reportErr; msg.reportErr == nil {
			d.report = *msg.report
		}
	}
}

// probe runs checks now, for one peer or for all.
func (m *model) probe(peer string) tea.Cmd {
	if m.data.checking != "" {
		return nil
	}
	m.data.checking, m.notice = peer, ""
	r := api.CheckRequest{Peer: peer}
	if peer == allPeers {
		r.Peer = ""
	}
	m.spin = 0
	source, d := m.sources[m.source].Source, m.data
	return tea.Batch(m.tasks.after(spinInterval, spinMsg{}), m.tasks.run(checkLimit, func(ctx context.Context) tea.Msg {
		report, err := source.Check(ctx, r)
		return checkedMsg{d, peer, report, err}
	}))
}

// firstCheck checks the first selected peer, once.
func (m *model) firstCheck() tea.Cmd {
	p := m.data.peer()
	if !m.checkFirst || p == nil || m.paused() {
		return nil
	}
	m.checkFirst = false
	return m.probe(p.Name)
}

// checked handles the result of a run.
func (m *model) checked(msg checkedMsg) tea.Cmd {
	d := m.data
	d.checking = ""
	if msg.err != nil {
		return m.say("not checked: " + msg.err.Error())
	}
	d.reportErr = nil
	if msg.peer == allPeers {
		d.report = msg.report
	} else {
		d.merge(msg.report, msg.peer)
	}
	s := msg.report.Summary
	return m.say("checked " + nameOf(msg.peer) + ": " + cell.CheckSummary(s))
}

// merge adds the checks of one peer to the report, and what else came with them.
func (d *data) merge(r api.CheckReport, peer string) {
	renewed := map[string]bool{}
	for i := range r.Checks {
		renewed[checkID(&r.Checks[i])] = true
	}
	merged := d.report
	merged.At, merged.Checks = r.At, nil
	for i := range d.report.Checks {
		if c := &d.report.Checks[i]; c.Peer != peer && !renewed[checkID(c)] {
			merged.Checks = append(merged.Checks, *c)
		}
	}
	merged.Checks = append(merged.Checks, r.Checks...)
	d.report = merged
}
