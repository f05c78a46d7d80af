package tunnel

import (
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Snapshot is the state of the tunnel at one moment.
type Snapshot struct {
	// At is when the counters were read.
	At time.Time
	// ListenPort is the UDP port in use.
	ListenPort uint16
	Peers      map[peer.PublicKey]PeerStats
}

// Bytes are those of all peers, in both directions.
func (s Snapshot) Bytes() (sum uint64) {
	for _, p := range s.Peers {
		sum += p.RxBytes + p.TxBytes
	}
	return sum
}

// PeerStats is how one peer fares.
type PeerStats struct {
	peer.Stats
	Name string
	// Path is the one in use, as far as is known; Endpoint is its far end.
	Path peer.Path
	// Proven is whether there was a session with Endpoint, or with a managed peer at all.
	// Then it is worth keeping for the next start, where it belongs among the peer's
	// endpoints.
	Proven bool
	// LastRx is when the peer last completed a handshake or sent within a session,
	// accurate to a second. Its initiations alone do not count: they say nothing of the
	// preshared key, nor whether our answers arrive.
	LastRx time.Time
	// Unanswered is since when what was sent has wanted an answer; zero when nothing does.
	Unanswered time.Time
	// Attempts counts initiations since then without an answer, repetitions included.
	Attempts int
	// NextTry is when the next one begins; zero when none is planned.
	NextTry time.Time
}

// patience is how many times as old a reading may be for [Engine.Peer] and [Engine.Read]: of
// a thousand peers 2.5 s, so that the one that is made every two seconds in any case does.
const patience = 5

// Peer is how one peer fares; false when there is none with the key. Of many peers it is as
// of 2.5 s ago at most: it is for whoever looks at one after the other.
func (e *Engine) Peer(key peer.PublicKey) (PeerStats, bool) {
	r, err := e.readings.notOlder(patience)
	if err != nil { // The device's answer could not be read: there are no counters.
		e.log.Warn("reading the tunnel's state failed", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observeNew(time.Now(), r)
	p := e.peers[key]
	if p == nil {
		return PeerStats{}, false
	}
	return p.stats(e.inUseLocked(p)), true
}

// Snapshot reads the counters. Of many peers they are as of At, half a second ago at most:
// reading those of a thousand takes milliseconds.
func (e *Engine) Snapshot() Snapshot {
	var s Snapshot
	e.readInto(&s, 1)
	return s
}

// Read is Snapshot, for whoever looks every [Engine.LookEvery], into one that was taken
// before, whose map is used again. At is 2.5 s ago at most, as of [Engine.Peer], and may be
// that of the last.
func (e *Engine) Read(s *Snapshot) { e.readInto(s, patience) }

// LookEvery is how often the counters are read in any case: every second, and of a thousand
// peers every two. Who looks more often learns nothing.
func (e *Engine) LookEvery() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return lookEvery(len(e.peers))
}

func (e *Engine) readInto(s *Snapshot, times int) {
	r, err := e.readings.notOlder(times)
	if err != nil { // The device's answer could not be read: there are no counters.
		e.log.Warn("reading the tunnel's state failed", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observeNew(time.Now(), r)
	s.At, s.ListenPort = r.at, e.bind.Port()
	clear(s.Peers)
	if s.Peers == nil {
		s.Peers = make(map[peer.PublicKey]PeerStats, len(e.peers))
	}
	for key, p := range e.peers {
		s.Peers[key] = p.stats(e.inUseLocked(p))
	}
}

// inUseLocked is the path in use: where the underlay sends a managed peer's data, else
// the one that was proven, else the first to be tried. Engine.mu is held.
func (e *Engine) inUseLocked(p *peerState) peer.Path {
	switch {
	case p.config.Managed:
		return e.bind.PathTo(p.id)
	case p.machine.Proven.IsValid():
		return p.machine.Proven
	case len(p.config.Endpoints) > 0:
		return peer.Direct(p.config.Endpoints[0])
	}
	return peer.Path{}
}

func (p *peerState) stats(path peer.Path) PeerStats {
	m := &p.machine
	return PeerStats{
		Stats: peer.Stats{
			Endpoint:      path.Remote,
			LastHandshake: m.LastHandshake,
			RxBytes:       m.Rx,
			TxBytes:       m.Tx,
		},
		Name:       p.config.Name,
		Path:       path,
		Proven:     m.Proven.IsValid(),
		LastRx:     m.HeardAt,
		Unanswered: m.Unanswered(),
		Attempts:   m.Attempts,
		NextTry:    m.NextTry,
	}
}
