package paths

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Two gateways with one key do not hear each other, but peers hear both. Each start has a higher
// number than the previous one (state.Store.Boot). The older of two gateways learns of the newer
// from the answers to its probes, which peers then reject, and from hellos that it may still get. Peers
// follow the older one again when the newer has been silent for minutes.

// sayAgain is how often a later start is logged. Probes are answered several times a second.
const sayAgain = time.Minute

// clocksApart is by how much, in milliseconds, the clock of another replica's node may be ahead. A
// start's number is the larger of its clock and the last number plus one, so a number beyond that
// is false.
const clocksApart = 1_000_000

// credible reports whether a later start could have that number by now.
func credible(boot, own uint64, now time.Time) bool {
	return boot > own && boot <= max(own, uint64(max(now.UnixMilli(), 0)))+clocksApart
}

// supersession records claims of a later start. The zero value is ready to use.
type supersession struct {
	mu     sync.Mutex
	logged time.Time
	at     map[string]time.Time // when each peer said so last
}

// said records that a peer claims it.
func (s *supersession) said(by string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[string]time.Time{}
	}
	s.at[by] = at
}

// by returns when a peer claimed it last; zero if never.
func (s *supersession) by(peer string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[peer]
}

// last returns who claimed it last, and when.
func (s *supersession) last() (by string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for peer, t := range s.at {
		if t.After(at) {
			by, at = peer, t
		}
	}
	return by, at
}

// due reports whether to log it now, and notes that it was.
func (s *supersession) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.logged.IsZero() && now.Sub(s.logged) < sayAgain {
		return false
	}
	s.logged = now
	return true
}

// HeardBoot is the number of the peer's start that counts: the last one, or an earlier one that has
// outlived it. It is 0 if none was heard.
func (p *Finder) HeardBoot(of peer.PublicKey) uint64 { return p.finder.Boot(of) }

// HearsOfBoot handles a peer's word about which start of ours it has heard. It does not block.
func (p *Finder) HearsOfBoot(from peer.PublicKey, boot uint64) {
	m := p.peers.Load().ByKey(from)
	if m == nil || !credible(boot, p.boot, time.Now()) {
		return
	}
	p.superseded.said(m.Name, time.Now())
	if p.superseded.due(time.Now()) {
		p.log.Warn("a second gateway is running with this one's key; stop one of them",
			"peer", m.Name, "boot", boot, "own", p.boot)
	}
	if p.o.Tell.Superseded != nil {
		p.o.Tell.Superseded(m.Name, boot)
	}
}
