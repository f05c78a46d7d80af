package gateway

import (
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// recentTunnel is for how long one reading of the tunnel serves all checks. With a
	// thousand peers a reading takes 3 ms, and each of them is checked.
	recentTunnel = 200 * time.Millisecond
	// recentSightings is for how long what was seen of a peer serves. It explains a
	// silence of seconds at least.
	recentSightings = 2 * time.Second
)

// recent keeps readings of the tunnel for a moment, so that the checks of many peers do
// not each read the state of all. It is safe for concurrent use.
type recent struct {
	mu       sync.Mutex
	at       time.Time
	snapshot tunnel.Snapshot
	seen     map[peer.PublicKey]seenOf
}

type seenOf struct {
	at        time.Time
	sightings tunnel.Sightings
}

func newRecent() *recent { return &recent{seen: map[peer.PublicKey]seenOf{}} }

// tunnel is the state of the tunnel as it was a moment ago at most. Whoever comes while it
// is read waits for it.
func (r *recent) tunnel(e *tunnel.Engine) tunnel.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= recentTunnel {
		r.snapshot, r.at = e.Snapshot(), time.Now()
	}
	return r.snapshot
}

// sightings are what was seen of a peer, as it was a moment ago at most.
func (r *recent) sightings(e *tunnel.Engine, k peer.PublicKey, ips []netip.Addr) tunnel.Sightings {
	r.mu.Lock()
	s, ok := r.seen[k]
	r.mu.Unlock()
	if ok && time.Since(s.at) < recentSightings {
		return s.sightings
	}
	s = seenOf{time.Now(), e.Sightings(k, ips)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[k] = s
	return s.sightings
}

// forget drops what is kept of a peer that is gone.
func (r *recent) forget(k peer.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, k)
}
