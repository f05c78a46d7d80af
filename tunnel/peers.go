package tunnel

import (
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
)

// SetPeers makes the device have exactly these peers. A set that contradicts itself is refused with
// an error that wraps ErrPeerSet and names both sides, and nothing changes. Peers that stay keep
// their sessions, and cost almost nothing.
func (e *Engine) SetPeers(peers []peer.Config) error {
	e.setMu.Lock()
	defer e.setMu.Unlock()
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return ErrClosed
	}
	d, err := e.compare(peers)
	if err != nil {
		return err
	}
	if len(d.changed)+len(d.gone) == 0 {
		return nil
	}
	// The device looks up an endpoint's candidates when it reads its line.
	for _, c := range d.changed {
		e.prepare(c)
	}
	if change := e.commands(d); len(change) > 0 {
		if err := e.configure(uapi.Config{Peers: change}); err != nil {
			return fmt.Errorf("configure %d peers: %w", len(change), err)
		}
	}
	var outdated uint64
	if len(d.gone) > 0 || slices.ContainsFunc(d.changed, e.replaces) {
		outdated = e.readings.forget()
	}
	e.adopt(d, outdated)
	e.kick.Set()
	return nil
}

// prepare passes the paths to a wanted peer to the underlay. For a known peer they include the
// proven one.
func (e *Engine) prepare(c peer.Config) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := endpointID(c.PublicKey)
	next := peerState{config: c}
	if p := e.peers[c.PublicKey]; p != nil && p.config.Managed == c.Managed {
		next.machine.Source, next.paths = p.machine.Source, p.paths
	} else if p != nil {
		e.bind.Forget(id)
	}
	if c.Managed {
		e.bind.Manage(id)
		e.routeLocked(c.PublicKey, &next)
		return
	}
	e.bind.SetCandidates(id, next.addresses())
}

// adopt updates the peer table once the device has changed. Readings up to the number outdated
// were begun before the change.
func (e *Engine) adopt(d difference, outdated uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observed = max(e.observed, outdated)
	for _, k := range d.gone {
		p := e.peers[k]
		e.bind.Forget(p.id)
		e.taken.release(p.config)
		delete(e.peers, k)
	}
	for _, c := range d.changed {
		if p := e.peers[c.PublicKey]; p != nil {
			e.taken.release(p.config) // before another peer takes it
		}
	}
	now := time.Now()
	for _, c := range d.changed {
		p := e.peers[c.PublicKey]
		if p == nil || p.config.Managed != c.Managed {
			p = &peerState{id: endpointID(c.PublicKey), config: c, generation: e.generation}
			p.machine.Config = handshake.Config{Managed: c.Managed, Yields: handshake.Yields(e.publicKey, c.PublicKey)}
			p.machine.Add(now)
			e.peers[c.PublicKey] = p
		} else if worthDialling(p.config, c) {
			p.machine.Changed(now)
		}
		p.config, p.pollAt = c, now
		e.taken.take(c)
	}
}

// worthDialling reports whether a change may help a peer without a session.
func worthDialling(was, c peer.Config) bool {
	return !slices.Equal(was.Endpoints, c.Endpoints) || !was.PresharedKey.Equal(c.PresharedKey)
}

// commands turn the device's set into the wanted one. Removals come first: an address may move from
// one stock peer to another.
func (e *Engine) commands(d difference) []uapi.PeerConfig {
	var change []uapi.PeerConfig
	for _, k := range d.gone {
		change = append(change, uapi.PeerConfig{PublicKey: k, Remove: true})
	}
	for _, c := range d.changed {
		if e.replaces(c) {
			change = append(change, uapi.PeerConfig{PublicKey: c.PublicKey, Remove: true})
		}
	}
	for _, c := range d.changed {
		was := e.peers[c.PublicKey]
		if was == nil || e.replaces(c) {
			change = append(change, addition(c)...)
		} else if m, changed := modification(was.config, c); changed {
			change = append(change, m)
		}
	}
	return change
}

// replaces reports whether the device has to recreate a peer: WireGuard decides only at creation
// whether a peer roams.
func (e *Engine) replaces(c peer.Config) bool {
	was := e.peers[c.PublicKey]
	return was != nil && was.config.Managed != c.Managed
}

// addition creates a peer. One that roams gets its endpoint in a second step, since a peer created
// with one keeps it (by the Engine's setting). The same step makes the device send something.
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

// modification sets only what changed. It leaves the endpoints out: the device's endpoint follows
// the session, and a dial uses the new ones when there is none.
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

// endpointID is the name of a peer's candidates in the underlay.
func endpointID(k peer.PublicKey) string { return k.String() }

// endpointText is the endpoint that stands for all candidates of a peer.
func endpointText(k peer.PublicKey) string { return "peer:" + endpointID(k) }
