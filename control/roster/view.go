package roster

import (
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tunnel/peer"
)

// View is what was applied last, for those who read and change nothing. They never wait. It is
// safe for concurrent use.
type View struct{ now atomic.Pointer[applied] }

type applied struct {
	roster *Roster
	cfg    *config.Resolved
	since  map[peer.PublicKey]time.Time // when a peer was first applied
}

// NewView is a view of this roster and configuration.
func NewView(r *Roster, cfg *config.Resolved) *View {
	v := &View{}
	v.now.Store(&applied{roster: r, cfg: cfg})
	return v
}

// Load is the roster that was applied last.
func (v *View) Load() *Roster { return v.now.Load().roster }

// Config is the configuration that was applied last.
func (v *View) Config() *config.Resolved { return v.now.Load().cfg }

// Since is when the peer with the key was first tried; zero for one that is none.
func (v *View) Since(k peer.PublicKey) time.Time { return v.now.Load().since[k] }

// set has readers see the roster, and notes since when each peer is tried.
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

// NameOf is what the peer with the key is called here; its overlay address when it is gone.
func (v *View) NameOf(k peer.PublicKey) string {
	if m := v.Load().ByKey(k); m != nil {
		return m.Name
	}
	return peer.OverlayAddr(k).String()
}

// Member finds a peer by its name, for a command.
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
