package enrol

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
)

const (
	// laterPause is when the inviter is tried again after an unanswered join; the pause doubles up
	// to maxLaterPause.
	laterPause    = 5 * time.Second
	maxLaterPause = time.Minute
	// laterTry bounds one attempt: a running gateway answers within a second or two.
	laterTry = 10 * time.Second
)

// later holds the joins that continue after their command has ended, by ticket. The zero value is
// ready to use and safe for concurrent use.
type later struct {
	mu     sync.Mutex
	closed bool
	under  map[ticket.ID]bool
	wg     sync.WaitGroup
}

// start runs f unless the ticket already has one.
func (l *later) start(t ticket.ID, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.under[t] {
		return
	}
	if l.under == nil {
		l.under = map[ticket.ID]bool{}
	}
	l.under[t] = true
	l.wg.Go(func() {
		f()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.under, t)
	})
}

// close waits for all of them; they end with the gateway.
func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wg.Wait()
}

// Close waits for what outlives the commands that began it; the gateway's context has ended.
func (e *Registrar) Close() { e.later.close() }

// errMet says that the join has already succeeded, or is no longer wanted.
var errMet = errors.New("nothing is left to be joined")

// joinLater continues an unanswered join until the ticket ends: the inviter may be down. p is the
// peer that meanwhile waits for its call.
func (e *Registrar) joinLater(t ticket.Ticket, keys ticket.Keys, p state.Peer, q ticket.Request) {
	if len(invited(t.Candidates)) == 0 {
		return // only the inviter can call
	}
	e.later.start(keys.ID, func() {
		ctx, stop := e.o.While(context.Background())
		defer stop()
		ctx, cancel := context.WithDeadline(ctx, t.Expires)
		defer cancel()
		for pause := laterPause; ; pause = min(2*pause, maxLaterPause) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			var refusal *auth.Error
			switch err := e.joinAgain(ctx, t, keys, p, q); {
			case err == nil, errors.Is(err, errMet):
				return
			case errors.Is(err, errNoAnswer), errors.Is(err, auth.ErrRateLimited), errors.Is(err, auth.ErrServer), ctx.Err() != nil:
			case errors.As(err, &refusal):
				e.log.Warn("inviter refused the ticket", "peer", p.Name, "error", err)
				return
			default:
				e.log.Warn("failed to complete the join; will retry", "peer", p.Name, "error", err)
			}
		}
	})
}

// joinAgain is one attempt of joinLater. It changes only what the answer contains: the peer's
// grants and listeners may have changed since the join, and it may have been removed.
func (e *Registrar) joinAgain(ctx context.Context, t ticket.Ticket, keys ticket.Keys, p state.Peer, q ticket.Request) error {
	if !e.waits(p) {
		return errMet
	}
	ctx, cancel := context.WithTimeout(ctx, laterTry)
	defer cancel()
	answer, err := e.callInviter(ctx, t, keys, &q)
	if err != nil {
		return err
	}
	return e.o.Peers.Update(roster.Update{
		Peers: func(all *state.Peers) error {
			now, there := all.Get(p.Name)
			if !there || now.PublicKey != p.PublicKey || !now.PresharedKey.Equal(p.PresharedKey) {
				return errMet
			}
			now.PresharedKey, now.Offers, now.Awaited = answer.PresharedKey, answer.Granted, answer.Pending
			return all.Put(now)
		},
		Applied: func() {
			e.log.Info("joined", "peer", p.Name, "publicKey", p.PublicKey.String())
		},
	})
}

// waits reports whether a peer is as a reply left it: not removed, changed or connected.
func (e *Registrar) waits(p state.Peer) bool {
	peers := e.o.Store.Peers()
	now, there := peers.Get(p.Name)
	return there && now.PublicKey == p.PublicKey && now.PresharedKey.Equal(p.PresharedKey) && len(e.o.Peers.ProvenEndpoints(p.PublicKey)) == 0
}
