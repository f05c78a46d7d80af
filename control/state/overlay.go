package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// OverlayLease is the lease of a service's overlay ports in this cluster.
type OverlayLease struct {
	// Ports are in the format of [api.ParsePorts].
	Ports string `json:"ports"`
	// Freed is since when nobody holds it.
	Freed time.Time `json:"freed,omitzero"`
}

// overlayLeases is the file: leases by holder.
type overlayLeases struct {
	Leases map[string]OverlayLease `json:"leases"`
}

func (l overlayLeases) clone() overlayLeases { return overlayLeases{maps.Clone(l.Leases)} }

// A new service must not get ports that a peer still maps to the old one. So a change is in force
// only once it is stored, and an earlier generation is not restored.
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

// OverlayLeases returns the overlay ports of services of this cluster, by holder.
func (s *Store) OverlayLeases() map[string]OverlayLease { return s.overlay.load().clone().Leases }

// SetOverlayLeases replaces them. It writes only changes.
func (s *Store) SetOverlayLeases(leases map[string]OverlayLease) error {
	return s.overlay.update(func(l *overlayLeases) error { l.Leases = maps.Clone(leases); return nil })
}
