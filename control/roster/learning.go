package roster

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// RememberEvery is how often the announcements and hellos of peers are stored.
const RememberEvery = 30 * time.Second

// learnBurst is how many changes of a peer are stored at once: those of a peer that connects, and
// of an operator who experiments.
const learnBurst = 4

// learning limits how often data about a peer that can be learned again is stored: a burst at once,
// then the latest once in RememberEvery. Each write stores what is known about all peers, and the
// peer decides how often there is one. It is counted by its name, because it chooses its keys, too.
// The zero value is ready to use and safe for concurrent use.
type learning struct {
	mu    sync.Mutex
	peers map[string]*rate.Limiter
}

// may reports whether a change of a peer may be stored now, and counts it.
func (l *learning) may(name string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers == nil {
		l.peers = map[string]*rate.Limiter{}
	}
	if l.peers[name] == nil {
		l.peers[name] = rate.NewLimiter(rate.Every(RememberEvery), learnBurst)
	}
	return l.peers[name].AllowN(now, 1)
}

// drop forgets a peer.
func (l *learning) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.peers, name)
}

// MayStore reports whether something that was learned about a peer, and can be learned again, may
// be stored now, and counts it.
func (reg *Registry) MayStore(m *Member, now time.Time) bool { return reg.learning.may(m.Name, now) }
