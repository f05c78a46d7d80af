// Package clusterset carries services of clusters through the tunnel. It offers and announces this
// cluster's exports to the peers that may have them, and listens here for the services that peers
// export.
//
//	exports ─▶ overlay ports, backends ─▶ forward.Inbound
//	       └─▶ entries ─▶ a mcs.Writer for each peer ─▶ POST /v1/services
//	POST /v1/services ─▶ a mcs.Reader for each peer ─▶ listeners (forward.Outbound) ─▶ mcs.State
//
// Changes take effect in reconcile, one call at a time.
package clusterset

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/exchange"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mail"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

// Options are the parts that a Clusterset uses.
type Options struct {
	// Ctx ends with the gateway.
	Ctx      context.Context
	Store    *state.Store
	Peers    *roster.Registry
	Exchange *exchange.Exchange
	Flows    *forward.Flows
	Stack    Stack
	// Connected reports whether a peer answers.
	Connected func(*roster.Member) bool
	// Lost returns the finding about a listener that lost its last connection or flow, if it is one;
	// nil finds nothing.
	Lost func(forward.LocalState) (code catalogue.Code, about catalogue.Params, found bool)
	// Admit returns why a client may not use an imported service; nil admits everybody.
	Admit func(peer string, name mcs.Name, from netip.AddrPort) error
	// Host is the address of listeners for imported services; the zero value is 127.0.0.1.
	Host netip.Addr
	// OwnAddrs returns this host's addresses, which no backend has; nil knows none.
	OwnAddrs func() ([]netip.Addr, error)
	// Plain: there is no cluster here. Exports are services of the configuration, and imports are
	// for this machine and have no namespace.
	Plain  bool
	Audit  *audit.Log
	Logger *slog.Logger
}

// Stack reaches peers inside the tunnel.
type Stack interface {
	DialTCP(ctx context.Context, to netip.AddrPort) (*netstack.Conn, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Clusterset is safe for concurrent use. It implements mcs.Services.
type Clusterset struct {
	o    Options
	mail *mail.Sender[struct{}] // a message is encoded when it is sent
	out  *forward.Outbound
	wake wake.Signal // holds at most one request to reconcile

	reconciling sync.Mutex // held during reconcile
	exporter
	importer

	mu sync.Mutex
	shared
}

// shared is guarded by Clusterset.mu.
type shared struct {
	peers map[string]*site // by name
	due   due
	// exports and namespaces are those that were set, nil before.
	exports    []mcs.Export
	namespaces map[string]bool
	state      mcs.State
	ready      map[string]int // ready backends of exports, by name
	changed    chan struct{}  // closed when the state changes
}

// due is what reconcile has to look at.
type due struct {
	exports bool              // they were set, or overlay ports are to be stored
	roster  bool              // it changed, or the configuration did
	all     bool              // the namespaces changed, or a peer is not behind any more
	names   map[mcs.Name]bool // whose offers changed
	sites   []*site           // peers that changed something
	opening bool              // a listener could not be opened before
}

var _ mcs.Services = (*Clusterset)(nil)

// New returns a Clusterset without exports and imports.
func New(o Options) *Clusterset {
	c := &Clusterset{
		o: o, wake: wake.New(), exporter: newExporter(o.Store.OverlayLeases()), importer: newImporter(),
		shared: shared{peers: map[string]*site{}, due: due{names: map[mcs.Name]bool{}}, changed: make(chan struct{})},
	}
	c.mail = mail.New(mail.Options[struct{}]{Ctx: o.Ctx, Hand: c.send, Failed: c.failed, Room: 1})
	out := forward.OutboundOptions{Dial: c.dial, Find: c.find, Avoid: c.others, Host: o.Host, FirstPort: mcs.FirstListener, LastPort: mcs.LastListener, Logger: o.Logger, Audit: o.Audit}
	if o.Admit != nil {
		out.Admit = func(l forward.Local, _ api.Protocol, from netip.AddrPort) error {
			return o.Admit(l.Peer, mcs.NameOfPort(l.Service), from)
		}
	}
	c.out = forward.NewOutbound(o.Flows, out)
	if o.Plain {
		c.exports = []mcs.Export{} // reconcile adds those of the configuration
	}
	return c
}

// Run applies changes until ctx ends.
func (c *Clusterset) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.reconcile()
		}
	}
}

// Close closes the listeners. Accepted connections continue until the flows are drained.
func (c *Clusterset) Close() {
	c.reconciling.Lock()
	defer c.reconciling.Unlock()
	c.out.Close()
}

// Wait waits for messages in progress; Ctx must have ended.
func (c *Clusterset) Wait() { c.mail.Close() }

// SetExports implements mcs.Services.
func (c *Clusterset) SetExports(list []mcs.Export) {
	c.mark(func() {
		if c.exports = list; list == nil {
			c.exports = []mcs.Export{} // known to be empty
		}
		c.due.exports = true
	})
	c.reconcile()
}

// SetNamespaces implements mcs.Services.
func (c *Clusterset) SetNamespaces(list []string) {
	next := make(map[string]bool, len(list))
	for _, n := range list {
		next[n] = true
	}
	c.mu.Lock()
	other := c.namespaces == nil || !maps.Equal(c.namespaces, next)
	c.mu.Unlock()
	if !other {
		return
	}
	c.mark(func() { c.namespaces, c.due.all = next, true })
	c.reconcile()
}

// State implements mcs.Services.
func (c *Clusterset) State() (mcs.State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// Follow is for [roster.Registry.Subscribe].
func (c *Clusterset) Follow(old, next *roster.Roster) {
	for _, m := range old.Without(next) {
		if next.ByKey(m.Key) == nil {
			c.mail.Forget(m.Key)
		}
	}
	c.mark(func() { c.due.roster = true })
}

// mark records work with at, and schedules reconcile.
func (c *Clusterset) mark(at func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at()
	c.wake.Set()
}

// Counters returns the counters of connections to imported services, UDPCounters of flows of
// datagrams.
func (c *Clusterset) Counters() forward.Counters    { return c.out.Counters() }
func (c *Clusterset) UDPCounters() forward.Counters { return c.out.UDPCounters() }

// reconcile applies what is due.
func (c *Clusterset) reconcile() {
	c.reconciling.Lock()
	defer c.reconciling.Unlock()
	if c.o.Ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	c.silenceLocked()
	d := c.due
	c.due = due{names: map[mcs.Name]bool{}}
	exports, namespaces := c.exports, c.namespaces
	c.mu.Unlock()
	r, cfg := c.o.Peers.Load(), c.o.Peers.Config()

	if c.o.Plain {
		exports = named(cfg.Services.Named)
	}
	all := c.setPeers(r) || d.all
	var changed []string
	if exports != nil && (d.exports || d.roster) {
		changed = c.export(exports, r, cfg)
	}
	c.notify(r, changed)
	for _, name := range changed {
		d.names[mcs.NameOfPort(name)] = true
	}
	c.importAll(r, namespaces, d.names, all, d.sites)
	c.countUses()
}

// setPeers creates a site for each peer, and removes those of former peers. It reports whether
// imports may have changed: a peer is gone, or other namespaces are imported from one, or other
// listeners are configured for one.
func (c *Clusterset) setPeers(r *roster.Roster) (other bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.peers {
		m := r.ByName(name)
		if m == nil || m.Pending || m.Key != s.member.Key && !s.member.Succeeded(r) {
			delete(c.peers, name)
			other = true
		}
	}
	for _, m := range r.Members() {
		if m.Pending || m.Stock {
			continue
		}
		s := c.siteOf(m, r)
		if !maps.Equal(s.was.Local, m.Local) { // some of them are for imported services
			s.was.Local, other = m.Local, true
		}
		if slices.Equal(s.was.Import, m.Import) {
			continue
		}
		s.was.Import, other = m.Import, true
		if s.reader.Want(imports(r, m)) {
			s.writer.Recheck() // this also tells it that this gateway knows nothing of it
		}
	}
	return other
}

// siteOf returns a peer's site. After a change of its key it keeps what is known of the peer.
func (c *Clusterset) siteOf(m *roster.Member, r *roster.Roster) *site {
	s := c.peers[m.Name]
	if s == nil || m.Key != s.member.Key && !s.member.Succeeded(r) {
		s = newSite(imports(r, m))
		c.peers[m.Name] = s
	}
	s.member = m
	return s
}

// imports selects the namespaces that are imported from a peer.
func imports(r *roster.Roster, m *roster.Member) func(namespace string) bool {
	return func(namespace string) bool { return r.Imports(m, namespace) }
}

// The catalogues of all peers together are bounded, in bytes of JSON: by keptFraction of the
// process' memory limit. One catalogue always fits, including its predecessor. Decoded it may take
// three times as much. If there is no room for a peer that has less than an equal part, the peer
// with most loses its catalogue. How large a catalogue is shows only when all of it has arrived, so
// nobody gives way for a peer that had more than its part within the last lostFor: large ones would
// displace each other without end.
const (
	keptFraction = 16
	leastKept    = 2 * mcs.MaxCatalogue
	mostKept     = 16 * mcs.MaxCatalogue
	lostFor      = 10 * time.Minute
)

// roomLocked reports whether so many bytes of a peer may be kept, after making room for them if they
// are within its part.
func (c *Clusterset) roomLocked(of *site, bytes int) bool {
	total := int(max(leastKept, min(mostKept, debug.SetMemoryLimit(-1)/keptFraction)))
	for {
		room, keep, most := total, 1, of
		for _, s := range c.peers {
			kept := s.reader.Kept()
			room -= kept
			if s != of && kept > 0 {
				keep++
			}
			if kept > most.reader.Kept() {
				most = s
			}
		}
		switch {
		case room >= bytes:
			return true
		case most == of || of.reader.Kept()+bytes > total/keep:
			of.lost = time.Now()
			return false
		case time.Since(of.lost) < lostFor:
			return false
		}
		most.lost = time.Now()
		c.changedLocked(most, most.reader.Drop())
		most.writer.Recheck() // which tells it, so that it comes back when there is room
		c.postLocked(most)
	}
}

// site is the exchange with one peer. Clusterset.mu guards it.
type site struct {
	member *roster.Member
	reader *mcs.Reader
	sending
	// changes limits how often services of the peer change here. behind: some have changed and take
	// effect later.
	changes *rate.Limiter
	behind  bool
	// was is what the writer and the imports were made from.
	was      roster.Grants
	lost     time.Time // when there was no room for its catalogue, of more than its part
	answered bool      // whether the peer answered when last checked
	silent   bool      // whether the imports are made as of a peer that does not answer
	unable   string    // what the peer runs, if it does not support services of clusters; else empty
}

// sending is this cluster's catalogue on its way to a peer.
type sending struct {
	writer  *mcs.Writer
	tells   *rate.Limiter
	recheck bool            // the peer reported another version while something was due
	unsent  map[string]bool // services for which the writer had no room
	sent    time.Time       // a message
	retry   time.Time       // when one may be sent again
	wait    time.Duration   // until then, after a failure
}

func newSite(imports func(namespace string) bool) *site {
	return &site{
		sending: sending{writer: mcs.NewWriter(), tells: rate.NewLimiter(tellRate, tellBurst)},
		reader:  mcs.NewReader(imports), changes: rate.NewLimiter(changeRate, changeBurst),
	}
}

// capable reports whether a peer is known to support catalogues.
func (c *Clusterset) capable(k peer.PublicKey) bool {
	h, heard := c.o.Exchange.Hello(k)
	return heard && h.Can(auth.CapabilityServices)
}
