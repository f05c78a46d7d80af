package tunnel

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Snapshot is the state of the tunnel at one moment.
type Snapshot struct {
	// ListenPort is the UDP port in use.
	ListenPort uint16
	Peers      map[peer.PublicKey]PeerStats
}

// PeerStats is how one peer fares.
type PeerStats struct {
	peer.Stats
	Name string
	// Proven is whether there was a session with Endpoint. Then it is worth keeping for
	// the next start, where it belongs among the peer's endpoints.
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

// Snapshot reads the counters. With a thousand peers it takes milliseconds.
func (e *Engine) Snapshot() Snapshot {
	state, err := e.state()
	if err != nil { // The device's answer could not be read: there are no counters.
		e.log.Warn("reading the tunnel's state failed", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe(time.Now(), state)
	s := Snapshot{ListenPort: e.bind.Port(), Peers: make(map[peer.PublicKey]PeerStats, len(e.peers))}
	for key, p := range e.peers {
		s.Peers[key] = p.stats()
	}
	return s
}

func (p *peerState) stats() PeerStats {
	w := &p.watch
	s := PeerStats{
		Stats: peer.Stats{
			Endpoint:      w.proven,
			LastHandshake: w.lastHandshake,
			RxBytes:       w.rx,
			TxBytes:       w.tx,
		},
		Name:     p.config.Name,
		Proven:   w.proven.IsValid(),
		LastRx:   w.heardAt,
		Attempts: w.attempts,
		NextTry:  w.nextTry,
	}
	if !s.Proven && len(p.config.Endpoints) > 0 {
		s.Endpoint = unmapped(p.config.Endpoints[0])
	}
	return s
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
