package gateway

import (
	"context"
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/issuer"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// An issuer in the gateway's cluster, what it is made of, and what one may tell besides.
type (
	ClusterIssuer        = issuer.Cluster
	ClusterIssuerOptions = issuer.ClusterOptions
	Incarnations         = issuer.Incarnations
)

// Options of a gateway. Config is required; the rest has defaults.
type Options struct {
	Config *config.Resolved
	// Version is shown in status and told to peers.
	Version string
	// NewUnderlay opens the UDP socket; nil is underlay.New. The lab gives sockets of
	// its in-process internet.
	NewUnderlay func(underlay.Options) *underlay.Bind
	// HostAddrs lists this machine's addresses; nil is discovery.InterfaceAddrs.
	HostAddrs func() ([]netip.Addr, error)
	// OwnAddrs lists all its addresses, of bridges and tunnels too: no peer is sought
	// there. nil is HostAddrs or, without that, discovery.OwnAddrs.
	OwnAddrs func() ([]netip.Addr, error)
	// Networks lists the networks that this machine is in; nil is what its interfaces say
	// or, when HostAddrs is given, a /24 or /64 around each of those.
	Networks func() ([]netip.Prefix, error)
	// Links lists the interfaces that lead out, to tell whether any is up; nil is
	// discovery.Links, or nothing when HostAddrs is given.
	Links func() ([]discovery.Link, error)
	// LinkMTU is the smallest MTU of the interfaces that lead out, in bytes, 0 when it is
	// not known; nil is discovery.LinkMTU, or nothing when HostAddrs is given.
	LinkMTU func() (int, error)
	// Resolve looks up a host name of the discovery settings; nil asks the system.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// LANInterfaces lists the interfaces on which gateways are looked for, and ListenLAN
	// opens a socket for multicast DNS on one; nil are this machine's.
	LANInterfaces func() ([]lan.Interface, error)
	ListenLAN     func(lan.Interface, lan.Family) (lan.Conn, error)
	// ReadConfig reads the configuration again, for a reload; nil has none to read.
	ReadConfig func() (*config.Resolved, error)
	// NewClusterIssuer makes the issuer of spec.services.auth.issuer.serviceAccount; nil has
	// no cluster to issue in.
	NewClusterIssuer func(ClusterIssuerOptions) (ClusterIssuer, error)
	// CheckInterval and CheckRetry pace the checks; 0 takes package check's defaults.
	CheckInterval, CheckRetry time.Duration
	// ClusterPeers are the configured peers of a gateway in a cluster until SetPeers.
	ClusterPeers []config.Peer
	// AdmitLocal says why whoever connects to a listener for a peer's services may not use
	// it; nil admits everybody who can connect. Each connection waits for it on its own.
	AdmitLocal func(peer string, from netip.AddrPort) error
	// LocalHost is where listeners without an address listen; the zero value is 127.0.0.1.
	LocalHost netip.Addr
	// Inside are those of this machine's addresses that are announced only if STUN servers see this
	// gateway there.
	Inside []netip.Prefix
	// Clusterset has the gateway take part in the services of clusters. nil: one in a cluster does
	// not, and one without imports what the configuration says, to this machine.
	Clusterset *Clusterset
	// OnSuperseded is told that a peer says that it has heard a later start of a gateway with
	// this one's key: boot is its number, in the order of the state's. It may be called again
	// and again, and must not block. A peer may say anything. nil: nobody is told.
	OnSuperseded func(peer string, boot uint64)
	// State keeps the state where it outlives the directory; nil is the directory alone.
	State state.Backend
	// Root is the file system whose cgroup tells of this process's limits; nil looks at none.
	// With it the process is the gateway's own, which gives memory back when it rests.
	Root fs.FS
	// Logger gets everything, audit records included, within bounds (package logtail); nil
	// discards.
	Logger *slog.Logger
}

// Clusterset says how a gateway takes part in the services of clusters (Multi-Cluster Services API).
type Clusterset struct {
	// Namespace is the gateway's own, which no pattern of namespaces means.
	Namespace string
	// Admit says why whoever connects may not use an imported service; nil admits everybody who can
	// connect. Each connection waits for it on its own.
	Admit func(peer string, service mcs.Name, from netip.AddrPort) error
	// DNSQueries are those for names of imported services, as metrics have them; nil where they are
	// not served.
	DNSQueries func() map[string]uint64
}

func (c *Clusterset) namespace() string {
	if c == nil {
		return ""
	}
	return c.Namespace
}

func (o Options) withDefaults() Options {
	if o.NewUnderlay == nil {
		o.NewUnderlay = underlay.New
	}
	given := o.HostAddrs
	own, link := o.HostAddrs, func() (int, error) { return 0, nil } // of a host that is not this one
	links := func() ([]discovery.Link, error) { return nil, nil }
	if o.HostAddrs == nil {
		o.HostAddrs, own, link, links = discovery.InterfaceAddrs, discovery.OwnAddrs, discovery.LinkMTU, discovery.Links
	}
	if o.Links == nil {
		o.Links = links
	}
	if o.OwnAddrs == nil {
		o.OwnAddrs = own
	}
	if o.Networks == nil {
		o.Networks = interfaceNetworks
		if given != nil {
			o.Networks = func() ([]netip.Prefix, error) { return networksAround(given) }
		}
	}
	if o.LinkMTU == nil {
		o.LinkMTU = link
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
