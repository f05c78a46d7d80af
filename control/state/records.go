package state

import (
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxRecords bounds the records in DNS that are remembered of a peer.
const maxRecords = 8

// FoundAt notes that a record in DNS had the key of this peer, the newest first: when it has
// another some day, that is known to be a change. It writes only what is new.
func (s *Store) FoundAt(k peer.PublicKey, record string) error {
	if slices.Contains(s.observed.load().Peers[k.String()].Records, record) {
		return nil
	}
	return s.Observe(k, func(o *Observation) {
		o.Records = slices.Insert(o.Records, 0, record)
		o.Records = o.Records[:min(len(o.Records), maxRecords)]
	})
}
