// Package neighbours finds other gateways, on the local network and in DNS: it holds what is
// found against the peers by key alone, says where peers are, lists the others, and makes peers
// of those that an operator or the configuration approves.
package neighbours

import (
	"context"
	"io/fs"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Options are what gateways are looked for with.
type Options struct {
	Key   peer.PrivateKey // this gateway's
	Store *state.Store
	Peers *roster.Registry
	// Port is the UDP port that this gateway is announced with.
	Port func() uint16
	// OwnAddrs are the addresses of this host: no peer is sought there.
	OwnAddrs func() ([]netip.Addr, error)
	// Interfaces lists those on which gateways are looked for, and Listen opens a socket for
	// multicast DNS on one; nil are this host's.
	Interfaces func() ([]lan.Interface, error)
	Listen     func(lan.Interface, lan.Family) (lan.Conn, error)
	// Root is the file system that reports whether this is a pod; nil looks at none.
	Root fs.FS
	// Moved is told that peers were found elsewhere, by one who may change the peers.
	Moved func(r *roster.Roster)
	// SetProblems takes what is wrong with what was found.
	SetProblems func(source string, list []check.OwnProblem)
	// Connected reports whether a peer is, and UserOf who it is at this cluster's API server.
	Connected func(m *roster.Member, now time.Time) bool
	UserOf    func(name string) string
	Logger    *slog.Logger

	publicKey peer.PublicKey // of Key
}

// Search finds the gateways that can be found: on the local network, and in DNS. It is safe
// for concurrent use.
type Search struct {
	o   *Options
	lan *lanSearch
	dns *dnsSearch
}

// New makes a search that finds nobody before Run.
func New(o Options) (*Search, error) {
	o.publicKey = o.Key.Public()
	n := &Search{o: &o, lan: newLANSearch(&o)}
	var err error
	if n.dns, err = openDNSSearch(&o); err != nil {
		return nil, o.Peers.Config().Blame(dnsField, err)
	}
	return n, nil
}

const dnsField = "spec.discovery.dns.domains"

// Run announces and searches until ctx ends.
func (n *Search) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { n.dns.run(ctx) })
	both.Go(func() { n.lan.run(ctx) })
	both.Wait()
}

// Prepare makes all that can fail of what another configuration asks for; commit lets it take
// effect.
func (n *Search) Prepare(next *config.Resolved) (commit func(), err error) {
	old, search := n.o.Peers.Config().Discovery, n.dns.current()
	if !reflect.DeepEqual(old.DNS, next.Discovery.DNS) {
		if search, err = n.dns.newFinder(next.Discovery.DNS); err != nil {
			return nil, next.Blame(dnsField, err)
		}
	}
	return func() {
		n.lan.reload(old, next.Discovery)
		if search != n.dns.current() {
			n.dns.use(search)
		} else if !slices.Equal(old.Exclude, next.Discovery.Exclude) {
			n.dns.networkChanged() // which of its addresses may be dialled is another question now
		}
	}, nil
}

// NetworkChanged has everything asked for again.
func (n *Search) NetworkChanged() { n.dns.networkChanged() }

// LANFacts are what a check of the search on the local network starts from; nil while there
// is none.
func (n *Search) LANFacts(now time.Time) *check.LANFacts { return n.lan.facts(now) }

// Places brings what was found together with the peers: it says where each was found. It is
// for one who may change the peers.
func (n *Search) Places(r *roster.Roster) map[peer.PublicKey]paths.Place {
	places, near := n.dns.settle(r), n.lan.near(r)
	for _, m := range r.Members() {
		if first := n.lan.candidates(near, m); len(first) > 0 {
			at := places[m.Key]
			at.First = first
			places[m.Key] = at
		}
	}
	return places
}

// Discovered lists the gateways that were found, and why a search finds none.
func (n *Search) Discovered(context.Context) (api.DiscoveredList, error) {
	out := api.DiscoveredList{
		APIVersion: api.Version, Kind: "DiscoveredList", Looking: []string{},
		Name: n.o.Peers.Config().Name, Fingerprint: peer.Fingerprint(n.o.publicKey),
		AnnouncedAs: n.lan.announcedAs(), Gateways: n.discovered(),
		Problems: append(n.lan.discoveryProblems(time.Now()), n.dns.discoveryProblems()...),
	}
	out.Looking = append(out.Looking, n.lan.looking(time.Now())...)
	for _, d := range n.dns.domains() {
		out.Looking = append(out.Looking, d.Name)
	}
	return out, nil
}

// discovered are the gateways that were found, whoever found them, by name.
func (n *Search) discovered() []api.Discovered {
	r, now := n.o.Peers.Load(), time.Now()
	out := append(append([]api.Discovered{}, n.lan.discovered(r, now)...), n.dns.discovered(r, now)...)
	for i := range out {
		d := &out[i]
		if as := peerName(d.Name.RawUnsafe()); as != d.Name.RawUnsafe() {
			d.As = as
		}
		if m := r.ByName(d.Peer); d.State == api.DiscoveredPeer && m != nil && !n.o.Connected(m, now) {
			d.State = api.DiscoveredApproved
		}
	}
	byName(out)
	return out
}
