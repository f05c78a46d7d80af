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

// Bytes returns the bytes of all peers in both directions.
func (s Snapshot) Bytes() (sum uint64) {
	for _, p := range s.Peers {
		sum += p.RxBytes + p.TxBytes
	}
	return sum
}

// PeerStats is the state of one peer.
type PeerStats struct {
	peer.Stats
	Name string
	// Path is the one in use, as far as known; Endpoint is its far end.
	Path peer.Path
	// Proven is whether there was a session with Endpoint, or with a managed peer on any path. Then
	// the endpoint is worth storing for the next start, as one of the peer's endpoints.
	Proven bool
	// LastRx is when the peer last completed a handshake or sent in a session, accurate to a
	// second. Initiations alone do not count: they prove neither the preshared key nor that our
	// answers arrive.
	LastRx time.Time
	// Unanswered is since when a packet has waited for an answer; zero if none does.
	Unanswered time.Time
	// Attempts counts unanswered initiations since then, retransmissions included.
	Attempts int
	// NextTry is when the next one begins; zero if none is planned.
	NextTry time.Time
}

// patience is how many times the usual age a reading may have for [Engine.Peer] and [Engine.Read].
// With a thousand peers that is 2.5 s, so the regular reading every two seconds is enough.
const patience = 5

// Peer returns the state of one peer; false if there is none with the key. With many peers it may
// be 2.5 s old. It is meant for callers that go through the peers one by one.
func (e *Engine) Peer(key peer.PublicKey) (PeerStats, bool) {
	r, err := e.readings.notOlder(patience)
	if err != nil { // the device's answer could not be read: no counters
		e.log.Warn("failed to read the tunnel's state", "error", err)
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

// Snapshot reads the counters. With many peers it may be half a second old, as At says: reading
// those of a thousand takes milliseconds.
func (e *Engine) Snapshot() Snapshot {
	var s Snapshot
	e.readInto(&s, 1)
	return s
}

// Read is Snapshot for callers that look every [Engine.LookEvery]. It reuses the map of an earlier
// snapshot. At may be 2.5 s old, as in [Engine.Peer], and may equal that of the last.
func (e *Engine) Read(s *Snapshot) { e.readInto(s, patience) }

// LookEvery is how often the counters are read in any case: every second, or every two with a
// thousand peers. Looking more often shows nothing new.
func (e *Engine) LookEvery() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return lookEvery(len(e.peers))
}

func (e *Engine) readInto(s *Snapshot, times int) {
	r, err := e.readings.notOlder(times)
	if err != nil { // the device's answer could not be read: no counters
		e.log.Warn("failed to read the tunnel's state", "error", err)
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

// inUseLocked returns the path in use: where the underlay sends a managed peer's data, else the
// proven one, else the first to try. Engine.mu is held.
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
