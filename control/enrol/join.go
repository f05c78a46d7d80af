package enrol

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// redeemTry bounds one attempt to redeem, and redeemPause is the pause before the next, half of
	// it random: others may try the same ticket at the same time, and WireGuard answers to where
	// the one-time key was last heard.
	redeemTry   = 8 * time.Second
	redeemPause = 500 * time.Millisecond
	// redialAfter is when an unanswered attempt dials again, half of it random: the inviter has one
	// session for the one-time key, and it may be another joiner's by now. The tunnel itself would
	// notice that after 5 s, which both may do at the same moment.
	redialAfter = 3 * time.Second
)

// Join redeems a ticket: over the one-time tunnel if the inviter can be reached, else by a reply
// that its operator accepts.
func (e *Registrar) Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	t, err := ticket.Decode(r.Ticket)
	if err != nil {
		return api.JoinResponse{}, problem("join", err)
	}
	before, _ := e.o.Store.Peers().ByKey(t.Inviter)
	p, err := e.planJoin(t, r)
	if err != nil {
		return api.JoinResponse{}, err
	}
	keys, err := t.Keys()
	if err != nil {
		return api.JoinResponse{}, problem("join", err)
	}
	caller, stop := e.o.While(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(caller, waitOr(r.Wait, api.DefaultWait))
	defer cancel()
	request := ticket.Request{PublicKey: e.publicKey, Name: e.o.Peers.Config().Name, Grants: p.Allow}
	answer, err := e.callInviter(ctx, t, keys, &request)
	switch {
	case err != nil && caller.Err() != nil:
		return api.JoinResponse{}, fmt.Errorf("join %s: %w", p.Name, context.Cause(caller)) // nobody is there to read a reply
	case errors.Is(err, errNoAnswer):
		return e.reply(t, keys, p, request, err)
	case errors.Is(err, auth.ErrServer): // it may not be able to store
		return api.JoinResponse{}, admin.Failed(fmt.Sprintf("join: %s failed to enrol this gateway: %v", p.Name, err),
			"run `postern check` there; then join with the same ticket again: for this gateway it is still good")
	case err != nil:
		return api.JoinResponse{}, problem("join "+p.Name, err)
	}
	if p, err = e.answered(p, before, answer); err != nil {
		return api.JoinResponse{}, unstored(err, p.Name+" has taken the ticket")
	}
	if p.Pending { // since a moment ago
		return api.JoinResponse{}, e.mayJoin(p)
	}
	out := api.JoinResponse{Outcome: api.JoinConnected, Peer: p.Name, Granted: answer.Granted, User: e.o.UserOf(p.Name)}
	if answer.Pending {
		out.Outcome, out.Fingerprint = api.JoinPending, peer.Fingerprint(e.publicKey)
		return out, nil
	}
	switch err := echoUntil(ctx, e.o.Stack, p.PublicKey); {
	case err != nil && caller.Err() != nil:
		return api.JoinResponse{}, fmt.Errorf("join %s: %w", p.Name, context.Cause(caller))
	case err != nil:
		return api.JoinResponse{}, admin.Failed(fmt.Sprintf("join: %s took the ticket, but the tunnel with our own key does not come up: %v", p.Name, err),
			"the gateway keeps trying; see `postern status "+p.Name+"`")
	}
	return out, nil
}

// planJoin decides what the inviter will be here, and refuses conflicts before anything is sent.
func (e *Registrar) planJoin(t ticket.Ticket, r api.JoinRequest) (state.Peer, error) {
	if err := t.Check(time.Now()); err != nil {
		return state.Peer{}, problem("join", err)
	}
	if t.Inviter == e.publicKey {
		return state.Peer{}, admin.Usage("join: this gateway made the ticket itself", "run join at the other gateway")
	}
	if err := e.o.Peers.CheckServices("join --allow", r.Allow); err != nil {
		return state.Peer{}, err
	}
	if err := roster.CheckLocal(r.Local); err != nil {
		return state.Peer{}, err
	}
	p := state.Peer{
		Name: t.Name, PublicKey: t.Inviter, Mode: api.ModeInBand, Candidates: invited(t.Candidates),
		Allow: roster.Sorted(r.Allow), Local: r.Local, Origin: state.OriginJoined, JoinedAt: time.Now(),
	}
	if r.Name != "" {
		p.Name = r.Name
	}
	p.Identity = roster.IdentityFor(p.Name, p.PublicKey, r.Name != "")
	if err := api.CheckName(p.Name); err != nil {
		return state.Peer{}, admin.Usage("join: "+err.Error(), "choose what to call the inviter here: postern join --name NAME")
	}
	if cfg := e.o.Peers.Config(); r.Name == "" && roster.KeepsOptions(cfg, p.Name) {
		return state.Peer{}, admin.Conflict(fmt.Sprintf("join: the inviter calls itself %s, and %s has options for a peer of that name", p.Name, cfg.File),
			"if they are meant for it: postern join --name "+p.Name+"; else choose another name")
	}
	return p, e.mayJoin(p)
}

// mayJoin returns an error if the inviter cannot be this peer here.
func (e *Registrar) mayJoin(p state.Peer) error {
	roster := e.o.Peers.Load()
	if m := roster.ByName(p.Name); m != nil && m.Key != p.PublicKey {
		return admin.Conflict(fmt.Sprintf("join: there is a peer %s with another key already", p.Name),
			"choose another name for the inviter here: postern join --name NAME, or spec.join.name of the Ticket")
	}
	m := roster.ByKey(p.PublicKey)
	switch {
	case m == nil:
		if err := e.o.Peers.CheckKey("join "+p.Name, p.Name, p.PublicKey); err != nil {
			return err
		}
		if err := e.o.Peers.FreeIdentity(roster, cmp.Or(p.Identity, p.Name), p.PublicKey); err != nil {
			return admin.Conflict("join: "+err.Error(), "postern join --name NAME, or spec.join.name of the Ticket")
		}
		return nil
	case m.Name != p.Name:
		return admin.Conflict(fmt.Sprintf("join: the inviter is already the peer %s here", m.Name),
			"remove it first, or join with --name "+m.Name)
	case m.Pending:
		return admin.Conflict(fmt.Sprintf("join: %s waits for approval here, which joining its ticket must not give", p.Name),
			"compare its fingerprint, then: postern peer approve "+p.Name)
	case m.Stock:
		return admin.Conflict(fmt.Sprintf("join: %s is a plain WireGuard peer here, with the inviter's key", p.Name),
			"if it is a gateway now: postern peer remove "+p.Name+", then join again")
	case m.FromFile:
		return admin.Conflict(fmt.Sprintf("join: peer %s is in %s, with the inviter's key already", p.Name, e.o.Peers.Config().File),
			"nothing needs to be joined; see `postern status "+p.Name+"`")
	}
	return nil
}

// callInviter opens the one-time tunnel and redeems through it. Meanwhile it completes the request
// with this gateway's candidates and the proof of its key: where UDP is blocked both take seconds.
// Any error but errNoAnswer is the inviter's refusal.
func (e *Registrar) callInviter(ctx context.Context, t ticket.Ticket, keys ticket.Keys, q *ticket.Request) (auth.Redemption, error) {
	complete := func() (err error) {
		q.Candidates, _ = e.o.Paths.OwnCandidates(ctx)
		*q, err = q.Prove(ticket.InBand, keys.ID, t.Inviter, e.o.Key)
		return err
	}
	candidates := invited(t.Candidates)
	if len(candidates) == 0 {
		if err := complete(); err != nil {
			return auth.Redemption{}, err
		}
		return auth.Redemption{}, fmt.Errorf("%w: the ticket names no address of it", errNoAnswer)
	}
	p, err := e.openOneTime(keys, t.Inviter, candidates)
	if err != nil {
		return auth.Redemption{}, err
	}
	defer p.close()
	if err := complete(); err != nil {
		return auth.Redemption{}, err
	}
	return e.redeem(ctx, p, t, *q)
}

// redeem redeems a ticket through the one-time tunnel, until there is an answer.
func (e *Registrar) redeem(ctx context.Context, p *oneTime, t ticket.Ticket, q ticket.Request) (auth.Redemption, error) {
	client := auth.NewClient(peer.OverlayAddr(t.Inviter), p.dialContext)
	for {
		answer, err := redeemOnce(ctx, func(ctx context.Context) (auth.Redemption, error) { return client.Redeem(ctx, q) }, p.redial)
		if !errors.Is(err, auth.ErrUnreachable) {
			p.acknowledge(ctx)
		}
		switch {
		case err == nil:
			return answer, nil
		case !errors.Is(err, auth.ErrUnreachable) && !errors.Is(err, auth.ErrRateLimited):
			return auth.Redemption{}, err
		}
		select {
		case <-time.After(redeemPause/2 + rand.N(redeemPause/2)):
		case <-ctx.Done():
			if errors.Is(err, auth.ErrRateLimited) {
				return auth.Redemption{}, err
			}
			e.log.Debug("a ticket's inviter does not answer", "error", err)
			return auth.Redemption{}, fmt.Errorf("%w at %s", errNoAnswer, candidateText(t.Candidates))
		}
	}
}

func redeemOnce(ctx context.Context, ask func(context.Context) (auth.Redemption, error), redial func()) (auth.Redemption, error) {
	ctx, cancel := context.WithTimeout(ctx, redeemTry)
	defer cancel()
	defer time.AfterFunc(redialAfter/2+rand.N(redialAfter/2), redial).Stop()
	return ask(ctx)
}

// reply prepares for the inviter's call, and keeps calling it as well. The inviter's peer is added
// to the tunnel with the key that both sides derive from the ticket; the reply contains what the
// inviter needs to dial us.
func (e *Registrar) reply(t ticket.Ticket, keys ticket.Keys, p state.Peer, request ticket.Request, why error) (api.JoinResponse, error) {
	var err error
	if p.PresharedKey, err = keys.Peer.PeerKey(t.Inviter, e.publicKey); err != nil {
		return api.JoinResponse{}, problem("join", err)
	}
	q, err := request.Prove(ticket.ByReply, keys.ID, t.Inviter, e.o.Key)
	if err != nil {
		return api.JoinResponse{}, problem("join", err)
	}
	text, err := ticket.EncodeReply(keys, q)
	if err != nil {
		return api.JoinResponse{}, problem("join", err)
	}
	// Nobody has answered, so nothing proves that the inviter issued this ticket: anyone could put
	// a peer's key into one. And a peering that has worked needs no other preshared key. So an
	// existing peer stays as it is, unless it came from this very ticket and has never connected.
	worked := len(e.o.Peers.ProvenEndpoints(p.PublicKey)) > 0
	same := func(old state.Peer) error {
		if !worked && old.PresharedKey.Equal(p.PresharedKey) {
			return nil
		}
		return admin.Conflict(fmt.Sprintf("join: %s is a peer already, and the ticket is not answered (%v)", p.Name, why),
			"if it has served already, nothing needs to be done; to begin again: postern peer remove "+p.Name)
	}
	p.Awaited = t.Approve // which it can only say once it is reached
	if err := e.putJoined(&p, func(all *state.Peers) error { return e.replace(all, &p, same) }); err != nil {
		return api.JoinResponse{}, unstored(err, p.Name+" does not answer, and would be waited for")
	}
	e.joinLater(t, keys, p, request)
	out := api.JoinResponse{Outcome: api.JoinReply, Peer: p.Name, Reply: text, Reason: why.Error(), Granted: t.Allow, User: e.o.UserOf(p.Name)}
	if t.Approve {
		out.Fingerprint = peer.Fingerprint(e.publicKey)
	}
	return out, nil
}

// answered stores the inviter p after its answer, and returns it as stored. before is what it was
// here when the join began.
func (e *Registrar) answered(p, before state.Peer, answer auth.Redemption) (state.Peer, error) {
	p.PresharedKey, p.Offers, p.Awaited = answer.PresharedKey, answer.Granted, answer.Pending
	return p, e.putJoined(&p, func(all *state.Peers) error {
		if old, there := all.ByKey(p.PublicKey); there && old.Ticket != before.Ticket {
			p = e.crossed(old, p)
			return all.Put(p)
		}
		return e.replace(all, &p, func(state.Peer) error { return nil })
	})
}

// putJoined stores the inviter as the peer p, by put, and adds it to the tunnel.
func (e *Registrar) putJoined(p *state.Peer, put func(all *state.Peers) error) error {
	return e.o.Peers.Update(roster.Update{
		Peers: put,
		Applied: func() {
			e.log.Info("joined", "peer", p.Name, "publicKey", p.PublicKey.String(), "allow", p.Allow)
		},
	})
}

// replace adds the inviter, or replaces it by p. may returns an error if an existing peer must not
// be replaced.
func (e *Registrar) replace(all *state.Peers, p *state.Peer, may func(old state.Peer) error) error {
	if err := e.mayJoin(*p); err != nil { // things may have changed since the plan
		return err
	}
	if old, ok := all.Get(p.Name); ok { // repeating a join revokes nothing
		if err := may(old); err != nil {
			return err
		}
		p.Local, p.Identity, p.Undo = merged(old.Local, p.Local), old.Identity, old.Undo
		if len(p.Allow) == 0 {
			p.Allow = old.Allow
		}
	}
	if err := all.Put(*p); err != nil {
		return admin.Conflict("join: "+err.Error(), "")
	}
	return nil
}

// crossed returns the peer old, which redeemed a ticket of ours while we redeemed one of its, with
// what the join p adds. The peer keeps the name that it was invited by, and still needs the approval
// that its ticket asks for. Both sides must use the preshared key of the same ticket: that of the
// gateway with the lower key.
func (e *Registrar) crossed(old, p state.Peer) state.Peer {
	next := old
	if bytes.Compare(e.publicKey[:], p.PublicKey[:]) > 0 {
		next.PresharedKey, next.Origin = p.PresharedKey, p.Origin
	}
	next.Candidates, next.Offers, next.Awaited = p.Candidates, p.Offers, p.Awaited
	next.Local = merged(old.Local, p.Local)
	if len(p.Allow) > 0 {
		next.Allow = p.Allow
	}
	return next
}

// merged returns the listeners of both; next wins where they differ.
func merged(old, next map[string]string) map[string]string {
	out := make(map[string]string, len(old)+len(next))
	maps.Copy(out, old)
	maps.Copy(out, next)
	return out
}
