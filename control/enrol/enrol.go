// Package enrol makes peers by ticket: it invites, joins and accepts, and opens the tunnel in which
// a ticket is redeemed. It also rotates the keys of the gateway and its peers.
package enrol

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/plane"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// Options configure a Registrar.
type Options struct {
	Key   peer.PrivateKey // this gateway's
	Store *state.Store
	Peers *roster.Registry
	Paths Paths
	Stack Stack
	// OpenPlane opens a separate plane for a ticket's key.
	OpenPlane func(key peer.PrivateKey) (*plane.Plane, error)
	// OwnAddrs returns this host's addresses, at which no peer is dialled.
	OwnAddrs func() ([]netip.Addr, error)
	// UserOf returns the user name of the peer called name at this cluster's API server, UserFor
	// that of a future peer.
	UserOf, UserFor func(name string) string
	// While returns a ctx that also ends with the gateway, so that no command outlives it.
	While  func(ctx context.Context) (context.Context, context.CancelFunc)
	Audit  *audit.Log
	Logger *slog.Logger
}

// Paths tells where this gateway can be reached.
type Paths interface {
	OwnCandidates(ctx context.Context) (list []ticket.Candidate, warnings []string)
	Allocate(bind *underlay.Bind, onChange func()) *paths.Relays
}

// Stack is the stack of the gateway's main tunnel.
type Stack interface {
	pinger
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Registrar enrols peers and rotates keys. It is safe for concurrent use.
type Registrar struct {
	o         Options
	log       *slog.Logger
	publicKey peer.PublicKey // of Key

	// rotating is held while peers are told the next key; restarts is closed when that is in force,
	// and restart closes it only once.
	rotating sync.Mutex
	restart  sync.Once
	restarts chan struct{}

	later later

	// met is when the last handshake with a peer was, for Tick.
	met map[peer.PublicKey]time.Time
}

// New returns a registrar for the tickets of the registry's book.
func New(o Options) *Registrar {
	return &Registrar{
		o: o, log: o.Logger, publicKey: o.Key.Public(), restarts: make(chan struct{}), met: map[peer.PublicKey]time.Time{},
	}
}

// Tick notes which peers completed a handshake, which closes their tickets and shows that they have
// approved this gateway, and switches peers to their announced key once they use it. One goroutine calls it every second or two.
func (e *Registrar) Tick(now time.Time, s tunnel.Snapshot) {
	r := e.o.Peers.Load()
	maps.DeleteFunc(e.met, func(k peer.PublicKey, _ time.Time) bool { return r.ByKey(k) == nil })
	for _, m := range r.Members() {
		at := s.Peers[m.Key].LastHandshake
		if !at.After(e.met[m.Key]) {
			continue
		}
		e.met[m.Key] = at
		if err := e.o.Peers.Book().Finish(now, m.Key); err != nil {
			e.log.Warn("failed to close a redeemed ticket", "peer", m.Name, "error", err)
		}
		if !m.Awaited {
			continue
		}
		update := roster.Update{Peers: roster.EditPeer(m, func(p *state.Peer) { p.Awaited = false })}
		if err := e.o.Peers.Update(update); err != nil {
			e.log.Warn("failed to store that a peer has approved this gateway", "peer", m.Name, "error", err)
		}
	}
	e.succeed(s)
}

// Accept makes this gateway dial a joiner that could not reach it.
func (e *Registrar) Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	reply, err := ticket.DecodeReply(r.Reply)
	if err != nil {
		return api.AcceptResponse{}, problem("accept", err)
	}
	grant, err := e.enrol(func(now time.Time) (ticket.Grant, error) { return e.o.Peers.Book().Accept(now, reply) })
	if err != nil {
		return api.AcceptResponse{}, problem("accept", err)
	}
	out := api.AcceptResponse{Peer: grant.Name, User: e.o.UserOf(grant.Name)}
	if grant.Pending {
		out.Reason = fmt.Sprintf("it waits for approval: compare the fingerprint %s with the peer's operator, then postern peer approve %s", peer.Fingerprint(grant.PublicKey), grant.Name)
		return out, nil
	}
	ctx, stop := e.o.While(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, waitOr(r.Wait, api.DefaultWait))
	defer cancel()
	if err := echoUntil(ctx, e.o.Stack, grant.PublicKey); err != nil {
		out.Reason = fmt.Sprintf("it does not answer at %s yet (%v); the gateway keeps trying", candidateText(grant.Candidates), err)
		return out, nil
	}
	out.Connected = true
	return out, nil
}

// Redeem makes a peer of whoever redeems a ticket through its one-time tunnel. The decision and its
// effect are atomic: a peer cannot be removed in between and come back.
func (e *Registrar) Redeem(_ context.Context, oneTime peer.PublicKey, q ticket.Request) (ticket.Grant, error) {
	return e.enrol(func(now time.Time) (ticket.Grant, error) { return e.o.Peers.Book().Redeem(now, oneTime, q) })
}

// enrol lets the ticket book decide, stores the peer that it grants and adds it to the tunnel. It
// may be repeated.
func (e *Registrar) enrol(decide func(now time.Time) (ticket.Grant, error)) (grant ticket.Grant, err error) {
	err = e.o.Peers.Change(func(c *roster.Change) (err error) {
		if grant, err = decide(time.Now()); err != nil {
			return err
		}
		return c.Update(roster.Update{
			Peers: func(all *state.Peers) error { return e.putGranted(all, &grant) },
			Applied: func() {
				e.log.Info("peer joined by ticket", "peer", grant.Name, "publicKey", grant.PublicKey.String(),
					"fingerprint", peer.Fingerprint(grant.PublicKey), "allow", grant.Allow, "pending", grant.Pending)
			},
		})
	})
	return grant, err
}

// putGranted creates the peer that a ticket granted, or updates an existing one. What an operator
// has allowed since the redemption stays, as does the preshared key of a ticket that we joined by
// meanwhile: the grant then has it, so that both sides know the same, however often they ask.
func (e *Registrar) putGranted(all *state.Peers, grant *ticket.Grant) error {
	id := grant.Ticket.String()
	p, known := all.Get(grant.Name)
	switch {
	case known && p.PublicKey != grant.PublicKey:
		return &ticket.NameTakenError{Name: grant.Name}
	case !known:
		p = state.Peer{Name: grant.Name, Identity: roster.IdentityFor(grant.Name, grant.PublicKey, grant.Chosen),
			PublicKey: grant.PublicKey, Mode: api.ModeInBand, Origin: state.OriginInvited, JoinedAt: time.Now()}
	}
	if p.Ticket == id && p.Origin == state.OriginJoined { // see crossed
		grant.PresharedKey = p.PresharedKey
	}
	if p.Ticket != id {
		p.Ticket, p.Allow, p.Undo = id, roster.Sorted(grant.Allow), state.Undo{}
	}
	p.PresharedKey, p.Offers, p.Pending = grant.PresharedKey, grant.Offers, grant.Pending
	p.Candidates = e.announced(grant.Candidates)
	return all.Put(p)
}

func waitOr(d api.Duration, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return time.Duration(d)
}
