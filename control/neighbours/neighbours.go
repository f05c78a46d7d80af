// Package neighbours discovers other gateways on the local network and in DNS. It matches them with
// the peers by key alone, says where peers are, lists the others, and adds those that an operator
// or the configuration approves as peers.
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

// Options configure a Search.
type Options struct {
	Key   peer.PrivateKey // this gateway's
	Store *state.Store
	Peers *roster.Registry
	// Port returns the UDP port to announce.
	Port func() uint16
	// OwnAddrs returns this host's addresses, at which no peer is dialled.
	OwnAddrs func() ([]netip.Addr, error)
	// Interfaces lists those for LAN discovery, and Listen opens a multicast DNS socket on one; nil
	// means this host's.
	Interfaces func() ([]lan.Interface, error)
	Listen     func(lan.Interface, lan.Family) (lan.Conn, error)
	// Root is the file system that shows whether this is a pod; nil looks at none.
	Root fs.FS
	// Moved is called, under the registry's lock, when peers were found elsewhere.
	Moved func(r *roster.Roster)
	// SetProblems sets the problems with the results.
	SetProblems func(source string, list []check.OwnProblem)
	// Connected reports whether a peer is connected; UserOf returns its user name at this cluster's
	// API server.
	Connected func(m *roster.Member, now time.Time) bool
	UserOf    func(name string) string
	Logger    *slog.Logger

	publicKey peer.PublicKey // of Key
}

// Search discovers gateways on the local network and in DNS. It is safe for concurrent use.
type Search struct {
	o   *Options
	lan *lanSearch
	dns *dnsSearch
}

// New returns a search that finds nobody before Run.
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

// Prepare creates everything that can fail for another configuration; commit puts it into effect.
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
			n.dns.networkChanged() // it may change which addresses can be dialled
		}
	}, nil
}

// NetworkChanged queries everything again.
func (n *Search) NetworkChanged() { n.dns.networkChanged() }

// LANFacts returns the input of the check of LAN discovery; nil if that is off.
func (n *Search) LANFacts(now time.Time) *check.LANFacts { return n.lan.facts(now) }

// Places matches the results with the peers and returns where each was found. The caller holds the
// registry's lock.
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

// Discovered lists the discovered gateways, and why a search finds none.
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

// discovered lists the discovered gateways by name.
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
