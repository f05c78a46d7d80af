// Package exchange is what a gateway and its peers tell each other in-band: hellos with what is
// offered, reports with what either finds when it tries to reach the other, marks of what has
// changed, and the identities that peers issue to this gateway.
package exchange

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/issuer"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// renewEvery is how often an identity is replaced because the API server refuses it. If it is
	// the API server that does not know the authority, a new one will not help.
	renewEvery = 5 * time.Minute
	// renewPace is how often one is replaced because the peer says that it has ended, or has offered
	// it again, after renewAtOnce in a row. What is written of it is bounded by storeEvery.
	renewPace   = reportPace
	renewAtOnce = 4
	// reportsCatchUp is how long after it issued an identity a peer may go on to report that
	// there is none: it sees its cluster a moment late, and tells of changes every reportPace.
	reportsCatchUp = 3 * reportPace
	// rejectedAtOnce is how many peers a turn looks at for identities that are to be replaced and for
	// offers that are to be followed:
	// of a thousand each is every 5 s, which is how often they report.
	rejectedAtOnce = 400
)

// Options are what is told, and who is told of what was heard.
type Options struct {
	// Ctx ends with the gateway.
	Ctx    context.Context
	Store  *state.Store
	Peers  *roster.Registry
	Paths  *paths.Finder
	Stack  Stack
	Tunnel Tunnel
	// Egress opens TCP connections to the outside.
	Egress *egress.Dialer
	// Shown is what this gateway shows of itself to the outside.
	Shown func() catalogue.Shown
	// Followed is told that the cluster follows what a peer offers now, by one who may change
	// the peers; Changed that identities or offers changed. Neither may block.
	Followed, Changed func()
	// Reported is told that a peer told what it finds; it must not block.
	Reported func(peer string)
	Logger   *slog.Logger
}

// Stack reaches peers inside the tunnel.
type Stack interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Tunnel is how a peer fares.
type Tunnel interface {
	Peer(k peer.PublicKey) (tunnel.PeerStats, bool)
}

// Checks are what is found of peers.
type Checks interface {
	// Findings are those on a peer, a list that is never changed; Finding is that on a target.
	Findings(peer string) []verdict.Finding
	Finding(peer, target string) verdict.Finding
	// Wake has a peer checked soon.
	Wake(peer string)
}

// Exchange is safe for concurrent use.
type Exchange struct {
	o      Options
	log    *slog.Logger
	issuer *issuer.Service // since Attach
	checks Checks

	hellos    hellos
	following following
	reports   *reports
	keepers   *identityKeepers

	// Owned by whoever calls Tick: remembered is when what peers say of themselves was last
	// stored, and rejected counts the peers that were looked at, around all of them.
	remembered time.Time
	rejected   int
}

// New makes an exchange that tells nothing before Run.
func New(o Options) *Exchange {
	x := &Exchange{o: o, log: o.Logger}
	x.reports, x.keepers = newReports(x), newIdentityKeepers(x)
	return x
}

// Attach gives it what reports are about, before there are peers.
func (x *Exchange) Attach(i *issuer.Service, c Checks) { x.issuer, x.checks = i, c }

// Run tells peers what changes until ctx ends.
func (x *Exchange) Run(ctx context.Context) { x.reports.run(ctx) }

// Close waits for what is under way; Ctx has ended by then.
func (x *Exchange) Close() {
	x.keepers.close()
	x.reports.close()
}

// Follow is for [roster.Registry.Subscribe].
func (x *Exchange) Follow(old, next *roster.Roster) {
	x.keepers.setPeers(next)
	for _, m := range old.Without(next) {
		x.hellos.drop(m.Key)
		if next.ByName(m.Name) == nil {
			x.following.drop(m.Name)
		}
		if next.ByKey(m.Key) == nil {
			x.reports.forget(m.Key)
		}
	}
	x.reports.changed()
}

// Tick does what depends on time alone. It is called every second or two, by one goroutine.
func (x *Exchange) Tick(now time.Time) {
	members := x.o.Peers.Load().Members()
	for range min(len(members), rejectedAtOnce) {
		x.rejected = (x.rejected + 1) % len(members)
		x.replaceRejected(now, members[x.rejected])
		x.followDue(members[x.rejected], now)
	}
	if now.Sub(x.remembered) >= roster.RememberEvery {
		x.remembered = now
		x.o.Peers.LearnAll(func(r *roster.Roster) { x.rememberHellos(r.Members()) })
	}
}

// replaceRejected asks for another identity when the peer's API server refuses the one
// we have: its authority may have been replaced.
func (x *Exchange) replaceRejected(now time.Time, m *roster.Member) {
	heard, _ := x.reports.last(m.Key)
	x.keepers.renewDue(now, m, heard)
	if err := x.keepers.stored.due(now, m.Key); err != nil {
		x.log.Warn("the identity could not be stored and is lost on a restart", "peer", m.Name, "error", err)
	}
	code := x.checks.Finding(m.Name, api.ServiceAPIServer).Fault()
	if code == catalogue.IdentityRejected || code == catalogue.APIServerUnauthorized {
		x.keepers.renew(now, m)
	}
}

// Receive takes a report that a peer sent, and does what it asks for; an error is fit to be
// told to the peer.
func (x *Exchange) Receive(from peer.PublicKey, body []byte) error {
	return x.reports.receive(from, body)
}

// ForHello is the report that goes with the answer to a peer's hello; nil when there is nothing
// to tell.
func (x *Exchange) ForHello(to peer.PublicKey) []byte { return x.reports.forHello(to) }

// Inbound is what a peer found when it tried to reach us. Without a report it is unknown, and
// says why.
func (x *Exchange) Inbound(m *roster.Member) []verdict.Finding { return x.reports.inbound(m) }

// AddFacts adds to the facts of a check what the peer said, and the identity that it issued.
func (x *Exchange) AddFacts(m *roster.Member, f *check.Facts) {
	x.keepers.shown(m.Name, f)
	f.TellsOffers = x.TellsOffers(m.Key)
	if h, ok := x.reports.last(m.Key); ok {
		f.Path.PeerNAT = catalogue.NAT{Mapping: h.NAT.Mapping, Filtering: h.NAT.Filtering}
	}
	if skew, ok := x.reports.skew(m.Key); ok {
		f.Skew = skew
	}
	if h, ok := x.hellos.get(m.Key); ok {
		a := APIServerOf(h.Hello)
		f.Offers, f.ServerName, f.CA = h.Offers, a.ServerName, []byte(a.CAData)
		if f.Offers == nil {
			f.Offers = []string{}
		}
	}
}

// TellsOffers reports whether a peer tells when it offers something else.
func (x *Exchange) TellsOffers(k peer.PublicKey) bool { return x.reports.tellsOffers(k) }

// Identity is the one that a peer issued to us; nil when there is none.
func (x *Exchange) Identity(name string) *api.Identity { return x.keepers.status(name) }
