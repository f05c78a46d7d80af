package roster

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// ErrStopping refuses changes to a gateway that is being closed.
var ErrStopping error = admin.Conflict("the gateway is stopping", "")

// Tunnel takes the whole set of peers, or refuses it and changes nothing.
type Tunnel interface {
	SetPeers(peers []peer.Config) error
}

// Stack ends what is left of the connections with an overlay address.
type Stack interface {
	AbortPeer(a netip.Addr)
}

// Options are what a registry is made of.
type Options struct {
	Key    peer.PrivateKey // this gateway's
	Config *config.Resolved
	Store  *state.Store
	// Namespace is the one that the gateway lives in; empty outside of a cluster.
	Namespace string
	Flows     *forward.Flows
	// Auth serves the in-band service that every peer may reach.
	Auth forward.Handler
	// SetProblems takes what is wrong with the entries of the state directory.
	SetProblems func(source string, list []check.OwnProblem)
	StartedAt   time.Time
	Audit       *audit.Log
	Logger      *slog.Logger
}

// Registry knows who is a peer here and what it may reach, and is the one place where that
// changes. Readers load the last roster that was applied, whole, and never wait. Whoever
// changes something holds the one lock from the decision to its effect. It is safe for
// concurrent use.
type Registry struct {
	o         Options
	publicKey peer.PublicKey // of the key: working it out takes 40 µs
	log       *slog.Logger
	store     *state.Store
	flows     *forward.Flows
	book      *ticket.Book
	inbound   *forward.Inbound
	tunnel    Tunnel // since Bring
	stack     Stack

	*View // replaced by whoever holds changing

	// changing is held by whoever changes what the gateway is to do, or what is remembered
	// of a peer. It is not held while anything is waited for that needs it, nor over the
	// network.
	changing    sync.Mutex
	closed      bool // nothing may be changed any more
	subscribers []func(old, next *Roster)

	upkeep   upkeep
	learning learning
}

// Open makes a registry without peers. It opens the ticket book of the state
// directory.
func Open(o Options) (*Registry, error) {
	reg := &Registry{
		o: o, publicKey: o.Key.Public(), log: o.Logger, store: o.Store, flows: o.Flows,
		View: NewView(&Roster{}, o.Config),
	}
	reg.disclaimOwnKey()
	var err error
	if reg.book, err = ticket.OpenBook(time.Now(), ticket.Options{
		Key: o.Key, Name: o.Config.Name, Storage: o.Store, Names: reg, Audit: o.Audit,
	}); err != nil {
		return nil, err
	}
	reg.inbound = forward.NewInbound(o.Flows, forward.InboundOptions{
		Resolve: func(a netip.Addr) (forward.Peer, bool) { return reg.Load().Resolve(a) },
		Allowed: func(p forward.Peer, service string) bool { return reg.Load().allowed(p, service) },
		Logger:  o.Logger, Audit: o.Audit,
	})
	return reg, nil
}

// Bring applies the configuration of the start to the tunnel, and subscribers hear of their
// first peers.
func (reg *Registry) Bring(up Tunnel, stack Stack) error {
	reg.tunnel, reg.stack = up, stack
	if err := reg.Change(func(c *Change) error { return c.applyFirst(reg.Config()) }); err != nil {
		return err
	}
	reg.ShowAside()
	return nil
}

// Close refuses all further changes. It waits for the one under way.
func (reg *Registry) Close() {
	reg.changing.Lock()
	defer reg.changing.Unlock()
	reg.closed = true
}

// Book has the tickets that were made here.
func (reg *Registry) Book() *ticket.Book { return reg.book }

// Inbound serves the connections of peers by the roster's grants.
func (reg *Registry) Inbound() *forward.Inbound { return reg.inbound }

// Subscribe has f told of each roster that was applied, in the order of subscription and with
// the lock held: f must not change who the peers are, and must not block. By then the tunnel
// has the next peers, and what they may no longer reach is cut off. What was learned of those
// that are gone is dropped once all have been told. It is called before Bring.
func (reg *Registry) Subscribe(f func(old, next *Roster)) {
	reg.subscribers = append(reg.subscribers, f)
}

// Change is the right to change who the peers are, or what is remembered of them. There is
// one at a time.
type Change struct{ reg *Registry }

// Change runs f, which alone may change anything meanwhile. It does not once the registry is
// closed.
func (reg *Registry) Change(f func(*Change) error) error {
	reg.changing.Lock()
	defer reg.changing.Unlock()
	if reg.closed {
		return ErrStopping
	}
	return f(&Change{reg})
}

// Refresh is Apply with the configuration in force.
func (c *Change) Refresh() error { return c.Apply(c.reg.Config()) }

// Learn runs f unless the peer with the key was removed meanwhile: what is remembered of a
// peer after it was forgotten would stay for ever.
func (reg *Registry) Learn(k peer.PublicKey, f func(*Member)) {
	reg.LearnAll(func(r *Roster) {
		if m := r.ByKey(k); m != nil {
			f(m)
		}
	})
}

// LearnAll is Learn for many peers: f keeps to those of the roster.
func (reg *Registry) LearnAll(f func(*Roster)) {
	_ = reg.Change(func(*Change) error { f(reg.Load()); return nil }) // a gateway that closes learns nothing
}
