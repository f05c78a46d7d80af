package probe

import (
	"errors"
	"fmt"
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// SetPeers replaces the peers, by difference: one that stays as it was keeps its key ids,
// open transactions and memory of what it sent. Its error, joined of one for each, names
// the peers that were refused (our own key, a key named twice, a point of low order, all
// [ErrKey]); the others are set.
func (p *Prober) SetPeers(peers []Peer) error {
	p.setting.Lock()
	defer p.setting.Unlock()
	made, errs := p.prepare(peers)
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, old := range p.peers {
		if old.wished == p.wish {
			continue
		}
		p.endLocked(old)
		if s := made[k]; s != nil { // Another preshared key, but the same gateway.
			s.heard(old)
			p.refuseAll(old)
			continue
		}
		p.gone = append(p.gone, old)
		if len(p.gone) > maxGone {
			p.refuseAll(p.gone[0])
			p.gone = slices.Delete(p.gone, 0, 1)
		}
	}
	for k, s := range made {
		if i := slices.IndexFunc(p.gone, func(g *peerState) bool { return g.Key == k }); i >= 0 {
			s.heard(p.gone[i])
			p.refuseAll(p.gone[i])
			p.gone = slices.Delete(p.gone, i, i+1)
		}
		p.peers[k] = s
		s.out.counter = p.floor
		p.admit(s, s.in.initial)
	}
	return errors.Join(errs...)
}

// prepare makes the states of the peers that have none yet, outside the lock since the
// multiplication takes a while, and marks those that stay. setting is held, without which
// nobody changes who the peers are.
func (p *Prober) prepare(peers []Peer) (made map[peer.PublicKey]*peerState, errs []error) {
	made = map[peer.PublicKey]*peerState{}
	p.wish++
	for _, c := range peers {
		s := p.peers[c.Key]
		if made[c.Key] != nil || s != nil && s.wished == p.wish {
			errs = append(errs, fmt.Errorf("set peers: %w: %s is named twice", ErrKey, c.Key))
			continue
		}
		if s != nil && s.PresharedKey.Equal(c.PresharedKey) {
			s.wished = p.wish
			continue
		}
		n, err := p.newState(c)
		if err != nil {
			errs = append(errs, fmt.Errorf("set peers: %w", err))
			continue
		}
		n.wished = p.wish
		made[c.Key] = n
	}
	return made, errs
}

func (p *Prober) newState(c Peer) (*peerState, error) {
	sched, err := newSchedule(p.own, c)
	if err != nil {
		return nil, err
	}
	s := &peerState{Peer: c, schedule: sched}
	s.in.initial = sched.derive(false, nil)
	s.out.initial = sched.derive(true, nil)
	s.out.current = sched.generation(true, p.bootID, 0)
	return s, nil
}

// heard takes over what was seen of the same gateway's requests before.
func (s *peerState) heard(old *peerState) {
	s.in.heard, s.in.boot, s.in.window, s.in.before = old.in.heard, old.in.boot, old.in.window, old.in.before
}

// endLocked ends what is asked of a peer. Its requests are recognized still.
func (p *Prober) endLocked(s *peerState) {
	delete(p.peers, s.Key)
	p.floor = max(p.floor, s.out.counter)
	for _, tx := range s.out.pending {
		p.forget(tx, s)
	}
}

// refuseAll has none of a peer's requests recognized any more. It needs the lock.
func (p *Prober) refuseAll(s *peerState) {
	p.accept(s, [3]*keys{})
	p.refuse(s.in.initial)
}

// SetBootID tells the boot id that a peer stated inside the tunnel, where nothing can be
// replayed. It counts even if it is lower than what the peer's probes said before, as
// after the peer lost its state. An unknown peer is no matter.
func (p *Prober) SetBootID(k peer.PublicKey, bootID uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.peers[k]
	if s == nil || s.in.heard && s.in.boot == bootID {
		return
	}
	s.in.restart(bootID)
	p.accept(s, [3]*keys{})
	s.out.forgotten()
}
