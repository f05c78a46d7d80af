package ticket

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// MaxOpen bounds the tickets that can still be redeemed: each one is a peer of the tunnel.
	MaxOpen = 256
	// MaxFailures failed redemptions burn a ticket.
	MaxFailures = 5
	// DefaultTTL is a ticket's default lifetime.
	DefaultTTL = time.Hour
	// MinTTL is its minimum: a join takes a second or two.
	MinTTL = 5 * time.Second
	// MaxTTL is its maximum: a ticket is a secret that stays in chats.
	MaxTTL = 30 * 24 * time.Hour

	// MaxRemembered ended tickets are stored for keepEnded, so that a late joiner is told what
	// happened to its ticket.
	MaxRemembered = 1024
	keepEnded     = 7 * 24 * time.Hour
)

// Storage stores the book. SaveTickets returns only once the records will survive a crash; on an
// error the old ones stay in force.
type Storage interface {
	Tickets() Records
	SaveTickets(Records) error
}

// Names knows the keys and names in use. Reserve reports why a joiner with this key cannot become
// the peer of this name: a [*KeyTakenError] if the key is taken, a [*NameTakenError] if the name
// is. chosen says that the inviter chose the name: what is reserved for a name must not go to a
// joiner that merely claims it. Reserve is called while the book is locked, and may only call its
// IsOneTime.
type Names interface {
	Reserve(name string, key peer.PublicKey, chosen bool) error
}

// Options configure a Book.
type Options struct {
	// Key is this gateway's, Name its name; every ticket contains the public key and the name.
	Key     peer.PrivateKey
	Name    string
	Storage Storage
	Names   Names
	// Audit may be nil.
	Audit *audit.Log
}

// Book holds the tickets that this gateway has issued. It has no clock or goroutine: calls that
// depend on time take it as an argument, and Expire must be called at NextDeadline and at least
// once a minute.
//
// It is safe for concurrent use. Every change is stored before it takes effect. If that fails the
// call returns an [ErrStorage] and nothing has changed; only Forget takes effect anyway.
type Book struct {
	o    Options
	self peer.PublicKey // of o.Key

	turn    chan struct{} // one slot: held by whoever changes the book
	records atomic.Pointer[Records]
	alarms  atomic.Uint64
	alarmed atomic.Pointer[alarm] // the last one
	// unstored: records are ahead of the storage.
	unstored atomic.Bool

	// Owned by the holder of turn.
	seen    time.Time        // latest time seen, monotonic reading included
	dropped []peer.PublicKey // one-time peers that ended since the last Expire
}

// OpenBook reads the book and ends the tickets that have expired meanwhile. If that cannot be
// stored, it is in force anyway, and the book is [Book.Unstored]: a full disk must not keep a gateway
// from starting.
func OpenBook(now time.Time, o Options) (*Book, error) {
	if o.Storage == nil || o.Names == nil || o.Key.IsZero() {
		return nil, errors.New("open the ticket book: storage, names and the gateway's key are needed")
	}
	if err := api.CheckName(o.Name); err != nil {
		return nil, fmt.Errorf("open the ticket book: the gateway's %w", err)
	}
	b := &Book{o: o, self: o.Key.Public(), turn: make(chan struct{}, 1)}
	records := o.Storage.Tickets()
	b.records.Store(&records)
	b.seen = records.Seen
	if b.seen.IsZero() {
		b.seen = now
	}
	err := b.change(now, func(e *edit) error {
		e.atOnce = true
		return nil
	})
	if err != nil && !errors.Is(err, ErrStorage) {
		return nil, fmt.Errorf("open the ticket book: %w", err)
	}
	return b, nil
}

// Invitation says what a ticket grants.
type Invitation struct {
	// Name is our name for the joiner; empty means its own name.
	Name string
	// TTL is the ticket's lifetime; 0 means DefaultTTL.
	TTL time.Duration
	// For is the only key that may redeem it, unless zero.
	For peer.PublicKey
	// Allow lists the local services that the joiner may reach.
	Allow []string
	// Approve leaves the peer pending until Approve.
	Approve bool
	// Candidates of this gateway, best first. More than MaxCandidates are cut off.
	Candidates []Candidate
	// Object is the UID of the cluster object that requested the ticket; empty if none did.
	Object string
}

func (v Invitation) check() error {
	if v.Name != "" {
		if err := api.CheckName(v.Name); err != nil {
			return fmt.Errorf("%w: %w", ErrName, err)
		}
	}
	if v.TTL != 0 && v.TTL < MinTTL || v.TTL > MaxTTL {
		return fmt.Errorf("%w: a life of %s; it must be between %s and %s", ErrRequest, v.TTL, MinTTL, MaxTTL)
	}
	if err := checkServices(v.Allow); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// Info describes a ticket without its secrets.
type Info struct {
	ID ID
	// OneTime is the public key through whose tunnel the ticket is redeemed.
	OneTime   peer.PublicKey
	Name      string
	Allow     []string
	Approve   bool
	ExpiresAt time.Time
	State     State
	// Object is the UID of the cluster object that requested it; empty if none did.
	Object string
}

func (r Record) info() Info {
	return Info{ID: r.ID, OneTime: r.OneTime, Name: r.Name, Allow: r.Allow, Approve: r.Approve, ExpiresAt: r.ExpiresAt, State: r.State, Object: r.Object}
}

// Invite creates a ticket. The one-time peer must be in the tunnel before the ticket is handed out:
// see OneTimePeers.
func (b *Book) Invite(now time.Time, v Invitation) (Ticket, Info, error) {
	if err := v.check(); err != nil {
		return Ticket{}, Info{}, err
	}
	if v.TTL == 0 {
		v.TTL = DefaultTTL
	}
	seed, err := NewSeed()
	if err != nil {
		return Ticket{}, Info{}, err
	}
	t := Ticket{
		Seed: seed, Inviter: b.self, Name: b.o.Name, Allow: v.Allow, Approve: v.Approve,
		// The text has whole seconds; rounding up keeps a short lifetime from becoming zero.
		Expires:    now.Add(v.TTL + time.Second - 1).Truncate(time.Second),
		Candidates: v.Candidates[:min(len(v.Candidates), MaxCandidates)],
	}
	k, err := t.Keys()
	if err != nil {
		return Ticket{}, Info{}, err
	}
	if _, err := t.Encode(); err != nil {
		return Ticket{}, Info{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	record := Record{
		ID: k.ID, Inviter: b.self, OneTime: k.OneTime.Public(), Tunnel: k.Tunnel, Reply: k.Reply, Peer: k.Peer,
		Name: v.Name, For: v.For, Allow: v.Allow, Approve: v.Approve, Object: v.Object,
		CreatedAt: now.Round(0), ExpiresAt: t.Expires.Round(0), State: Open,
	}
	err = b.change(now, func(e *edit) error {
		open := 0
		for _, r := range e.List {
			if r.live() {
				open++
			}
		}
		if open >= MaxOpen {
			return ErrTooMany
		}
		e.makeRoom()
		e.List = append(e.List, record)
		e.dirty = true
		return nil
	})
	if err != nil {
		return Ticket{}, Info{}, err
	}
	b.o.Audit.Record(context.Background(), audit.Invite, audit.Ticket(k.ID.String()), audit.Peer(v.Name),
		audit.Services(v.Allow), audit.ExpiresAt(record.ExpiresAt))
	return t, record.info(), nil
}

// OneTime is a peer that the tunnel must have while its ticket is answered. It may only reach auth.
type OneTime struct {
	Ticket       ID
	PublicKey    peer.PublicKey
	PresharedKey peer.PresharedKey
	ExpiresAt    time.Time
}

// OneTimePeers lists the one-time peers that the tunnel must have now, in order of creation.
func (b *Book) OneTimePeers(now time.Time) []OneTime {
	var list []OneTime
	for _, r := range b.records.Load().List {
		if r.answers() && now.Before(r.ExpiresAt) {
			list = append(list, OneTime{Ticket: r.ID, PublicKey: r.OneTime, PresharedKey: r.Tunnel, ExpiresAt: r.ExpiresAt})
		}
	}
	return list
}

// IsOneTime reports whether a key is a stored ticket's, rather than a gateway's.
func (b *Book) IsOneTime(k peer.PublicKey) bool {
	return b.records.Load().find(byOneTime(k)) != nil
}

// Alarms returns the number of redemptions by a second key since the book was opened.
func (b *Book) Alarms() uint64 { return b.alarms.Load() }

// alarm is when a ticket was tried by a second key, and the key that has joined with it.
type alarm struct {
	at     time.Time
	joined peer.PublicKey
}

// LastAlarm returns when the last of them was, zero if there was none, and the key that has joined with
// the ticket.
func (b *Book) LastAlarm() (at time.Time, joined peer.PublicKey) {
	if a := b.alarmed.Load(); a != nil {
		return a.at, a.joined
	}
	return time.Time{}, peer.PublicKey{}
}
