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
	// Attempts counts handshakes begun since then without an answer.
	Attempts int
	// NextTry is when the next one begins; zero when none is planned.
	NextTry time.Time
}

// Snapshot reads the counters. Of many peers they are as of At, half a second ago at most:
// reading those of a thousand takes milliseconds.
func (e *Engine) Snapshot() Snapshot {
	r, err := e.readings.lately()
	if err != nil { // The device's answer could not be read: there are no counters.
		e.log.Warn("reading the tunnel's state failed", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observeNew(time.Now(), r)
	s := Snapshot{At: r.at, ListenPort: e.bind.Port(), Peers: make(map[peer.PublicKey]PeerStats, len(e.peers))}
	for key, p := range e.peers {
		s.Peers[key] = p.stats(e.inUseLocked(key, p))
	}
	return s
}

// inUseLocked is the path in use: where the underlay sends a managed peer's data, else
// the one that was proven, else the first to be tried. Engine.mu is held.
func (e *Engine) inUseLocked(key peer.PublicKey, p *peerState) peer.Path {
	switch {
	case p.config.Managed:
		return e.bind.PathTo(endpointID(key))
	case p.watch.proven.IsValid():
		return p.watch.proven
	case len(p.config.Endpoints) > 0:
		return peer.Direct(p.config.Endpoints[0])
	}
	return peer.Path{}
}

func (p *peerState) stats(path peer.Path) PeerStats {
	w := &p.watch
	return PeerStats{
		Stats: peer.Stats{
			Endpoint:      path.Remote,
			LastHandshake: w.lastHandshake,
			RxBytes:       w.rx,
			TxBytes:       w.tx,
		},
		Name:     p.config.Name,
		Path:     path,
		Proven:   w.proven.IsValid(),
		LastRx:   w.heardAt,
		Attempts: w.attempts,
		NextTry:  w.nextTry,
	}
}
