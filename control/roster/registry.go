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

// ErrStopping rejects changes to a gateway that is being closed.
var ErrStopping error = admin.Conflict("the gateway is stopping", "")

// Tunnel takes the whole set of peers, or refuses it and changes nothing.
type Tunnel interface {
	SetPeers(peers []peer.Config) error
}

// Stack ends what remains of the connections with some overlay addresses.
type Stack interface {
	Abort(with func(remote netip.Addr) bool)
}

// Options configure a Registry.
type Options struct {
	Key    peer.PrivateKey // this gateway's
	Config *config.Resolved
	Store  *state.Store
	// Namespace is the gateway's; empty outside a cluster.
	Namespace string
	Flows     *forward.Flows
	// Auth serves the in-band service that every peer may reach.
	Auth forward.Handler
	// SetProblems sets the problems with entries of the state directory.
	SetProblems func(source string, list []check.OwnProblem)
	StartedAt   time.Time
	Audit       *audit.Log
	Logger      *slog.Logger
}

// Registry knows who is a peer here and what it may reach, and is the only place where that
// changes. Readers load the latest applied roster without waiting. A change holds the one lock from
// the decision to its effect. It is safe for concurrent use.
type Registry struct {
	o         Options
	publicKey peer.PublicKey // of the key: deriving it takes 40 µs
	log       *slog.Logger
	store     *state.Store
	flows     *forward.Flows
	book      *ticket.Book
	inbound   *forward.Inbound
	tunnel    Tunnel // since Bring
	stack     Stack

	*View // replaced with changing held

	// changing is held while changing what the gateway is to do, or what is stored about a peer. It
	// is not held while waiting for anything that needs it, nor during network I/O.
	changing    sync.Mutex
	closed      bool // no more changes
	subscribers []func(old, next *Roster)

	upkeep   upkeep
	learning learning
}

// Open returns a registry without peers. It opens the ticket book of the state directory.
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

// Bring applies the initial configuration to the tunnel, and notifies subscribers of their first
// peers.
func (reg *Registry) Bring(up Tunnel, stack Stack) error {
	reg.tunnel, reg.stack = up, stack
	if err := reg.Change(func(c *Change) error { return c.applyFirst(reg.Config()) }); err != nil {
		return err
	}
	reg.ShowAside()
	return nil
}

// Close rejects all further changes. It waits for the current one.
func (reg *Registry) Close() {
	reg.changing.Lock()
	defer reg.changing.Unlock()
	reg.closed = true
}

// Book returns the tickets issued here.
func (reg *Registry) Book() *ticket.Book { return reg.book }

// Inbound serves the connections of peers according to the roster's grants.
func (reg *Registry) Inbound() *forward.Inbound { return reg.inbound }

// Subscribe registers f to be called with each applied roster, in the order of subscription and
// with the lock held: f must not change the peers, and must not block. By then the tunnel has the
// next peers, and connections that are no longer allowed have been reset. What was learned about
// removed peers is deleted after all calls. Subscribe before Bring.
func (reg *Registry) Subscribe(f func(old, next *Roster)) {
	reg.subscribers = append(reg.subscribers, f)
}

// Change is the right to change the peers, or what is stored about them. There is one at a time.
type Change struct{ reg *Registry }

// Change runs f, while nothing else may change anything. It does not once the registry is closed.
func (reg *Registry) Change(f func(*Change) error) error {
	reg.changing.Lock()
	defer reg.changing.Unlock()
	if reg.closed {
		return ErrStopping
	}
	return f(&Change{reg})
}

// Refresh is Apply with the current configuration.
func (c *Change) Refresh() error { return c.Apply(c.reg.Config()) }

// Learn runs f unless the peer with the key was removed meanwhile: data stored about a removed peer
// would stay for ever.
func (reg *Registry) Learn(k peer.PublicKey, f func(*Member)) {
	reg.LearnAll(func(r *Roster) {
		if m := r.ByKey(k); m != nil {
			f(m)
		}
	})
}

// LearnAll is Learn for many peers: f must only use those of the roster.
func (reg *Registry) LearnAll(f func(*Roster)) {
	_ = reg.Change(func(*Change) error { f(reg.Load()); return nil }) // a closing gateway learns nothing
}
