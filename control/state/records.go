package state

import (
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxRecords bounds the stored DNS records of a peer.
const maxRecords = 8

// FoundAt notes which DNS records have the keys of peers now, so that a later change of a key can be
// recognised. It writes only changes, all at once. If too many records have a peer's key, those that
// are stored stay, and none that still exists is displaced: whoever writes the zone causes one write a
// search at most.
func (s *Store) FoundAt(found map[peer.PublicKey][]string) error {
	return observeAll(s, found, func(o *Observation, now []string) {
		fresh := slices.DeleteFunc(slices.Clone(now), func(r string) bool { return slices.Contains(o.Records, r) })
		still := slices.DeleteFunc(slices.Clone(o.Records), func(r string) bool { return !slices.Contains(now, r) })
		gone := slices.DeleteFunc(slices.Clone(o.Records), func(r string) bool { return slices.Contains(now, r) })
		if fresh = fresh[:min(len(fresh), max(0, maxRecords-len(still)))]; len(fresh) == 0 {
			return
		}
		o.Records = slices.Concat(fresh, still, gone)
		o.Records = o.Records[:min(len(o.Records), maxRecords)]
	})
}
