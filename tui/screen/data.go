package screen

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// maxLog bounds the number of log records kept.
const maxLog = 2000

// data is what all views draw. Only the program's goroutine changes it.
type data struct {
	// now is the time from which ages are computed; it does not advance while frozen.
	now time.Time

	// status is the last snapshot and statusAt when it arrived, zero before the first.
	status   api.Status
	statusAt time.Time
	// lost says why the gateway does not answer, since when, and when it is tried again; nil while
	// it answers.
	lost      error
	lostSince time.Time
	nextTry   time.Time

	// polling: a request for a snapshot is in progress. polledAt and checksAt are when one, and the
	// results of the checks, were last requested, and failures counts consecutive failures.
	polling            bool
	polledAt, checksAt time.Time
	failures           int

	// traffic holds the samples of each peer by its public key.
	traffic map[string]*ring

	// report is the last results of the checks, reportErr why there are none.
	report    api.CheckReport
	reportErr error
	// checking is what is being checked now: a peer's name, or allPeers; "" is nothing.
	checking string

	// log is sorted by Seq, the newest last; logErr says why there is none.
	log    []api.LogRecord
	logErr error
	// alarms are the gateway's, the most recently raised last.
	alarms []api.Alarm

	// undo is the last :allow made here, nil once it is reverted.
	undo *allowed

	past remembered
	// offered are the services of clusters; imported those of the selected peer, for its path.
	offered  offered
	imported imported

	filter filter
	frozen bool
	wide   bool
	paint  cell.Paint
	// graph is how charts are drawn: braille, block or ascii.
	graph string

	// width and height are the whole terminal's, in cells.
	width, height int

	// leads maps the title of a group in peers to the peer that it represents.
	leads map[string]string
	// count, rates, the worst fault and the number of others cover all peers of the snapshot.
	count  map[cell.Standing]int
	rx, tx float64
	worst  cell.Named
	others int

	// Selections by identity: a peer's public key, a check, flow or service as their views identify
	// them. They survive refreshes, sorting and filters.
	peers, checks, flows, services cursor
}

// allPeers is a check of everything.
const allPeers = "*"

func newData(now time.Time) *data {
	return &data{now: now, traffic: map[string]*ring{}, past: remembered{hours: map[string]*lastHour{}}, graph: graphBraille, peers: cursor{leading: true}, checks: cursor{leading: true}, services: cursor{leading: true}}
}

// Styles of charts.
const (
	graphBraille = "braille"
	graphBlock   = "block"
	graphASCII   = "ascii"
)

func graphs() []string { return []string{graphBraille, graphBlock, graphASCII} }

// peer returns the selected peer, or the first of the selected group; nil if there is none.
func (d *data) peer() *api.PeerStatus {
	if i := d.peerIndex(); i >= 0 {
		return &d.status.Peers[i]
	}
	return nil
}

// peerIndex returns the index of the selected peer among all, or -1.
func (d *data) peerIndex() int {
	id := cmp.Or(d.leads[d.peers.id], d.peers.id)
	for i := range d.status.Peers {
		if peerID(&d.status.Peers[i]) == id {
			return i
		}
	}
	return -1
}

// selected returns the selected peer, or the first if none is selected or it is gone; nil if there
// are none.
func (d *data) selected() *api.PeerStatus {
	p := d.peer()
	if p == nil && len(d.status.Peers) > 0 {
		p = &d.status.Peers[0]
		d.peers.id = peerID(p)
	}
	return p
}

// stale reports whether the shown gateway no longer answers.
func (d *data) stale() bool { return d.lost != nil && !d.statusAt.IsZero() }

// greyed returns a line without its colours, since they may be outdated.
func (d *data) greyed(line string) string { return d.paint.Text(cell.Quiet, ansi.Strip(line)) }

// peerID returns a peer's identity: its key, or its name if it has none.
func peerID(p *api.PeerStatus) string {
	if p.PublicKey != "" {
		return p.PublicKey
	}
	return p.Name
}

// samples returns a peer's samples since a time, the oldest first. The ring still owns them.
func (d *data) samples(id string, since time.Time) []sample {
	r := d.traffic[id]
	if r == nil {
		return nil
	}
	return r.since(since)
}

// took stores a snapshot.
func (d *data) took(s api.Status, at time.Time) {
	s.Peers = slices.Clone(s.Peers) // They belong to the source.
	slices.SortStableFunc(s.Peers, func(a, b api.PeerStatus) int { return cell.CompareNames(a.Name, b.Name) })
	d.status, d.statusAt = s, at
	d.lost, d.lostSince, d.nextTry = nil, time.Time{}, time.Time{}
	d.count, d.rx, d.tx = map[cell.Standing]int{}, 0, 0
	d.worst, d.others = cell.Worst(&s)
	for i := range s.Peers {
		p := &s.Peers[i]
		r := d.traffic[peerID(p)]
		if r == nil {
			r = &ring{}
			d.traffic[peerID(p)] = r
		}
		r.add(at, p)
		d.count[cell.StandingOf(p).Counted()]++
		d.rx, d.tx = d.rx+p.RxBytesPerSecond, d.tx+p.TxBytesPerSecond
	}
	maps.DeleteFunc(d.traffic, func(_ string, r *ring) bool { return len(r.since(at.Add(-keep))) == 0 })
}

// logged adds records that follow the stored ones. A restarted gateway counts from 1 again, and its
// records replace the old ones.
func (d *data) logged(records []api.LogRecord) {
	for _, r := range records {
		if n := len(d.log); n > 0 && r.Seq <= d.log[n-1].Seq {
			if r.Seq > d.log[0].Seq || r.Time.Before(d.log[n-1].Time) {
				continue // already stored
			}
			d.log = nil
		}
		d.log = append(d.log, r)
	}
	if n := len(d.log) - maxLog; n > 0 {
		d.log = slices.Delete(d.log, 0, n)
	}
}

// lastLogged returns the sequence number after which records are requested.
func (d *data) lastLogged() uint64 {
	if len(d.log) == 0 {
		return 0
	}
	return d.log[len(d.log)-1].Seq
}
