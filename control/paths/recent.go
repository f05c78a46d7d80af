package paths

import (
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// recentSightings is how long sightings of a peer are reused. They explain silences of several
// seconds.
const recentSightings = 2 * time.Second

// recent caches the sightings of peers, so that the checks of many peers do not each read them all.
// It is safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	seen map[peer.PublicKey]seenOf
}

type seenOf struct {
	at        time.Time
	sightings tunnel.Sightings
}

func newRecent() *recent { return &recent{seen: map[peer.PublicKey]seenOf{}} }

// sightings returns what was seen of a peer, as of a moment ago at most.
func (r *recent) sightings(e Tunnel, k peer.PublicKey, ips []netip.Addr) tunnel.Sightings {
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

// forget drops a removed peer.
func (r *recent) forget(k peer.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, k)
}
