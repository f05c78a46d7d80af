package tunnel

import (
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

// SetPeers makes the device have exactly these peers. A set that contradicts itself is
// refused with an error that wraps ErrPeerSet and names both sides; nothing is changed
// then. Peers that stay keep their sessions.
func (e *Engine) SetPeers(peers []peer.Config) error {
	e.setMu.Lock()
	defer e.setMu.Unlock()

	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	old := make(map[peer.PublicKey]peer.Config, len(e.peers))
	for k, p := range e.peers {
		old[k] = p.config
	}
	e.mu.Unlock()

	known := func(k peer.PublicKey) bool { _, ok := old[k]; return ok }
	if err := e.validate(peers, known); err != nil {
		return err
	}
	wished := make([]peer.Config, len(peers))
	for i, c := range peers {
		wished[i] = owned(c)
	}
	change := difference(old, wished)
	// The device looks an endpoint's candidates up when it reads its line.
	for _, c := range wished {
		if was, exists := old[c.PublicKey]; !exists || !same(was, c) {
			e.prepare(c)
		}
	}
	var outdated uint64
	if len(change) > 0 {
		if err := e.configure(uapi.Config{Peers: change}); err != nil {
			return fmt.Errorf("configure %d peers: %w", len(change), err)
		}
		outdated = e.readings.forget()
	}
	e.adopt(wished, outdated)
	e.wake()
	return nil
}

// owned copies what a caller might change later.
func owned(c peer.Config) peer.Config {
	c.Endpoints = slices.Clone(c.Endpoints)
	c.AllowedIPs = slices.Clone(c.AllowedIPs)
	return c
}

// prepare tells the underlay the paths to a wished peer, the proven one of a peer that we
// have already among them.
func (e *Engine) prepare(c peer.Config) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := endpointID(c.PublicKey)
	next := peerState{config: c}
	if p := e.peers[c.PublicKey]; p != nil && p.config.Managed == c.Managed {
		next.watch, next.paths = p.watch, p.paths
	} else if p != nil {
		e.bind.Forget(id)
	}
	if c.Managed {
		e.bind.Manage(id)
		if !e.yields(c.PublicKey) {
			e.bind.Insist(id)
		}
		e.routeLocked(c.PublicKey, &next)
		return
	}
	e.bind.SetCandidates(id, next.addresses())
}

// adopt replaces the book of peers after the device has been changed. Readings up to the
// number outdated are from before.
func (e *Engine) adopt(wished []peer.Config, outdated uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observed = max(e.observed, outdated)
	now := time.Now()
	next := make(map[peer.PublicKey]*peerState, len(wished))
	for _, c := range wished {
		p := e.peers[c.PublicKey]
		if p == nil || p.config.Managed != c.Managed {
			p = &peerState{id: endpointID(c.PublicKey), config: c}
			p.watch.restart(now)
		} else if !p.watch.alive(now) && worthDialling(p.config, c) {
			p.watch.restart(now)
		}
		p.config = c
		next[c.PublicKey] = p
	}
	for k := range e.peers {
		if next[k] == nil {
			e.bind.Forget(endpointID(k))
		}
	}
	e.peers = next
}

// worthDialling reports whether a change may be what a peer without a session waited for.
func worthDialling(was, c peer.Config) bool {
	return !slices.Equal(was.Endpoints, c.Endpoints) || !was.PresharedKey.Equal(c.PresharedKey)
}

// difference is what turns the old set into the wished one, removals first: an address
// may move from one stock peer to another.
func difference(old map[peer.PublicKey]peer.Config, wished []peer.Config) []uapi.PeerConfig {
	stay := make(map[peer.PublicKey]bool, len(wished))
	for _, c := range wished {
		// WireGuard settles whether a peer roams when it is made.
		stay[c.PublicKey] = old[c.PublicKey].Managed == c.Managed
	}
	var change []uapi.PeerConfig
	for k := range old {
		if !stay[k] {
			change = append(change, uapi.PeerConfig{PublicKey: k, Remove: true})
		}
	}
	for _, c := range wished {
		was, exists := old[c.PublicKey]
		if !exists || !stay[c.PublicKey] {
			change = append(change, addition(c)...)
		} else if same(was, c) {
			continue // As nearly all are, of whom there may be a thousand.
		} else if d, changed := modification(was, c); changed {
			change = append(change, d)
		}
	}
	return change
}

// addition makes a peer. One that roams gets its endpoint in a second step, since a peer
// that has one when it is made stays with it (Engine's setting); and together with it what
// makes the device send something.
func addition(c peer.Config) []uapi.PeerConfig {
	var none uint16
	keepalive := keepaliveSeconds(c)
	p := uapi.PeerConfig{
		PublicKey:         c.PublicKey,
		PresharedKey:      &c.PresharedKey,
		Keepalive:         &keepalive,
		ReplaceAllowedIPs: true,
		AllowedIPs:        c.Addresses(),
	}
	switch {
	case c.Managed:
		p.Endpoint = endpointText(c.PublicKey)
	case len(c.Endpoints) > 0:
		second := p
		second.UpdateOnly, second.PresharedKey, second.Endpoint = true, nil, endpointText(c.PublicKey)
		p.Keepalive, p.AllowedIPs = &none, nil
		return []uapi.PeerConfig{p, second}
	}
	return []uapi.PeerConfig{p}
}

// modification sets only what changed. Endpoints are no part of it: the device's own
// one follows its session, and a dial brings the new ones in when there is none.
func modification(was, c peer.Config) (uapi.PeerConfig, bool) {
	p := uapi.PeerConfig{PublicKey: c.PublicKey, UpdateOnly: true}
	changed := false
	if !was.PresharedKey.Equal(c.PresharedKey) {
		p.PresharedKey, changed = &c.PresharedKey, true
	}
	if was.Keepalive != c.Keepalive {
		keepalive := keepaliveSeconds(c)
		p.Keepalive, changed = &keepalive, true
	}
	if !slices.Equal(was.Addresses(), c.Addresses()) {
		p.ReplaceAllowedIPs, p.AllowedIPs, changed = true, c.Addresses(), true
	}
	return p, changed
}

func keepaliveSeconds(c peer.Config) uint16 { return uint16(c.Keepalive / time.Second) }

// endpointID is the name under which the underlay knows a peer's candidates.
func endpointID(k peer.PublicKey) string { return k.String() }

// endpointText is the endpoint that stands for all candidates of a peer.
func endpointText(k peer.PublicKey) string { return "peer:" + endpointID(k) }

// same reports whether two configurations of one peer say the same.
func same(a, b peer.Config) bool {
	return a.Name == b.Name && a.PresharedKey.Equal(b.PresharedKey) && a.Keepalive == b.Keepalive &&
		a.Stock == b.Stock && a.Managed == b.Managed &&
		slices.Equal(a.Endpoints, b.Endpoints) && slices.Equal(a.AllowedIPs, b.AllowedIPs)
}
