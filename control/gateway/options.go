package gateway

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/issuer"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// The issuer in the gateway's cluster, its options, and the facts that it reports.
type (
	ClusterIssuer        = issuer.Cluster
	ClusterIssuerOptions = issuer.ClusterOptions
)

// Options configure a gateway. Config is required; the rest has defaults.
type Options struct {
	Config *config.Resolved
	// Version is shown in the status and sent to peers.
	Version string
	// NewUnderlay opens the UDP socket; nil means underlay.New. The lab passes sockets of its
	// in-process internet.
	NewUnderlay func(underlay.Options) *underlay.Bind
	// HostAddrs lists this host's addresses; nil means discovery.InterfaceAddrs.
	HostAddrs func() ([]netip.Addr, error)
	// OwnAddrs lists all of this host's addresses, including those of bridges and tunnels; peers
	// are never dialled there. nil means HostAddrs if set, else discovery.OwnAddrs.
	OwnAddrs func() ([]netip.Addr, error)
	// Networks lists the networks that this host is in; nil means those of its interfaces or, if
	// HostAddrs is set, a /24 or /64 around each of its addresses.
	Networks func() ([]netip.Prefix, error)
	// Links lists the interfaces that lead outside, to find out whether any is up; nil means
	// discovery.Links, or none if HostAddrs is set.
	Links func() ([]discovery.Link, error)
	// LinkMTU returns the smallest MTU of the interfaces that lead outside, in bytes, or 0 if
	// unknown; nil means discovery.LinkMTU, or unknown if HostAddrs is set.
	LinkMTU func() (int, error)
	// Resolve looks up a host name of the discovery settings; nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// LANInterfaces lists the interfaces for LAN discovery, and ListenLAN opens a multicast DNS
	// socket on one; nil means this host's.
	LANInterfaces func() ([]lan.Interface, error)
	ListenLAN     func(lan.Interface, lan.Family) (lan.Conn, error)
	// ReadConfig reads the configuration again for a reload; nil if it cannot be reloaded.
	ReadConfig func() (*config.Resolved, error)
	// NewClusterIssuer creates the issuer of spec.services.auth.issuer.serviceAccount; nil outside
	// a cluster.
	NewClusterIssuer func(ClusterIssuerOptions) (ClusterIssuer, error)
	// CheckInterval and CheckRetry pace the checks; 0 means package check's defaults.
	CheckInterval, CheckRetry time.Duration
	// ClusterPeers are the configured peers of a gateway in a cluster until SetPeers is called.
	ClusterPeers []config.Peer
	// AdmitLocal returns an error if a client of a protocol, of a local listener, may not use the
	// peer's services; nil admits every client. Calls for different connections run concurrently.
	AdmitLocal func(peer string, by api.Protocol, from netip.AddrPort) error
	// KnownLocal reports, without blocking, whether AdmitLocal admitted a client a short time ago;
	// nil knows nobody.
	KnownLocal func(peer string, from netip.AddrPort) bool
	// LocalHost is where listeners without an address listen; the zero value means 127.0.0.1.
	LocalHost netip.Addr
	// Inside are networks of this host whose addresses are announced only if STUN servers see them.
	Inside []netip.Prefix
	// Clusterset configures cluster services. If nil, a gateway in a cluster takes no part, and one
	// outside imports what the configuration lists to this host.
	Clusterset *Clusterset
	// OnSuperseded is called when a peer says that it has heard a later start of a gateway with
	// this one's key; boot is that start's number, as counted by the state. It may be called
	// repeatedly and must not block. The peer may be lying. nil ignores it.
	OnSuperseded func(peer string, boot uint64)
	// State stores the state where it outlives the directory; nil means only in the directory.
	State state.Backend
	// Root is the file system whose cgroup shows this process's limits; nil looks at none. If set,
	// the process belongs to the gateway, which returns memory when idle.
	Root fs.FS
	// Logger gets all records, including audit records, rate-limited by package logtail; nil
	// discards them.
	Logger *slog.Logger
}

// Clusterset configures a gateway's part in cluster services (Multi-Cluster Services API).
type Clusterset struct {
	// Namespace is the gateway's own, which namespace patterns never match.
	Namespace string
	// Admit returns an error if a client may not use an imported service; nil admits every client.
	// Calls for different connections run concurrently.
	Admit func(peer string, service mcs.Name, from netip.AddrPort) error
	// DNSQueries returns the metrics of queries for imported services' names; nil if names are not
	// served.
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
	own, link := o.HostAddrs, func() (int, error) { return 0, nil } // HostAddrs describes another host
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
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}
