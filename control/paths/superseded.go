package paths

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Two gateways with one key do not hear each other, but peers hear both. Each start has a
// higher number than the one before (state.Store.Boot), and the older of two is told that of
// the newer: at once by the answers to its probes, which peers refuse from then on, and in the
// hellos that it may still be given.

// sayAgain is how often it is logged that there is a later start: probes are asked several
// times a second.
const sayAgain = time.Minute

// clocksApart is by how much, in milliseconds, the clock of another replica's node may be ahead. A
// later start has the number that its clock gives, or the one after the last: a number further
// on than that is of no start.
const clocksApart = 1_000_000

// credible reports whether a start after our own may have that number by now.
func credible(boot, own uint64, now time.Time) bool {
	return boot > own && boot <= max(own, uint64(max(now.UnixMilli(), 0)))+clocksApart
}

// supersession is what was said of it. The zero value is ready.
type supersession struct {
	mu     sync.Mutex
	logged time.Time
	by     string // the peer that said so last, and when
	at     time.Time
}

// said notes that a peer says so.
func (s *supersession) said(by string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by, s.at = by, at
}

// last is who said so last, and when.
func (s *supersession) last() (by string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by, s.at
}

// due reports whether it is to be logged, and notes that it is.
func (s *supersession) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.logged.IsZero() && now.Sub(s.logged) < sayAgain {
		return false
	}
	s.logged = now
	return true
}

// HeardBoot is the highest number of a start that was heard of a peer; 0 when none was.
func (p *Finder) HeardBoot(of peer.PublicKey) uint64 {
	boots := p.finder.Sight(of).Boots
	if len(boots) == 0 {
		return 0
	}
	return slices.Max(boots) // the last may be one that came back
}

// HearsOfBoot takes what a peer says that it has heard of our starts. It does not block.
func (p *Finder) HearsOfBoot(from peer.PublicKey, boot uint64) {
	m := p.peers.Load().ByKey(from)
	if m == nil || !credible(boot, p.boot, time.Now()) {
		return
	}
	p.superseded.said(m.Name, time.Now())
	if p.superseded.due(time.Now()) {
		p.log.Warn("a peer has heard a later start of a gateway with this one's key: one of the two has to be stopped",
			"peer", m.Name, "boot", boot, "own", p.boot)
	}
	if p.o.Tell.Superseded != nil {
		p.o.Tell.Superseded(m.Name, boot)
	}
}
