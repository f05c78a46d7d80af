// Package exchange runs what a gateway and its peers tell each other in-band: hellos with offered
// services, reports with what either side finds when it tries to reach the other, marks of what has
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
	// renewEvery is how often an identity is replaced because the API server rejects it. If the API
	// server does not know the authority, a new identity will not help.
	renewEvery = 5 * time.Minute
	// renewPace is how often an identity is replaced because the peer says that it has ended, or
	// offers it again, after renewAtOnce replacements in a row. storeEvery bounds the writes.
	renewPace   = reportPace
	renewAtOnce = 4
	// reportsCatchUp is how long after issuing an identity a peer may still report that there is
	// none: it sees its cluster a moment late, and sends changes every reportPace.
	reportsCatchUp = 3 * reportPace
	// rejectedAtOnce is how many peers one turn looks at for rejected identities and changed
	// offers. With a thousand peers each is looked at every 5 s, which is how often they report.
	rejectedAtOnce = 400
)

// Options configure an Exchange.
type Options struct {
	// Ctx ends with the gateway.
	Ctx    context.Context
	Store  *state.Store
	Peers  *roster.Registry
	Paths  *paths.Finder
	Stack  Stack
	Tunnel Tunnel
	// Egress opens outbound TCP connections.
	Egress *egress.Dialer
	// Shown returns what this gateway shows of itself to the outside.
	Shown func() catalogue.Shown
	// Reached returns the address at which a peer is reached, as IP:port; empty for none.
	Reached func(*roster.Member) string
	// Followed is called, under the registry's lock, when the cluster follows a peer's new offer;
	// Changed is called when identities or offers changed. Neither may block.
	Followed, Changed func()
	// Reported is called when a peer has reported its findings; it must not block.
	Reported func(peer string)
	Logger   *slog.Logger
}

// Stack reaches peers inside the tunnel.
type Stack interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Tunnel tells the state of a peer's tunnel.
type Tunnel interface {
	Peer(k peer.PublicKey) (tunnel.PeerStats, bool)
}

// Checks tells what was found about peers.
type Checks interface {
	// Findings returns those about a peer, in a list that never changes; Finding returns the one
	// about a target.
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

	// Owned by the caller of Tick: remembered is when the peers' hellos were last stored, and
	// rejected is the position in the round over the peers.
	remembered time.Time
	rejected   int
}

// New returns an exchange that sends nothing before Run.
func New(o Options) *Exchange {
	x := &Exchange{o: o, log: o.Logger}
	x.reports, x.keepers = newReports(x), newIdentityKeepers(x)
	return x
}

// Attach sets what reports are made from. It is called before there are peers.
func (x *Exchange) Attach(i *issuer.Service, c Checks) { x.issuer, x.checks = i, c }

// Run sends changes to peers until ctx ends.
func (x *Exchange) Run(ctx context.Context) { x.reports.run(ctx) }

// Close waits for pending work; Ctx has ended by then.
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

// Tick does the work that depends on time. One goroutine calls it every second or two.
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

// replaceRejected requests another identity if the peer's API server rejects ours: its authority
// may have been replaced.
func (x *Exchange) replaceRejected(now time.Time, m *roster.Member) {
	heard, _ := x.reports.last(m.Key)
	x.keepers.renewDue(now, m, heard)
	if err := x.keepers.stored.due(now, m.Key); err != nil {
		x.log.Warn("failed to store the identity; a restart will lose it", "peer", m.Name, "error", err)
	}
	code := x.checks.Finding(m.Name, api.ServiceAPIServer).Fault()
	if code == catalogue.IdentityRejected || code == catalogue.APIServerUnauthorized {
		x.keepers.renew(now, m)
	}
}

// Receive handles a report from a peer. Its errors may be sent to the peer.
func (x *Exchange) Receive(from peer.PublicKey, body []byte) error {
	return x.reports.receive(from, body)
}

// ForHello returns the report to send with the answer to a peer's hello; nil if there is nothing to
// say.
func (x *Exchange) ForHello(to peer.PublicKey) []byte { return x.reports.forHello(to) }

// Inbound returns what a peer found when it tried to reach us. Without a report the findings are
// unknown and say why.
func (x *Exchange) Inbound(m *roster.Member) []verdict.Finding { return x.reports.inbound(m) }

// AddFacts adds what the peer said, and the identity that it issued, to the facts of a check.
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

// TellsOffers reports whether a peer announces changes of its offers.
func (x *Exchange) TellsOffers(k peer.PublicKey) bool { return x.reports.tellsOffers(k) }

// Identity returns the one that a peer issued to us; nil if there is none.
func (x *Exchange) Identity(name string) *api.Identity { return x.keepers.status(name) }
