package probe

import (
	"errors"
	"fmt"
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// SetPeers replaces the peers, by difference: an unchanged peer keeps its key ids, open
// transactions and memory of sent requests. The error joins one for each peer that was refused
// (our own key, a duplicate key, a low-order point, all [ErrKey]); the others are set.
func (p *Prober) SetPeers(peers []Peer) error {
	p.setting.Lock()
	defer p.setting.Unlock()
	made, errs := p.prepare(peers)
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, old := range p.peers {
		if old.round == p.round {
			continue
		}
		p.endLocked(old)
		if s := made[k]; s != nil { // another preshared key, but the same gateway
			s.heard(old)
			p.refuseAll(old)
			continue
		}
		p.former = append(p.former, old)
		if len(p.former) > maxGone {
			p.refuseAll(p.former[0])
			p.former = slices.Delete(p.former, 0, 1)
		}
	}
	for k, s := range made {
		if i := slices.IndexFunc(p.former, func(g *peerState) bool { return g.Key == k }); i >= 0 {
			s.heard(p.former[i])
			p.refuseAll(p.former[i])
			p.former = slices.Delete(p.former, i, i+1)
		}
		p.peers[k] = s
		s.out.counter = p.floor
		p.admit(s, s.in.initial)
	}
	return errors.Join(errs...)
}

// prepare creates the states of new peers and marks those that stay. It does not hold the lock,
// since the multiplication takes a while. setting is held, so the set of peers does not change
// meanwhile.
func (p *Prober) prepare(peers []Peer) (made map[peer.PublicKey]*peerState, errs []error) {
	made = map[peer.PublicKey]*peerState{}
	p.round++
	for _, c := range peers {
		s := p.peers[c.Key]
		if made[c.Key] != nil || s != nil && s.round == p.round {
			errs = append(errs, fmt.Errorf("set peers: %w: %s is named twice", ErrKey, c.Key))
			continue
		}
		if s != nil && s.PresharedKey.Equal(c.PresharedKey) {
			s.round = p.round
			continue
		}
		n, err := p.newState(c)
		if err != nil {
			errs = append(errs, fmt.Errorf("set peers: %w", err))
			continue
		}
		n.round = p.round
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

// heard copies what was seen of the same gateway's earlier requests.
func (s *peerState) heard(old *peerState) {
	s.in.heard, s.in.boot, s.in.window, s.in.previous = old.in.heard, old.in.boot, old.in.window, slices.Clone(old.in.previous)
}

// endLocked ends our transactions with a peer. Its requests are still recognised.
func (p *Prober) endLocked(s *peerState) {
	delete(p.peers, s.Key)
	p.floor = max(p.floor, s.out.counter)
	for _, tx := range s.out.pending {
		p.forget(tx, s)
	}
}

// refuseAll stops recognising a peer's requests. The lock is held.
func (p *Prober) refuseAll(s *peerState) {
	p.accept(s, [3]*keys{})
	p.refuse(s.in.initial)
}

// BootID returns the boot id of the peer whose requests are accepted; 0 if none is known.
func (p *Prober) BootID(k peer.PublicKey) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.peers[k]; s != nil {
		return s.in.boot
	}
	return 0
}

// SetBootID sets the boot id that a peer stated inside the tunnel, where nothing can be replayed,
// or that of an earlier start ([ReasonTwoLives]) when the later one is silent. It replaces even a
// higher one, since the peer may have lost its state. What was seen of the previous boot id still
// cannot be replayed. An unknown peer is ignored.
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
