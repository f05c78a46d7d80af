package tunnel

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// difference is how a wanted set of peers differs from the current one. Of a thousand peers
// nearly all stay the same, and those are only compared.
type difference struct {
	// changed are new peers and those with a changed configuration.
	changed []peer.Config
	// gone are peers that are no longer wanted.
	gone []peer.PublicKey
}

// taken maps what must be unique among the peers to its owner.
type taken struct {
	names map[string]peer.PublicKey
	addrs map[netip.Addr]peer.PublicKey // in the overlay
}

// compare returns the difference, unless the wanted set contradicts itself. Engine.setMu is held.
// Without it nobody changes the set, so what compare reads is stable.
func (e *Engine) compare(peers []peer.Config) (d difference, err error) {
	if len(peers) > device.MaxPeers {
		return d, fmt.Errorf("%w: %d peers, at most %d are possible", ErrPeerSet, len(peers), device.MaxPeers)
	}
	e.generation++
	kept := 0
	for _, c := range peers {
		p := e.peers[c.PublicKey]
		if p == nil || !same(p.config, c) {
			d.changed = append(d.changed, owned(c))
			continue
		}
		if p.generation == e.generation {
			return d, twice(p.config.Name, c)
		}
		p.generation = e.generation
		kept++
	}
	if err := e.validate(d.changed); err != nil {
		return d, err
	}
	if err := validateStock(e.publicKey, peers); err != nil {
		return d, err
	}
	for _, c := range d.changed {
		if p := e.peers[c.PublicKey]; p != nil {
			p.generation = e.generation
			kept++
		}
	}
	if kept == len(e.peers) {
		return d, nil
	}
	for k, p := range e.peers {
		if p.generation != e.generation {
			d.gone = append(d.gone, k)
		}
	}
	return d, nil
}

// keeps reports whether the wanted set keeps the peer unchanged. It is valid within compare.
func (e *Engine) keeps(k peer.PublicKey) bool {
	p := e.peers[k]
	return p != nil && p.generation == e.generation
}

// take records what a peer has that must be unique.
func (t *taken) take(c peer.Config) {
	t.names[c.Name] = c.PublicKey
	if !c.Stock {
		t.addrs[peer.OverlayAddr(c.PublicKey)] = c.PublicKey
	}
}

// release undoes take.
func (t *taken) release(c peer.Config) {
	delete(t.names, c.Name)
	delete(t.addrs, peer.OverlayAddr(c.PublicKey))
}

// owned returns a copy of c that shares no slices with the caller.
func owned(c peer.Config) peer.Config {
	c.Endpoints = slices.Clone(c.Endpoints)
	c.AllowedIPs = slices.Clone(c.AllowedIPs)
	return c
}

// same reports whether two configurations of a peer are equal.
func same(a, b peer.Config) bool {
	return a.Name == b.Name && a.PresharedKey.Equal(b.PresharedKey) && a.Keepalive == b.Keepalive &&
		a.Stock == b.Stock && a.Managed == b.Managed &&
		slices.Equal(a.Endpoints, b.Endpoints) && slices.Equal(a.AllowedIPs, b.AllowedIPs)
}
