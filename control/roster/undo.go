package roster

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/state"
)

// Bounds of the time to confirm a change.
const (
	minTry = 5 * time.Second
	maxTry = 24 * time.Hour
)

// undoable makes a change that is rolled back after a time unless it is confirmed: whoever makes it
// through the tunnel may be locked out. It rolls back to the last confirmed state, however many
// changes there were since. A permanent change, with a time of 0, confirms the earlier ones.
func undoable(within time.Duration, change func(*state.Peer)) func(*state.Peer) {
	return func(p *state.Peer) {
		undo := p.Undo
		if undo.At.IsZero() {
			undo = state.Undo{Allow: p.Allow, Local: maps.Clone(p.Local)}
		}
		change(p)
		p.Undo = state.Undo{}
		if within > 0 {
			undo.At, undo.Within = time.Now().Add(within), within
			p.Undo = undo
		}
	}
}

// CheckTry returns an error if the time to confirm a change is out of bounds.
func CheckTry(within time.Duration) error {
	if within < minTry || within > maxTry {
		return admin.Usage(fmt.Sprintf("a change is confirmed within %v to %v, not %v", minTry, maxTry, within), "")
	}
	return nil
}

// PeerTry is PeerAllow or PeerLocal for a change that is rolled back unless it is confirmed.
func (reg *Registry) PeerTry(ctx context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error) {
	within := time.Duration(r.Within)
	err := CheckTry(within)
	switch {
	case err != nil:
	case (r.Allow == nil) == (r.Local == nil):
		return api.PeerTryResponse{}, admin.Usage("a change that is to be confirmed is either of what a peer may reach or of listeners", "")
	case r.Allow != nil:
		err = reg.allow(ctx, name, *r.Allow, within)
	default:
		err = reg.local(name, *r.Local, within)
	}
	if err != nil {
		return api.PeerTryResponse{}, err
	}
	m, err := reg.Member(name)
	if err != nil {
		return api.PeerTryResponse{}, err
	}
	return api.PeerTryResponse{UndoneAt: m.UndoneAt.Round(0)}, nil
}

// PeerConfirm makes a peer's changes on trial permanent.
func (reg *Registry) PeerConfirm(_ context.Context, name string) error {
	m, err := reg.editable(name)
	if err != nil {
		return err
	}
	if m.UndoneAt.IsZero() {
		return admin.Conflict(fmt.Sprintf("no change of peer %s waits to be confirmed", name), "if it was undone meanwhile, make it again")
	}
	return reg.Update(Update{Peers: EditPeer(m, undoable(0, func(*state.Peer) {}))})
}

// undoUnconfirmed rolls back the changes that were not confirmed in time.
func (reg *Registry) undoUnconfirmed(now time.Time) {
	for _, m := range reg.Load().Members() {
		if m.UndoneAt.IsZero() || now.Before(m.UndoneAt) || now.Before(reg.upkeep.undo) {
			continue
		}
		err := reg.Update(Update{
			Peers: EditPeer(m, func(p *state.Peer) {
				if now.Before(p.Undo.At) || p.Undo.At.IsZero() {
					return // changed or confirmed at the last moment
				}
				p.Allow, p.Local, p.Undo = p.Undo.Allow, p.Undo.Local, state.Undo{}
			}),
			Applied: func() {
				allow := reg.allowedNow(m.Name)
				reg.log.Warn("rolled back an unconfirmed change", "peer", m.Name, "allow", allow)
				reg.o.Audit.Record(context.Background(), audit.Grant, audit.Peer(m.Name), audit.PublicKey(m.Key), audit.Services(allow))
			},
			Restricts: func() string { return reg.mayReachNow(m.Name) },
		})
		if err != nil {
			reg.upkeep.undo = now.Add(RetryUndo)
			reg.log.Warn("failed to roll back an unconfirmed change; will retry", "peer", m.Name, "error", err)
		}
	}
}

// RetryUndo is how long to wait after a failure.
const RetryUndo = 10 * time.Second
