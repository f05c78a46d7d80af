package enrol

import (
	"cmp"
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// # Rotation of the gateway's key
//
// The next key is announced to each peer under the current one, with its own preshared key. A peer
// that has stored both accepts either: the current key with the current preshared key, the next
// with the next. When all know it the gateway restarts with the next key, and a peer forgets the
// old one on the first handshake with the new one. Nothing has to happen at the same moment, and a
// gateway that dies at any point has one key that its peers accept.

// announceRetry is the pause between attempts to tell a peer.
const announceRetry = time.Second

// KeyRotate gives the gateway another key without losing a peer. Then the gateway must be
// restarted, which [Registrar.Restart] signals. Unless forced, nothing happens while there is a
// peer that does not know the next key: the next attempt tells it again.
func (e *Registrar) KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	if !e.rotating.TryLock() {
		return api.KeyRotateResponse{}, admin.Conflict("key rotate: another rotation is under way", "wait for its end")
	}
	defer e.rotating.Unlock()
	if cfg := e.o.Peers.Config(); !cfg.PrivateKey.IsZero() {
		return api.KeyRotateResponse{}, admin.Conflict(fmt.Sprintf("key rotate: the key comes from %s, which is not the gateway's to change", cfg.PrivateKeyFile),
			"unset spec.privateKeyFile to have it kept in the state directory, or replace the file and have each peer enter the new public key")
	}
	next, err := e.o.Store.NextKey()
	if err == nil && next.Public() == e.publicKey { // it is in use already, and a crash left the copy
		if err = e.o.Store.DropNextKey(); err == nil {
			next, err = e.o.Store.NextKey()
		}
	}
	if err != nil {
		return api.KeyRotateResponse{}, admin.Failed("key rotate: "+err.Error(), "")
	}
	if m := e.o.Peers.Load().ByKey(next.Public()); m != nil { // it is from the file, or from before such keys were refused
		return api.KeyRotateResponse{}, admin.Conflict(fmt.Sprintf("key rotate: peer %s has the key that would be this gateway's next one", m.Name),
			"remove that peer: it cannot be who it says")
	}
	ctx, cancel := e.o.While(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, waitOr(r.Wait, api.DefaultWait))
	defer stop()
	out := api.KeyRotateResponse{PublicKey: next.Public().String(), Told: []string{}}
	if e.o.Peers.Config().Services.OutOfBand != nil {
		out.Warnings = append(out.Warnings, "the tokens that peers use outside the tunnel end with the old key: make each another with `postern peer token NAME`")
	}
	told := e.announceKey(ctx, next, &out)
	if len(out.Untold) > 0 && !r.Force {
		return out, nil
	}
	if err := e.useNextKey(next.Public(), told); err != nil {
		return out, err
	}
	out.Rotated = true
	e.o.Audit.Record(ctx, audit.Rotate, audit.PublicKey(next.Public()), audit.Reason(fmt.Sprintf("told: %v", out.Told)))
	e.log.Info("key rotated; restarting the gateway", "publicKey", next.Public().String(),
		"fingerprint", peer.Fingerprint(next.Public()), "told", out.Told, "untold", len(out.Untold))
	e.restart.Do(func() { close(e.restarts) })
	return out, nil
}

// Restart is closed when the gateway must be closed and started again.
func (e *Registrar) Restart() <-chan struct{} { return e.restarts }

// announceKey tells all peers the next key concurrently, until ctx ends, and returns the preshared
// keys for it, by peer name.
func (e *Registrar) announceKey(ctx context.Context, next peer.PrivateKey, out *api.KeyRotateResponse) map[string]peer.PresharedKey {
	var mu sync.Mutex
	told := map[string]peer.PresharedKey{}
	var wg sync.WaitGroup
	for _, m := range e.o.Peers.Load().Members() {
		wg.Go(func() {
			psk, err := e.announceTo(ctx, m, next)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Untold = append(out.Untold, api.UnnotifiedPeer{Peer: m.Name, Reason: err.Error()})
				return
			}
			out.Told, told[m.Name] = append(out.Told, m.Name), psk
		})
	}
	wg.Wait()
	slices.Sort(out.Told)
	slices.SortFunc(out.Untold, func(a, b api.UnnotifiedPeer) int { return cmp.Compare(a.Peer, b.Peer) })
	return told
}

// announceTo tells one peer. It does not repeat after a definite answer.
func (e *Registrar) announceTo(ctx context.Context, m *roster.Member, next peer.PrivateKey) (peer.PresharedKey, error) {
	public := next.Public()
	switch {
	case m.Stock:
		return peer.PresharedKey{}, fmt.Errorf("it is a plain WireGuard peer: enter %s there as this gateway's key", public)
	case m.Pending:
		return peer.PresharedKey{}, fmt.Errorf("it waits for approval: postern peer approve %s, or remove it", m.Name)
	}
	psk := m.PSK // if it is from a file or object, no other can be stored
	if !m.FromFile {
		var err error
		if psk, err = peer.NewPresharedKey(); err != nil {
			return peer.PresharedKey{}, err
		}
	}
	proof, err := auth.RotationProof(next, m.Key, e.publicKey, public, psk)
	if err != nil {
		return peer.PresharedKey{}, err
	}
	client := auth.NewClient(m.Address(), e.o.Stack.DialContext)
	for {
		err := client.Rotate(ctx, auth.Announcement{Next: public, PSK: psk, Proof: proof})
		switch {
		case err == nil:
			return psk, nil
		case errors.Is(err, auth.ErrConfigured):
			return peer.PresharedKey{}, fmt.Errorf("its configuration names this gateway's key: enter %s there", public)
		case errors.Is(err, auth.ErrRequest), errors.Is(err, auth.ErrDenied):
			return peer.PresharedKey{}, fmt.Errorf("it does not accept another key: %w", err)
		}
		select {
		case <-time.After(announceRetry):
		case <-ctx.Done():
			return peer.PresharedKey{}, fmt.Errorf("it does not answer: %w", err)
		}
	}
}

// useNextKey makes the next start use the next key, and the preshared keys for it. The preshared
// keys are stored first, each for that key alone, so that a crash in between leaves the old keys in
// force.
func (e *Registrar) useNextKey(next peer.PublicKey, told map[string]peer.PresharedKey) error {
	return e.o.Peers.Change(func(*roster.Change) error {
		err := e.o.Store.Update(func(all *state.Peers) error {
			for name, psk := range told {
				if p, ok := all.Get(name); ok {
					p.RekeyFor, p.RekeyPSK = next, psk
					if err := all.Put(p); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err == nil || errors.Is(err, state.ErrNotDurable) {
			err = e.o.Store.UseNextKey()
		}
		if err != nil {
			return admin.Failed("key rotate: "+err.Error(), "the old key stays in force; repeat the command")
		}
		return nil
	})
}

// TakeRekeyed stores the preshared keys that were agreed for the gateway's current key as those of
// the peers. They are in force in any case (joinedMember).
func TakeRekeyed(store *state.Store, own peer.PublicKey, log *slog.Logger) {
	if !slices.ContainsFunc(store.Peers().All(), func(p state.Peer) bool { return p.RekeyFor == own }) {
		return
	}
	err := store.Update(func(all *state.Peers) error {
		for _, p := range all.All() {
			if p.RekeyFor != own {
				continue
			}
			p.PresharedKey = p.RekeyPSK
			p.RekeyFor, p.RekeyPSK = peer.PublicKey{}, peer.PresharedKey{}
			if err := all.Put(p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, state.ErrNotDurable) {
		log.Warn("failed to store the preshared keys agreed for this key; they are in force, and the next start will retry", "error", err)
	}
}

// OnRotation stores a peer's next key.
func (e *Registrar) OnRotation(ctx context.Context, a auth.Announcement) error {
	from, next, psk := a.From, a.Next, a.PSK
	want, err := auth.RotationProof(e.o.Key, next, from, next, psk)
	m := e.o.Peers.Load().ByKey(from)
	switch {
	case err != nil || !hmac.Equal(want, a.Proof):
		return fmt.Errorf("%w: nothing proves that the next key is the caller's", auth.ErrRequest)
	case m == nil:
		return fmt.Errorf("%w: the peer was removed", auth.ErrRequest)
	case m.FromFile:
		return fmt.Errorf("%w (%s)", auth.ErrConfigured, m.Name)
	case next == from:
		return fmt.Errorf("%w: it is the present key", auth.ErrRequest)
	}
	err = e.o.Peers.Update(roster.Update{
		Peers: func(all *state.Peers) error {
			if h := e.o.Peers.HolderOf(next); h != nil && (h.Member == nil || h.Member.Name != m.Name) {
				return fmt.Errorf("%w: it is somebody's key already", auth.ErrRequest)
			}
			all.DropAnnounced(m.Name)
			return roster.EditPeer(m, func(p *state.Peer) { p.NextKey, p.NextPresharedKey = next, psk })(all)
		},
		Applied: func() {
			e.o.Peers.ShowAside()
			e.o.Audit.Record(ctx, audit.Rotate, audit.Peer(m.Name), audit.PublicKey(from),
				slog.String("next", next.String()), audit.Reason("announced"))
		},
	})
	if errors.Is(err, state.ErrDuplicate) {
		return fmt.Errorf("%w: it is somebody's key already", auth.ErrRequest)
	}
	return err
}

// succeed switches peers to their next key once a handshake with it has completed.
func (e *Registrar) succeed(s tunnel.Snapshot) {
	r := e.o.Peers.Load()
	for _, m := range r.Members() {
		key := m.NextKey
		if r.Next(key) != m || s.Peers[key].LastHandshake.IsZero() {
			continue
		}
		old := m.Key
		err := e.o.Peers.Update(roster.Update{
			Peers: func(all *state.Peers) error {
				if p, ok := all.Get(m.Name); !ok || p.NextKey != key || !all.Succeed(m.Name) {
					return errGone
				}
				return e.o.Store.Inherit(old, key, m.Subject().IdentityName())
			},
			Applied: func() {
				e.o.Audit.Record(context.Background(), audit.Rotate, audit.Peer(m.Name), audit.PublicKey(key), audit.Reason("in use"))
				e.log.Warn("peer rotated its key", "peer", m.Name,
					"publicKey", key.String(), "fingerprint", peer.Fingerprint(key), "before", peer.Fingerprint(old))
				if e.o.Peers.Config().Services.OutOfBand != nil {
					e.log.Warn("the peer's token for auth outside the tunnel expired with its old key; issue a new one with postern peer token", "peer", m.Name)
				}
			},
		})
		if err != nil && !errors.Is(err, errGone) && !errors.Is(err, roster.ErrStopping) {
			e.log.Warn("failed to store a peer's key rotation; will retry", "peer", m.Name, "error", err)
		}
	}
}

// errGone says that what was to be changed no longer exists.
var errGone = errors.New("gone meanwhile")
