package roster

import (
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tunnel/peer"
)

// View gives readers the latest applied roster without waiting. It is safe for concurrent use.
type View struct{ now atomic.Pointer[applied] }

type applied struct {
	roster *Roster
	cfg    *config.Resolved
	since  map[peer.PublicKey]time.Time // when a peer was first applied
}

// NewView returns a view of this roster and configuration.
func NewView(r *Roster, cfg *config.Resolved) *View {
	v := &View{}
	v.now.Store(&applied{roster: r, cfg: cfg})
	return v
}

// Load returns the latest applied roster.
func (v *View) Load() *Roster { return v.now.Load().roster }

// Config returns the latest applied configuration.
func (v *View) Config() *config.Resolved { return v.now.Load().cfg }

// Since is when the peer with the key was first tried; zero if there is none.
func (v *View) Since(k peer.PublicKey) time.Time { return v.now.Load().since[k] }

// set publishes the roster, and notes since when each peer is tried.
func (v *View) set(next *Roster, cfg *config.Resolved) {
	before := v.now.Load().since
	since := make(map[peer.PublicKey]time.Time, len(next.members))
	for _, m := range next.members {
		if at, ok := before[m.Key]; ok && !m.Pending {
			since[m.Key] = at
		} else {
			since[m.Key] = time.Now()
		}
	}
	v.now.Store(&applied{roster: next, cfg: cfg, since: since})
}

// NameOf returns the local name of the peer with the key; its overlay address if it is gone.
func (v *View) NameOf(k peer.PublicKey) string {
	if m := v.Load().ByKey(k); m != nil {
		return m.Name
	}
	return peer.OverlayAddr(k).String()
}

// Member returns the peer with the name, for a command.
func (v *View) Member(name string) (*Member, error) {
	r := v.Load()
	if m := r.ByName(name); m != nil {
		return m, nil
	}
	var names []string
	for _, m := range r.Members() {
		names = append(names, m.Name)
	}
	return nil, admin.NoPeer(name, names)
}
