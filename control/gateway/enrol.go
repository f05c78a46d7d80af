package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// echoWait is how long each echo is waited for while a tunnel comes up. One may be lost to a
// handshake under way, so the next one follows after firstEchoPause, and others after pauses
// twice as long up to echoWait: of 21 joins by way of NATs two or three took a second more when
// all came a second apart.
const (
	firstEchoPause = 100 * time.Millisecond
	echoWait       = time.Second
)

// Invite makes a ticket.
func (g *Gateway) Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return g.InviteFor(ctx, r, "")
}

// InviteFor is Invite for an object of the cluster, whose UID is kept with the ticket.
func (g *Gateway) InviteFor(ctx context.Context, r api.InviteRequest, object string) (api.InviteResponse, error) {
	if err := g.peers.CheckServices("invite --allow", r.Allow); err != nil {
		return api.InviteResponse{}, err
	}
	if r.Name != "" {
		if err := api.CheckName(r.Name); err != nil {
			return api.InviteResponse{}, admin.Usage("invite --name: "+err.Error(), "choose what to call the joiner here")
		}
		if m := g.peers.Load().ByName(r.Name); m != nil && (m.FromFile || r.For != "" && r.For != m.Key.String()) {
			return api.InviteResponse{}, admin.Conflict(fmt.Sprintf("invite --name: there is a peer %s already", r.Name), "choose another name, or remove that peer first")
		}
	}
	v := ticket.Invitation{Name: r.Name, TTL: time.Duration(r.TTL), Allow: roster.Sorted(r.Allow), Approve: r.Approve, Object: object}
	if r.For != "" {
		k, err := peer.ParsePublicKey(r.For)
		if err != nil {
			return api.InviteResponse{}, admin.Usage("invite --for: "+err.Error(), "the joiner's `postern key pub` or `postern status` shows it")
		}
		v.For = k
	}
	var warnings []string
	ctx, cancel := g.whileRunning(ctx)
	defer cancel()
	v.Candidates, warnings = g.ownCandidates(ctx)
	if len(v.Candidates) == 0 {
		warnings = append(warnings, "this gateway knows no address of its own, so the joiner cannot dial it: set spec.discovery.advertise, or run `postern accept` with the reply that join prints")
	}
	if m := g.peers.Load().ByName(r.Name); m != nil {
		warnings = append(warnings, fmt.Sprintf("there is a peer %s already: the ticket is of no use before `postern peer remove %s`", m.Name, m.Name))
	} else if h := g.peers.HolderOf(v.For); !v.For.IsZero() && h != nil {
		warnings = append(warnings, "--for is "+h.What+": the ticket is of no use while that is so")
	}
	user := ""
	if r.Name != "" {
		user = g.auth.userFor(r.Name)
		if err := g.peers.Reserved(r.Name, v.For); err != nil {
			warnings = append(warnings, fmt.Sprintf("only the key that this name belongs to can take it: %v", err))
		}
	}
	var t ticket.Ticket
	var info ticket.Info
	// The one-time peer is in the tunnel before the ticket is out.
	if err := g.peers.Change(func(c *roster.Change) (err error) {
		if t, info, err = g.peers.Book().Invite(time.Now(), v); err != nil {
			return err
		}
		return c.Refresh()
	}); err != nil {
		return api.InviteResponse{}, problem("invite", err)
	}
	text, err := t.Encode()
	if err != nil {
		return api.InviteResponse{}, problem("invite", err)
	}
	return api.InviteResponse{
		Ticket: text, ID: info.ID.String(), ExpiresAt: info.ExpiresAt.UTC(),
		Candidates: apiCandidates(v.Candidates), User: user, Warnings: warnings,
	}, nil
}

// Accept makes this gateway dial a joiner that could not reach it.
func (g *Gateway) Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	reply, err := ticket.DecodeReply(r.Reply)
	if err != nil {
		return api.AcceptResponse{}, problem("accept", err)
	}
	grant, err := g.enrol(func(now time.Time) (ticket.Grant, error) { return g.peers.Book().Accept(now, reply) })
	if err != nil {
		return api.AcceptResponse{}, problem("accept", err)
	}
	out := api.AcceptResponse{Peer: grant.Name, User: g.auth.userOf(grant.Name)}
	if grant.Pending {
		out.Reason = fmt.Sprintf("waits for approval: compare the fingerprint %s with the peer's operator, then postern peer approve %s", peer.Fingerprint(grant.PublicKey), grant.Name)
		return out, nil
	}
	ctx, stop := g.whileRunning(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, waitOr(r.Wait, defaultWait))
	defer cancel()
	if err := echoUntil(ctx, g.plane.Stack, grant.PublicKey); err != nil {
		out.Reason = fmt.Sprintf("%s does not answer at %s yet (%v); the gateway keeps trying",
			grant.Name, candidateText(grant.Candidates), err)
		return out, nil
	}
	out.Connected = true
	return out, nil
}

// enrol has the ticket book decide, stores the peer that it grants and puts it into the
// tunnel. It may be repeated.
func (g *Gateway) enrol(decide func(now time.Time) (ticket.Grant, error)) (grant ticket.Grant, err error) {
	err = g.peers.Change(func(c *roster.Change) (err error) {
		if grant, err = decide(time.Now()); err != nil {
			return err
		}
		return c.Update(roster.Update{
			Peers: func(all *state.Peers) error { return g.putGranted(all, grant) },
			Applied: func() {
				g.log.Info("peer joined by ticket", "peer", grant.Name, "publicKey", grant.PublicKey.String(),
					"fingerprint", peer.Fingerprint(grant.PublicKey), "allow", grant.Allow, "pending", grant.Pending)
			},
		})
	})
	return grant, err
}

// putGranted makes the peer that a ticket granted, or brings the one that is there up to
// date. What an operator has allowed since the ticket was redeemed stays.
func (g *Gateway) putGranted(all *state.Peers, grant ticket.Grant) error {
	id := grant.Ticket.String()
	p, known := all.Get(grant.Name)
	switch {
	case known && p.PublicKey != grant.PublicKey:
		return &ticket.NameTakenError{Name: grant.Name}
	case !known:
		p = state.Peer{Name: grant.Name, Identity: roster.IdentityFor(grant.Name, grant.PublicKey, grant.Chosen),
			PublicKey: grant.PublicKey, Mode: api.ModeInBand, Origin: state.OriginInvited, JoinedAt: time.Now()}
	}
	if p.Ticket != id {
		p.Ticket, p.Allow = id, roster.Sorted(grant.Allow)
	}
	p.PresharedKey, p.Offers, p.Pending = grant.PresharedKey, grant.Offers, grant.Pending
	p.Candidates = g.announced(grant.Candidates)
	return all.Put(p)
}

// echoUntil sends echoes to a peer until one is answered, which needs a tunnel in both
// directions, or ctx ends.
func echoUntil(ctx context.Context, stack pinger, k peer.PublicKey) error {
	var echoes sync.WaitGroup
	defer echoes.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error)
	var last error
	for pause := firstEchoPause; ; pause = min(2*pause, echoWait) {
		echoes.Go(func() {
			once, end := context.WithTimeout(ctx, echoWait)
			defer end()
			_, err := stack.Ping(once, peer.OverlayAddr(k), pingPayload)
			select {
			case answers <- err:
			case <-ctx.Done():
			}
		})
		for next := time.After(pause); next != nil; {
			select {
			case err := <-answers:
				if err == nil {
					return nil
				}
				last = err
			case <-next:
				next = nil
			case <-ctx.Done():
				return fmt.Errorf("no echo in the time given: %w", errors.Join(context.Cause(ctx), last))
			}
		}
	}
}

// pinger sends an echo and waits for its answer, as a [netstack.Stack] does.
type pinger interface {
	Ping(ctx context.Context, to netip.Addr, payload int) (time.Duration, error)
}

func candidateText(list []ticket.Candidate) string {
	if len(list) == 0 {
		return "any address, for it announced none"
	}
	text := ""
	for i, c := range list {
		if i > 0 {
			text += ", "
		}
		text += c.Addr.String()
	}
	return text
}

func waitOr(d api.Duration, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return time.Duration(d)
}
