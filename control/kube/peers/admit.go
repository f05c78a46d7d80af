package peers

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// admit checks the candidates against each other, oldest first, so that a newer object never
// disables an older one.
func admit(list []*candidate, own peer.PublicKey) {
	byAge := slices.Clone(list)
	slices.SortStableFunc(byAge, func(a, b *candidate) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time), cmp.Compare(a.object.Name, b.object.Name))
	})
	keys := map[peer.PublicKey]string{}
	var before []config.Peer
	for _, c := range byAge {
		if !c.inForce() {
			continue
		}
		if c.refused = beside(c, own, keys, before); c.refused != nil {
			continue
		}
		keys[c.peer.PublicKey] = c.object.Name
		before = append(before, c.peer)
	}
}

// beside returns the conflict of a candidate with earlier ones; nil if there is none.
func beside(c *candidate, own peer.PublicKey, keys map[peer.PublicKey]string, before []config.Peer) *finding {
	if c.peer.PublicKey == own && !own.IsZero() {
		return duplicate(c.object, "this gateway itself")
	}
	if other, twice := keys[c.peer.PublicKey]; twice {
		return duplicate(c.object, "Peer "+other)
	}
	for service, a := range c.peer.Local {
		for _, p := range before {
			for _, b := range p.Local {
				if a.First != 0 && a.Overlaps(b) {
					return found(c.object, catalogue.PeerRefused, fmt.Sprintf("spec.local: %s for %s is already a listener of Peer %s (choose another port)", a, service, p.Name))
				}
			}
		}
	}
	for _, prefix := range c.peer.AllowedIPs {
		for _, p := range before {
			if slices.ContainsFunc(p.AllowedIPs, prefix.Overlaps) {
				return found(c.object, catalogue.PeerRefused, fmt.Sprintf("spec.allowedIPs: %s overlaps an address of Peer %s (an address leads to one peer)", prefix, p.Name))
			}
		}
	}
	for _, p := range before {
		if within(c.peer, p) || within(p, c.peer) {
			return found(c.object, catalogue.PeerRefused, fmt.Sprintf("spec.allowedIPs: the overlay address of one of the Peers %s and %s is in the other's allowedIPs (narrow them)", c.object.Name, p.Name))
		}
	}
	return nil
}

// within reports whether a gateway's overlay address is in a stock peer's prefixes.
func within(gateway, stock config.Peer) bool {
	at := peer.OverlayAddr(gateway.PublicKey)
	return !gateway.Stock && slices.ContainsFunc(stock.AllowedIPs, func(p netip.Prefix) bool { return p.Contains(at) })
}

func duplicate(o *v1alpha1.Peer, of string) *finding {
	f := found(o, catalogue.PeerDuplicate, "")
	f.params.Key, f.params.Upstream = o.Spec.PublicKey, of
	return f
}

// origin returns how a peer was added, if the object was created for a joined peer; empty if the
// object itself adds the peer.
func origin(o *v1alpha1.Peer) string { return o.Labels[v1alpha1.LabelOrigin] }

// fitJoined matches a candidate with the peer of the same name in the gateway's state; joined is
// nil if there is none.
func fitJoined(c *candidate, joined *state.Peer) {
	switch {
	case origin(c.object) == "":
		// It adds the peer itself. A pending one is not the gateway's yet, and one whose name
		// belongs to another key in the state must wait until that peer is removed.
		c.apart = c.apart || c.refused == nil && (c.object.Spec.Pending || joined != nil && !c.peer.PublicKey.IsZero() && joined.PublicKey != c.peer.PublicKey)
	case joined == nil:
		c.refused = found(c.object, catalogue.PeerNotInState, "")
	default:
		// Its options must reach the joined peer even if something is wrong with the object.
		// Otherwise the peer would get back everything that its ticket granted.
		p := config.Peer{Name: c.object.Name, PublicKey: joined.PublicKey, Joined: true}
		// A peer may announce another key: then the object has the old one for a moment.
		agreed := c.peer.PublicKey == joined.PublicKey || !joined.ObjectKey.IsZero() && c.peer.PublicKey == joined.ObjectKey
		switch {
		case c.refused != nil:
		case !agreed:
			c.refused = found(c.object, catalogue.PeerRefused, fmt.Sprintf(
				"spec.publicKey: it joined with the key %s, and nothing is agreed with another (delete the object and enrol it again, or give this key back)", joined.PublicKey))
		default:
			p = c.peer
			p.Joined, p.PublicKey = true, joined.PublicKey
		}
		c.peer = p
	}
}
