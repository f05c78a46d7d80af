package roster

import (
	"slices"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tunnel/peer"
)

// removedByHand notes that an operator does not want a peer: it does not become one by
// itself again, also after a restart.
func (reg *Registry) removedByHand(m *Member) {
	for _, k := range m.AllKeys() {
		if err := reg.store.NoteRemoved(k); err != nil {
			reg.log.Warn("it cannot be stored that a peer was removed: it may become one by itself again after a restart",
				"peer", m.Name, "fingerprint", peer.Fingerprint(k), "error", err)
		}
		if slices.ContainsFunc(reg.Config().Discovery.LAN.AutoPeer, func(p config.AutoPeer) bool { return p.Key == k }) {
			reg.log.Warn("a peer is removed whose key is still in spec.discovery.lan.autoPeer: take it off that list",
				"peer", m.Name, "fingerprint", peer.Fingerprint(k))
		}
	}
}

// WantedAgain is the opposite: an operator has approved the key.
func (reg *Registry) WantedAgain(k peer.PublicKey) {
	if err := reg.store.WantAgain(k); err != nil {
		reg.log.Warn("it cannot be stored that a peer that was removed is wanted again", "fingerprint", peer.Fingerprint(k), "error", err)
	}
}
