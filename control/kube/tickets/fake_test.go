//go:build linux && e2e

package tickets

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

var _ Gateway = (*fakeGateway)(nil)

// fakeGateway has a real book of tickets, and scripted results of joins.
type fakeGateway struct {
	t    *testing.T
	book *ticket.Book
	log  *buffer

	mu       sync.Mutex
	records  ticket.Records
	failing  error // of InviteFor
	answer   func(api.JoinRequest) (api.JoinResponse, error)
	joins    []api.JoinRequest
	joined   []state.Peer
	alarms   []api.Alarm
	problems []check.OwnProblem
	onChange func()
}

func newFakeGateway(t *testing.T) *fakeGateway {
	t.Helper()
	g := &fakeGateway{t: t, log: &buffer{}}
	var err error
	g.book, err = ticket.OpenBook(time.Now(), ticket.Options{Key: peer.PrivateKeyFromBytes([32]byte{16: 0xee}), Name: "edge", Storage: store{g}, Names: g})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *fakeGateway) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Tickets implements Gateway; the book's storage is another type.
func (g *fakeGateway) Tickets() []ticket.Standing { return g.book.Standings() }

func (g *fakeGateway) InviteFor(_ context.Context, r api.InviteRequest, object string) (api.InviteResponse, error) {
	g.mu.Lock()
	failing := g.failing
	g.mu.Unlock()
	if failing != nil {
		return api.InviteResponse{}, failing
	}
	v := ticket.Invitation{Name: r.Name, TTL: time.Duration(r.TTL), Allow: r.Allow, Approve: r.Approve, Object: object}
	t, info, err := g.book.Invite(time.Now(), v)
	if err != nil {
		return api.InviteResponse{}, err
	}
	text, err := t.Encode()
	return api.InviteResponse{Ticket: text, ID: info.ID.String(), ExpiresAt: info.ExpiresAt, Warnings: []string{"nobody can dial this gateway"}}, err
}

func (g *fakeGateway) Join(_ context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joins = append(g.joins, r)
	if g.answer == nil {
		return api.JoinResponse{}, admin.Usage("join: not expected", "")
	}
	return g.answer(r)
}

func (g *fakeGateway) Revoke(id string) error {
	parsed, err := ticket.ParseID(id)
	if err != nil {
		return err
	}
	return g.book.Revoke(time.Now(), parsed)
}

func (g *fakeGateway) Joined() []state.Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.joined)
}

func (g *fakeGateway) Status(context.Context) (api.Status, error) {
	var s api.Status
	for _, p := range g.Joined() {
		s.Peers = append(s.Peers, api.PeerStatus{Name: p.Name, State: api.StateConnected})
	}
	return s, nil
}

func (g *fakeGateway) Alarms() []api.Alarm {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.alarms)
}

func (g *fakeGateway) OnChange(f func()) { g.set(func() { g.onChange = f }) }

func (g *fakeGateway) SetProblems(_ string, list []check.OwnProblem) {
	g.set(func() { g.problems = list })
}

func (g *fakeGateway) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// asked returns the attempted joins.
func (g *fakeGateway) asked() []api.JoinRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.joins)
}

// Reserve implements ticket.Names.
func (g *fakeGateway) Reserve(string, peer.PublicKey, bool) error { return nil }

// store is the book's storage.
type store struct{ g *fakeGateway }

func (s store) Tickets() ticket.Records {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.g.records
}

func (s store) SaveTickets(r ticket.Records) error {
	s.g.set(func() { s.g.records = r })
	return nil
}

// foreignTicket returns a ticket issued by another gateway.
func foreignTicket(t *testing.T, inviter peer.PublicKey, life time.Duration) string {
	t.Helper()
	seed, err := ticket.NewSeed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := ticket.Ticket{Seed: seed, Inviter: inviter, Name: "cloud", Allow: []string{"auth"},
		Expires: time.Now().Add(life).Truncate(time.Second)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
