package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// OverlayLease are overlay ports of a service of this cluster.
type OverlayLease struct {
	// Ports are as [api.ParsePorts] reads them.
	Ports string `json:"ports"`
	// Freed is since when they are nobody's.
	Freed time.Time `json:"freed,omitzero"`
}

// overlayLeases is the file: by what they are leased to.
type overlayLeases struct {
	Leases map[string]OverlayLease `json:"leases"`
}

func (l overlayLeases) clone() overlayLeases { return overlayLeases{maps.Clone(l.Leases)} }

// Another one is not to be given ports that a peer still takes for those of the one before, so
// a change counts when it is kept, and an earlier generation does not come back.
var overlayFormat = format[overlayLeases]{
	name: "overlay", major: 1,
	encode: func(l overlayLeases) (any, error) { return l, nil },
	decode: decodeOverlay, clone: overlayLeases.clone, previousIsUnsafe: true,
	loss: "the overlay ports of services of this cluster; they get others, of which peers are told",
}

func decodeOverlay(raw json.RawMessage) (overlayLeases, error) {
	l, err := decodeJSON[overlayLeases](raw)
	if err != nil {
		return l, err
	}
	for key, lease := range l.Leases {
		if _, err := api.ParsePorts(lease.Ports); err != nil {
			return l, fmt.Errorf("ports of %.40q: %w", key, err)
		}
	}
	return l, nil
}

// OverlayLeases are the overlay ports of services of this cluster, by what they are leased to.
func (s *Store) OverlayLeases() map[string]OverlayLease { return s.overlay.load().clone().Leases }

// SetOverlayLeases replaces them. It writes only what changed.
func (s *Store) SetOverlayLeases(leases map[string]OverlayLease) error {
	return s.overlay.update(func(l *overlayLeases) error { l.Leases = maps.Clone(leases); return nil })
}
