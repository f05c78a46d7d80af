package roster

import (
	"slices"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tunnel/peer"
)

// removedByHand notes that an operator removed a peer, so that it is not added automatically again,
// even after a restart.
func (reg *Registry) removedByHand(m *Member) {
	for _, k := range m.AllKeys() {
		if err := reg.store.NoteRemoved(k); err != nil {
			reg.log.Warn("failed to store the removal of a peer; after a restart it may be added automatically again",
				"peer", m.Name, "fingerprint", peer.Fingerprint(k), "error", err)
		}
		if slices.ContainsFunc(reg.Config().Discovery.LAN.AutoPeer, func(p config.AutoPeer) bool { return p.Key == k }) {
			reg.log.Warn("removed a peer whose key is still in spec.discovery.lan.autoPeer; remove it from that list",
				"peer", m.Name, "fingerprint", peer.Fingerprint(k))
		}
	}
}

// WantedAgain undoes removedByHand: an operator has approved the key.
func (reg *Registry) WantedAgain(k peer.PublicKey) {
	if err := reg.store.WantAgain(k); err != nil {
		reg.log.Warn("failed to store that a removed peer was added again", "fingerprint", peer.Fingerprint(k), "error", err)
	}
}
