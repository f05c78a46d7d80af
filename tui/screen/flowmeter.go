package screen

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// maxStep is the longest time between two snapshots over which a flow's rate is shown. The view is
// not drawn while another is open, and an average over minutes would pass for the current rate.
const maxStep = 5 * time.Second

// meter holds the counters of a flow in the last snapshot, and its rates until then in bytes per
// second.
type meter struct {
	rxBytes, txBytes uint64
	rx, tx           float64
	known            bool
}

// meters computes rates from the counters of two snapshots. The zero value has seen none.
type meters struct {
	at    time.Time
	flows map[string]meter
}

// take processes the snapshot, unless it has done so.
func (m *meters) take(d *data) {
	if d.statusAt.Equal(m.at) {
		return
	}
	step := d.statusAt.Sub(m.at)
	told := step > 0 && step <= maxStep
	before := m.flows
	since := m.at
	m.at, m.flows = d.statusAt, make(map[string]meter, len(before))
	for i := range d.status.Peers {
		p := &d.status.Peers[i]
		for j := range p.Flows {
			f := &p.Flows[j]
			id := flowID(p, f)
			for n := 2; ; n++ { // as the view identifies them
				if _, taken := m.flows[id]; !taken {
					break
				}
				id = fmt.Sprintf("%s#%d", flowID(p, f), n)
			}
			last, seen := before[id]
			if !seen && !f.StartedAt.After(since) {
				m.flows[id] = meter{rxBytes: f.RxBytes, txBytes: f.TxBytes}
				continue // It was open before, with unknown counters.
			}
			m.flows[id] = metered(f, last, step, told)
		}
	}
}

// metered returns the meter after a step. Counters only decrease by a restart, and then the rate is
// unknown.
func metered(f *api.Flow, last meter, step time.Duration, told bool) meter {
	now := meter{rxBytes: f.RxBytes, txBytes: f.TxBytes}
	if !told || f.RxBytes < last.rxBytes || f.TxBytes < last.txBytes {
		return now
	}
	now.known = true
	now.rx = float64(f.RxBytes-last.rxBytes) / step.Seconds()
	now.tx = float64(f.TxBytes-last.txBytes) / step.Seconds()
	return now
}

// of returns the meter of a flow, and whether its rates are known.
func (m *meters) of(id string) (meter, bool) {
	f := m.flows[id]
	return f, f.known
}
