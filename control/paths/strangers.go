package paths

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// strangersKept bounds the stored keys. Whoever knows our public key can make any number, so a
	// new one takes no other's place.
	strangersKept = 8
	// strangerLife is how long a key is kept that no longer dials: more than the 49 s that may pass
	// between two initiations.
	strangerLife = 2 * time.Minute
	// strangersEvery is how often the initiations are read.
	strangersEvery = 5 * time.Second
)

// strangers are the keys of no peer that dial this gateway. The zero value is ready to use.
type strangers struct {
	mu   sync.Mutex
	read time.Time
	list []stranger // by first
}

type stranger struct {
	key         peer.PublicKey
	from        string
	first, last time.Time
}

// due reports whether to read the initiations again, and notes that.
func (s *strangers) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.read.IsZero() && now.Sub(s.read) < strangersEvery {
		return false
	}
	s.read = now
	return true
}

// saw adds what has arrived until now.
func (s *strangers) saw(sights []tunnel.KeySight, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range sights {
		if now.Sub(in.At) >= strangerLife {
			continue
		}
		i := slices.IndexFunc(s.list, func(k stranger) bool { return k.key == in.Key })
		if i < 0 && len(s.list) < strangersKept {
			i, s.list = len(s.list), append(s.list, stranger{key: in.Key, first: in.At})
		}
		if i >= 0 {
			s.list[i].from, s.list[i].last = in.From.String(), in.At
		}
	}
}

// known returns those that still dial and are not peers by now.
func (s *strangers) known(isPeer func(peer.PublicKey) bool, now time.Time) []stranger {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(k stranger) bool { return isPeer(k.key) || now.Sub(k.last) >= strangerLife })
	return slices.Clone(s.list)
}

// unknownKeys returns the keys of no peer that dial this gateway.
func (p *Finder) unknownKeys(now time.Time) (out []check.Stranger) {
	if p.strangers.due(now) {
		p.strangers.saw(p.tunnel.Strangers(), now)
	}
	peers := p.peers.Load()
	for _, s := range p.strangers.known(func(k peer.PublicKey) bool { return peers.ByKey(k) != nil }, now) {
		out = append(out, check.Stranger{Fingerprint: peer.Fingerprint(s.key), From: s.from, First: s.first, Last: s.last, Removed: p.o.Store.WasRemoved(s.key)})
	}
	return out
}
