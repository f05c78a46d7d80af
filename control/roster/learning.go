package roster

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/tunnel/peer"
)

// RememberEvery is how often what peers announce and say of themselves is stored.
const RememberEvery = 30 * time.Second

// learnBurst is how many changes of a peer are stored at once: those of one that comes, and of
// an operator who tries something.
const learnBurst = 4

// learning paces what is stored of each peer and can be learned again: some changes at once, and
// then one in RememberEvery, as it is by then. Each costs a write of what is known of all peers,
// and how often there are any is up to the peer. The zero value is ready, and is safe for
// concurrent use.
type learning struct {
	mu    sync.Mutex
	peers map[peer.PublicKey]*rate.Limiter
}

// may reports whether a change of a peer may be stored now, and counts it.
func (l *learning) may(k peer.PublicKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers == nil {
		l.peers = map[peer.PublicKey]*rate.Limiter{}
	}
	if l.peers[k] == nil {
		l.peers[k] = rate.NewLimiter(rate.Every(RememberEvery), learnBurst)
	}
	return l.peers[k].AllowN(now, 1)
}

// drop forgets a peer.
func (l *learning) drop(k peer.PublicKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.peers, k)
}

// MayStore reports whether something may be stored now that was learned of a peer and can be
// learned again, and counts it.
func (reg *Registry) MayStore(k peer.PublicKey, now time.Time) bool { return reg.learning.may(k, now) }
