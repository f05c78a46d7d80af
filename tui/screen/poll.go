package screen

import (
	"context"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

const (
	// interval is between two snapshots, at least.
	interval = time.Second
	// checksInterval is between two looks at the results of the checks. The gateway runs
	// them every half minute or so, by itself.
	checksInterval = 5 * time.Second
	// pollLimit bounds one snapshot, checkLimit one run of checks: a gateway ends them
	// within 10 s.
	pollLimit  = 5 * time.Second
	checkLimit = 30 * time.Second
	// maxBackoff bounds the wait before a gateway that is lost is asked again.
	maxBackoff = 15 * time.Second
)

// tickMsg comes once an interval.
type tickMsg struct{}

// polledMsg is a snapshot, or why there is none.
type polledMsg struct {
	epoch  int
	status api.Status
	err    error
	log    api.Log
	logErr error
	// report is nil when the checks were not asked for.
	report    *api.CheckReport
	reportErr error
	past      pastMsg
	// services is nil when they were not asked for.
	services    *api.ClusterServices
	servicesErr error
}

// checkedMsg is the outcome of a run of checks.
type checkedMsg struct {
	epoch  int
	peer   string
	report api.CheckReport
	err    error
}

// poll asks for a snapshot if one is due.
func (m *model) poll() tea.Cmd {
	now := m.now()
	if m.polling || m.paused() || now.Before(m.data.nextTry) || now.Sub(m.polledAt) < interval*9/10 {
		return nil
	}
	m.polling, m.polledAt = true, now
	checks := now.Sub(m.checksAt) >= checksInterval
	if checks {
		m.checksAt = now
	}
	after, source, epoch := m.data.lastLogged(), m.sources[m.source].Source, m.epoch
	started := m.data.status.Gateway.StartedAt
	asks, services := m.data.past.ask(now), m.data.offered.ask(now)
	return m.tasks.run(pollLimit, func(ctx context.Context) tea.Msg {
		msg := polledMsg{epoch: epoch}
		if msg.status, msg.err = source.Status(ctx); msg.err != nil {
			return msg
		}
		if !msg.status.Gateway.StartedAt.Equal(started) {
			after = 0 // the log of another process, which numbers its records again
		}
		msg.log, msg.logErr = source.Log(ctx, after)
		if checks {
			var r api.CheckReport
			r, msg.reportErr = source.Checks(ctx)
			msg.report = &r
		}
		msg.past = asks.fetch(ctx, source)
		if services {
			var s api.ClusterServices
			s, msg.servicesErr = source.ClusterServices(ctx, "")
			msg.services = &s
		}
		return msg
	})
}

// polled takes a snapshot. One that fails leaves the last one there, and makes the next
// wait longer.
func (m *model) polled(msg polledMsg) {
	m.polling = false
	d, now := m.data, m.now()
	if d.frozen && !d.statusAt.IsZero() {
		return // It was under way when the screen was frozen.
	}
	if msg.err != nil {
		if d.lost == nil {
			d.lostSince = now
		}
		d.lost = msg.err
		d.nextTry = now.Add(min(maxBackoff, interval<<min(m.failures, 4)))
		m.failures++
		m.checksAt = time.Time{}
		return
	}
	m.failures = 0
	restarted := !d.status.Gateway.StartedAt.Equal(msg.status.Gateway.StartedAt)
	d.took(msg.status, now)
	if d.logErr = msg.logErr; msg.logErr == nil {
		d.logged(msg.log.Records)
		d.alarms = msg.log.Alarms
	}
	if restarted {
		m.checksAt = time.Time{} // Its checks begin again.
		d.offered = offered{}
		d.past = remembered{hours: map[string]*lastHour{}}
	}
	d.past.took(msg.past)
	if msg.services != nil {
		if d.offered.err = msg.servicesErr; msg.servicesErr == nil {
			d.offered.took(*msg.services, now)
		}
	}
	if msg.report == nil {
		return
	}
	if d.reportErr = msg.reportErr; msg.reportErr == nil {
		d.report = *msg.report
	}
}

// probe runs checks now, of one peer or of all.
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
	source, epoch := m.sources[m.source].Source, m.epoch
	return tea.Batch(m.tasks.after(spinInterval, spinMsg{}), m.tasks.run(checkLimit, func(ctx context.Context) tea.Msg {
		report, err := source.Check(ctx, r)
		return checkedMsg{epoch, peer, report, err}
	}))
}

// checked takes the outcome of a run.
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

// merge takes the checks of one peer into the report, and what else came with them.
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
