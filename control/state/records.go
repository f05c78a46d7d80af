package state

import (
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxRecords bounds the stored DNS records of a peer.
const maxRecords = 8

// FoundAt notes that a DNS record had this peer's key, newest first, so that a later change of the
// key can be recognised. It writes only changes.
func (s *Store) FoundAt(k peer.PublicKey, record string) error {
	if slices.Contains(s.observed.load().Peers[k.String()].Records, record) {
		return nil
	}
	return s.Observe(k, func(o *Observation) {
		o.Records = slices.Insert(o.Records, 0, record)
		o.Records = o.Records[:min(len(o.Records), maxRecords)]
	})
}
