package enrol

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

type noTunnel struct{}

func (noTunnel) SetPeers([]peer.Config) error { return nil }
func (noTunnel) Abort(func(netip.Addr) bool)  {}

// side is a gateway without a network: a test carries what it would send.
type side struct {
	*Registrar
	t *testing.T
}

func newSide(t *testing.T, name string, key peer.PrivateKey) side {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := state.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	reg, err := roster.Open(roster.Options{
		Key: key, Config: &config.Resolved{Name: name}, Store: store, Flows: forward.NewFlows(forward.Limits{}),
		Auth: forward.NewListener(&net.TCPAddr{}), SetProblems: func(string, []check.OwnProblem) {},
		StartedAt: time.Now(), Audit: audit.New(log), Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := reg.Bring(noTunnel{}, noTunnel{}); err != nil {
		t.Fatal(err)
	}
	return side{New(Options{
		Key: key, Store: store, Peers: reg, Audit: audit.New(log), Logger: log,
		OwnAddrs: func() ([]netip.Addr, error) { return nil, nil },
	}), t}
}

func (s side) invite(v ticket.Invitation) ticket.Ticket {
	s.t.Helper()
	t, _, err := s.o.Peers.Book().Invite(time.Now(), v)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

// joining is a join in progress.
type joining struct {
	at        side
	inviter   side
	with      ticket.Ticket
	p, before state.Peer
	answer    auth.Redemption
}

func (s side) begin(inviter side, t ticket.Ticket) *joining {
	s.t.Helper()
	before, _ := s.o.Store.Peers().ByKey(t.Inviter)
	p, err := s.planJoin(t, api.JoinRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	return &joining{at: s, inviter: inviter, with: t, p: p, before: before}
}

// ask has the inviter answer. It may be called again, as when an answer is lost.
func (j *joining) ask() {
	t := j.at.t
	t.Helper()
	keys, err := j.with.Keys()
	if err != nil {
		t.Fatal(err)
	}
	q := ticket.Request{PublicKey: j.at.publicKey, Name: j.at.o.Peers.Config().Name}
	if q, err = q.Prove(ticket.InBand, keys.ID, j.with.Inviter, j.at.o.Key); err != nil {
		t.Fatal(err)
	}
	g, err := j.inviter.Redeem(t.Context(), keys.OneTime.Public(), q)
	if err != nil {
		t.Fatal(err)
	}
	j.answer = auth.Redemption{PresharedKey: g.PresharedKey, Granted: g.Allow, Pending: g.Pending}
}

func (j *joining) end() {
	j.at.t.Helper()
	if _, err := j.at.answered(j.p, j.before, j.answer); err != nil {
		j.at.t.Errorf("%s: %v", j.at.o.Peers.Config().Name, err)
	}
}

// Two gateways redeem each other's tickets at once. Whatever happens on the way, both end with one
// preshared key.
func TestCrossingJoinsAgreeOnAPresharedKey(t *testing.T) {
	for name, c := range map[string]struct {
		low, high ticket.Invitation
		then      func(low, high side, l, h *joining)
	}{
		"both complete":          {then: func(_, _ side, l, h *joining) { l.end(); h.end() }},
		"in the other order":     {then: func(_, _ side, l, h *joining) { h.end(); l.end() }},
		"an answer to low lost":  {then: func(_, _ side, l, h *joining) { h.end(); l.ask(); l.end() }},
		"an answer to high lost": {then: func(_, _ side, l, h *joining) { l.end(); h.ask(); h.end() }},
		"both chose names": {low: ticket.Invitation{Name: "upper"}, high: ticket.Invitation{Name: "lower"},
			then: func(_, _ side, l, h *joining) { l.end(); h.end() }},
		"low approves":  {low: ticket.Invitation{Approve: true}, then: func(_, _ side, l, h *joining) { l.end(); h.end() }},
		"high approves": {high: ticket.Invitation{Approve: true}, then: func(_, _ side, l, h *joining) { l.end(); h.end() }},
		"low joins again": {then: func(low, high side, l, h *joining) {
			l.end()
			h.end()
			again := low.begin(high, l.with)
			again.ask()
			again.end()
		}},
		"low was restarted, and joins again": {then: func(low, high side, l, h *joining) {
			h.end()
			again := low.begin(high, l.with)
			again.ask()
			again.end()
		}},
		"high was restarted, and joins again": {then: func(low, high side, l, h *joining) {
			l.end()
			again := high.begin(low, h.with)
			again.ask()
			again.end()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := peer.PrivateKeyFromBytes([32]byte{0, 1}), peer.PrivateKeyFromBytes([32]byte{0, 2})
			if ka, kb := a.Public(), b.Public(); bytes.Compare(ka[:], kb[:]) > 0 {
				a, b = b, a
			}
			low, high := newSide(t, "low", a), newSide(t, "high", b)
			l, h := low.begin(high, high.invite(c.high)), high.begin(low, low.invite(c.low))
			l.ask()
			h.ask()
			c.then(low, high, l, h)
			atLow, _ := low.o.Store.Peers().ByKey(high.publicKey)
			atHigh, _ := high.o.Store.Peers().ByKey(low.publicKey)
			if !atLow.PresharedKey.Equal(atHigh.PresharedKey) || atLow.PresharedKey.IsZero() {
				t.Error("the two have different preshared keys")
			}
			if atLow.Pending != c.low.Approve || atHigh.Pending != c.high.Approve {
				t.Errorf("pending: %v and %v, want %v and %v: a join must approve nothing", atLow.Pending, atHigh.Pending, c.low.Approve, c.high.Approve)
			}
		})
	}
}

// A ticket that nobody answers may name any gateway: it changes nothing of one that is a peer.
func TestAnUnansweredJoinReplacesNoPresharedKey(t *testing.T) {
	a, b := newSide(t, "a", peer.PrivateKeyFromBytes([32]byte{0, 1})), newSide(t, "b", peer.PrivateKeyFromBytes([32]byte{0, 2}))
	b.begin(a, a.invite(ticket.Invitation{})).ask() // so b is a peer with a ticket of a's
	before, _ := a.o.Store.Peers().ByKey(b.publicKey)
	forged := b.invite(ticket.Invitation{})
	p, err := a.planJoin(forged, api.JoinRequest{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := forged.Keys()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.reply(forged, keys, p, ticket.Request{PublicKey: a.publicKey, Name: "a"}, errors.New("no answer")); err == nil {
		t.Error("the peer was replaced")
	}
	if after, _ := a.o.Store.Peers().ByKey(b.publicKey); !after.PresharedKey.Equal(before.PresharedKey) || before.PresharedKey.IsZero() {
		t.Error("the preshared key is another")
	}
}
