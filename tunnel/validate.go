package tunnel

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// validate checks the changed peers against each other, against those that stay and against our own
// key. Known keys were checked when they were added. Engine.setMu is held.
func (e *Engine) validate(changed []peer.Config) error {
	names := make(map[string]peer.PublicKey, len(changed))
	keys := make(map[peer.PublicKey]string, len(changed))
	addrs := map[netip.Addr]string{peer.OverlayAddr(e.publicKey): "this gateway"}
	for _, c := range changed {
		if err := e.validatePeer(c, e.peers[c.PublicKey] != nil); err != nil {
			return err
		}
		if other, ok := names[c.Name]; ok {
			return namesakes(c.Name, other, c.PublicKey)
		}
		if other, ok := e.taken.names[c.Name]; ok && other != c.PublicKey && e.keeps(other) {
			return namesakes(c.Name, other, c.PublicKey)
		}
		names[c.Name] = c.PublicKey
		if other, ok := keys[c.PublicKey]; ok {
			return twice(other, c)
		}
		if e.keeps(c.PublicKey) {
			return twice(e.peers[c.PublicKey].config.Name, c)
		}
		keys[c.PublicKey] = c.Name
		if c.Stock {
			continue
		}
		addr := peer.OverlayAddr(c.PublicKey)
		other, ok := addrs[addr]
		if k, there := e.taken.addrs[addr]; there && !ok && e.keeps(k) {
			other, ok = e.peers[k].config.Name, true
		}
		if ok {
			return fmt.Errorf("%w: peers %q and %q have the same overlay address %s; one needs a new key", ErrPeerSet, other, c.Name, addr)
		}
		addrs[addr] = c.Name
	}
	return nil
}

func namesakes(name string, a, b peer.PublicKey) error {
	return fmt.Errorf("%w: two peers are named %q, with the keys %s and %s; rename one", ErrPeerSet, name, a, b)
}

func twice(other string, c peer.Config) error {
	return fmt.Errorf("%w: peers %q and %q have the same public key %s; remove one", ErrPeerSet, other, c.Name, c.PublicKey)
}

func (e *Engine) validatePeer(c peer.Config, known bool) error {
	switch {
	case c.Name == "":
		return fmt.Errorf("%w: the peer with key %s has no name", ErrPeerSet, c.PublicKey)
	case c.PublicKey.IsZero():
		return fmt.Errorf("%w: peer %q has no public key", ErrPeerSet, c.Name)
	case c.PublicKey == e.publicKey:
		return fmt.Errorf("%w: peer %q has this gateway's own public key %s; use the other side's", ErrPeerSet, c.Name, c.PublicKey)
	case c.Keepalive < 0 || c.Keepalive > math.MaxUint16*time.Second || c.Keepalive%time.Second != 0:
		return fmt.Errorf("%w: peer %q: keepalive %v is not a whole number of seconds from 0 to %d", ErrPeerSet, c.Name, c.Keepalive, math.MaxUint16)
	}
	for _, a := range c.Endpoints {
		if !a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			return fmt.Errorf("%w: peer %q: endpoint %q is not an address that can be dialled (want ip:port)", ErrPeerSet, c.Name, a)
		}
	}
	if !known {
		if _, err := e.private.SharedSecret(c.PublicKey); err != nil {
			return fmt.Errorf("%w: peer %q: %w", ErrPeerSet, c.Name, err)
		}
	}
	return nil
}

// claim is a prefix that a stock peer's configuration claims.
type claim struct {
	prefix netip.Prefix
	name   string
}

// validateStock refuses stock peers whose addresses overlap ours or another peer's in the overlay
// (such a peer could impersonate another), that claim more of the overlay than a network of their
// own, or whose addresses overlap another stock peer's (WireGuard would take them from the first).
func validateStock(own peer.PublicKey, peers []peer.Config) error {
	var claims []claim
	for _, c := range peers {
		if !c.Stock {
			continue
		}
		for _, p := range c.AllowedIPs {
			switch at := holder(own, peers, p); {
			case !p.IsValid() || p.Addr().Is4In6():
				return fmt.Errorf("%w: peer %q: allowedIPs %q is not an address prefix", ErrPeerSet, c.Name, p)
			case p.Overlaps(peer.OverlayPrefix) && p.Bits() < peer.SiteBits:
				return fmt.Errorf("%w: peer %q: allowedIPs %s covers too much of the overlay %s; choose at most a /%d, or other addresses",
					ErrPeerSet, c.Name, p, peer.OverlayPrefix, peer.SiteBits)
			case at != "":
				return fmt.Errorf("%w: peer %q: allowedIPs %s holds the overlay address of %s; choose other addresses", ErrPeerSet, c.Name, p, at)
			}
			claims = append(claims, claim{p.Masked(), c.Name})
		}
	}
	// Prefixes nest or are disjoint, so in this order comparing with the widest one so far is
	// enough.
	slices.SortFunc(claims, func(a, b claim) int {
		if c := a.prefix.Addr().Compare(b.prefix.Addr()); c != 0 {
			return c
		}
		return a.prefix.Bits() - b.prefix.Bits()
	})
	for i, widest := 1, 0; i < len(claims); i++ {
		a, b := claims[widest], claims[i]
		if !a.prefix.Overlaps(b.prefix) {
			widest = i
			continue
		}
		if a.name != b.name {
			return fmt.Errorf("%w: allowedIPs %s of peer %q overlaps %s of peer %q; narrow one", ErrPeerSet, b.prefix, b.name, a.prefix, a.name)
		}
	}
	return nil
}

// holder names the owner of the overlay address in the prefix, for the error message; empty if
// none.
func holder(own peer.PublicKey, peers []peer.Config, p netip.Prefix) string {
	if !p.Overlaps(peer.OverlayPrefix) {
		return ""
	}
	if p.Contains(peer.OverlayAddr(own)) {
		return "this gateway"
	}
	for _, c := range peers {
		if !c.Stock && p.Contains(peer.OverlayAddr(c.PublicKey)) {
			return fmt.Sprintf("peer %q", c.Name)
		}
	}
	return ""
}
