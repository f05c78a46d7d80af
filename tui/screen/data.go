package screen

import (
	"cmp"
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// maxLog bounds the log records that are kept, in records.
const maxLog = 2000

// data is what all views draw. It is changed by the program's goroutine only.
type data struct {
	// now is the moment that ages are counted to; it stands still while frozen.
	now time.Time

	// status is the last snapshot and statusAt when it came, zero before the first.
	status   api.Status
	statusAt time.Time
	// lost says why the gateway does not answer, since when, and when it is asked again;
	// nil while it does.
	lost      error
	lostSince time.Time
	nextTry   time.Time

	// polling: a snapshot is under way. polledAt and checksAt are when one, and the results of the checks,
	// were asked for last, and failures how often in a row there was no answer.
	polling            bool
	polledAt, checksAt time.Time
	failures           int

	// traffic has the samples of each peer by its public key.
	traffic map[string]*ring

	// report has the last results of the checks, reportErr why there are none.
	report    api.CheckReport
	reportErr error
	// checking is what is being checked now: a peer's name, or allPeers; "" is nothing.
	checking string

	// log is sorted by Seq, the newest last; logErr says why there is none.
	log    []api.LogRecord
	logErr error
	// alarms are those of the gateway, the one that was raised last at the end.
	alarms []api.Alarm

	// undo is the last :allow that was done here, nil once it was taken back.
	undo *allowed

	past remembered
	// offered are the services of clusters; imported those of the selected peer, for its way.
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

	// leads are the peers that titles of groups stand for, by what the titles are in peers.
	leads map[string]string
	// count, rates, the worst fault and the number of others are of all peers of the snapshot.
	count  map[cell.Standing]int
	rx, tx float64
	worst  cell.Named
	others int

	// Selections by identity: a peer's public key, check, flow and service as their views name
	// them. They outlive refreshes, sorting and filters.
	peers, checks, flows, services cursor
}

// allPeers stands for a check of everything.
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

// peer is the selected peer, or the first of the selected group; nil when there is none.
func (d *data) peer() *api.PeerStatus {
	if i := d.peerIndex(); i >= 0 {
		return &d.status.Peers[i]
	}
	return nil
}

// peerIndex is where the selected peer is among all; -1 when there is none.
func (d *data) peerIndex() int {
	id := cmp.Or(d.leads[d.peers.id], d.peers.id)
	for i := range d.status.Peers {
		if peerID(&d.status.Peers[i]) == id {
			return i
		}
	}
	return -1
}

// selected is the selected peer, or the first where nobody has chosen yet, or it is gone; nil when there
// is none.
func (d *data) selected() *api.PeerStatus {
	p := d.peer()
	if p == nil && len(d.status.Peers) > 0 {
		p = &d.status.Peers[0]
		d.peers.id = peerID(p)
	}
	return p
}

// stale reports whether what is shown is of a gateway that does not answer any more.
func (d *data) stale() bool { return d.lost != nil && !d.statusAt.IsZero() }

// greyed is a line without its colours: nobody knows whether they still hold.
func (d *data) greyed(line string) string { return d.paint.Text(cell.Quiet, ansi.Strip(line)) }

// peerID is a peer's identity: its key, or its name as long as it has none.
func peerID(p *api.PeerStatus) string {
	if p.PublicKey != "" {
		return p.PublicKey
	}
	return p.Name
}

// samples are a peer's since a moment, the oldest first. They stay the ring's.
func (d *data) samples(id string, since time.Time) []sample {
	r := d.traffic[id]
	if r == nil {
		return nil
	}
	return r.since(since)
}

// took takes a snapshot.
func (d *data) took(s api.Status, at time.Time) {
	s.Peers = slices.Clone(s.Peers) // They are the source's.
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
	for id, r := range d.traffic {
		if len(r.since(at.Add(-keep))) == 0 {
			delete(d.traffic, id)
		}
	}
}

// logged adds records that follow those here. A gateway that restarted counts from 1
// again, and its records replace the old ones.
func (d *data) logged(records []api.LogRecord) {
	for _, r := range records {
		if n := len(d.log); n > 0 && r.Seq <= d.log[n-1].Seq {
			if r.Seq > d.log[0].Seq || r.Time.Before(d.log[n-1].Time) {
				continue // one that is here already
			}
			d.log = nil
		}
		d.log = append(d.log, r)
	}
	if n := len(d.log) - maxLog; n > 0 {
		d.log = slices.Delete(d.log, 0, n)
	}
}

// lastLogged is the sequence number after which records are asked for.
func (d *data) lastLogged() uint64 {
	if len(d.log) == 0 {
		return 0
	}
	return d.log[len(d.log)-1].Seq
}
