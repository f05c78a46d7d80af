//go:build linux && e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// The internet of the path tests: two sites, each on its own access network, and servers on a
// third, joined by a router. A datagram from one site to the other takes a hop at each NAT and
// one at the core. So one with a small TTL can cross its own NAT and end before the other's.
//
//	left 192.168.7.2 ── NAT 203.0.113.20 ──┐       ┌── 198.51.100.20 NAT ── 192.168.8.2 right
//	                                       ├ core ─┤
//	left 203.0.113.10 (without a NAT) ─────┘   │   └── 198.51.100.10 right (without a NAT)
//	                                           │
//	                 relay 192.0.2.3 (and .4), STUN or second relay 192.0.2.5
const (
	leftOuter, rightOuter   = "203.0.113.20", "198.51.100.20"
	leftPublic, rightPublic = "203.0.113.10", "198.51.100.10"
	leftInner, rightInner   = "192.168.7.2", "192.168.8.2"
	relayAddr, relayAlt     = "192.0.2.3", "192.0.2.4"
	secondRelayAddr         = "192.0.2.5"

	turnUser, turnPassword = "relay-user", "relay-password"
)

// access is how a gateway is connected: to the public internet, or behind a NAT.
type access struct {
	name   string
	public bool
	kind   netlab.NATKind
}

// The kinds of the conformance table (discovery/path/README.md), in its order, and one more.
var (
	dial           = access{name: "DIAL", public: true}
	fullCone       = access{name: "full cone", kind: netlab.FullCone}
	addrRestricted = access{name: "address-restricted", kind: netlab.AddressRestricted}
	portRestricted = access{name: "port-restricted", kind: netlab.PortRestricted}
	straying       = access{name: "port-restricted, answers strays", kind: netlab.PortRestrictedStray}
	symmetric      = access{name: "symmetric", kind: netlab.Symmetric}
	portChanging   = access{name: "endpoint-independent, port not kept", kind: netlab.PortChanging}
)

// ways are what a test may change in a world before it is built.
type ways struct {
	// turn changes the servers' options. noTURN leaves them only STUN; second makes the second
	// one a relay as well.
	turn           func(*netlab.TURNOptions)
	noTURN, second bool
	// nat changes the NATs' options, configure the gateways' configurations.
	nat       func(*netlab.NATOptions)
	configure func(*api.GatewaySpec)
	// mtu is that of the right side's access network, leftMTU of the left's; 0 = 1500.
	mtu, leftMTU int
}

// sites is a world with a gateway at each side. Both run unless the test says otherwise, and are
// not yet peers.
type sites struct {
	t            *testing.T
	lab          *netlab.Lab
	core         *netlab.Host
	servers      *netlab.Network
	relay        *netlab.TURN
	second       *netlab.TURN
	left, right  *site
	ways         ways
	passwordFile string
}

// site is a gateway and its access.
type site struct {
	*gateway
	access access
	lan    *netlab.Network // nil without a NAT
	nat    *netlab.NAT     // nil without a NAT
	// inner is the gateway's own address, outer the one that the internet sees.
	inner, outer netip.Addr
	streams      *streamServer
}

// newSites builds the internet and both sites; only the relay runs.
func newSites(t *testing.T, left, right access, w ways) *sites {
	t.Helper()
	lab := netlab.New(t)
	s := &sites{t: t, lab: lab, core: lab.Router("core"), ways: w, passwordFile: filepath.Join(tempDir(t), "turn-password")}
	writeFile(t, s.passwordFile, turnPassword+"\n", 0o600)
	leftNet := s.accessNetwork("left-access", "203.0.113.0/24", w.leftMTU)
	rightNet := s.accessNetwork("right-access", "198.51.100.0/24", w.mtu)
	s.servers = s.accessNetwork("servers", "192.0.2.0/24", 0)
	s.relay = s.startRelay("relay", !w.noTURN, relayAddr, relayAlt)
	s.second = s.startRelay("second-relay", w.second, secondRelayAddr)
	s.left = s.newSite("left", left, leftNet, leftPublic, leftOuter, leftInner)
	s.right = s.newSite("right", right, rightNet, rightPublic, rightOuter, rightInner)
	return s
}

// gatewayAddr returns a network's router: its first address.
func gatewayAddr(p netip.Prefix) netip.Addr { return p.Addr().Next() }

// accessNetwork creates a network with the core at its first address.
func (s *sites) accessNetwork(name, prefix string, mtu int) *netlab.Network {
	s.t.Helper()
	p := netip.MustParsePrefix(prefix)
	if mtu == 0 {
		mtu = 1500
	}
	n := s.lab.NarrowNetwork(name, p, mtu)
	s.core.Attach(name, n, gatewayAddr(p)) // an interface's name has at most 15 bytes
	return n
}

// startRelay runs coturn on its own host.
func (s *sites) startRelay(name string, relays bool, addrs ...string) *netlab.TURN {
	s.t.Helper()
	h := s.lab.Host(name)
	h.Attach("eth0", s.servers, netip.MustParseAddr(addrs[0]))
	h.DefaultRoute(netip.MustParseAddr("192.0.2.1"))
	o := netlab.TURNOptions{}
	for i, a := range addrs {
		o.Listen = append(o.Listen, netip.MustParseAddr(a))
		if i > 0 {
			h.AddAddress("eth0", netip.PrefixFrom(o.Listen[i], 24))
		}
	}
	if relays {
		o.Username, o.Password = turnUser, turnPassword
	}
	if s.ways.turn != nil {
		s.ways.turn(&o)
	}
	return h.StartTURN(o)
}

// newSite builds one side: NAT, host, upstream of the stream service, configuration.
func (s *sites) newSite(name string, a access, outside *netlab.Network, public, outer, inner string) *site {
	s.t.Helper()
	here := &site{access: a, inner: netip.MustParseAddr(public)}
	here.outer = here.inner
	network := outside
	if !a.public {
		here.inner, here.outer = netip.MustParseAddr(inner), netip.MustParseAddr(outer)
		here.lan = s.lab.Network(name+"-lan", netip.PrefixFrom(here.inner, 24).Masked())
		o := netlab.NATOptions{
			Kind: a.kind, WAN: outside, WANAddr: here.outer, LAN: here.lan, LANAddr: s.routerOf(here.inner),
			Inside: netip.AddrPortFrom(here.inner, gatewayPort),
		}
		if s.ways.nat != nil {
			s.ways.nat(&o)
		}
		here.nat = s.lab.NAT(name+"-nat", o)
		here.nat.DefaultRoute(s.routerOf(here.outer))
		network = here.lan
	}
	s.place(here, name, network)
	return here
}

// place puts a site's gateway on a host of a network.
func (s *sites) place(x *site, name string, n *netlab.Network) {
	s.t.Helper()
	host := s.lab.Host(name)
	host.Attach("eth0", n, x.inner)
	host.DefaultRoute(s.routerOf(x.inner))
	x.streams = serveStreams(s.t, host)
	x.gateway = newGateway(s.t, host, name, s.configure)
}

// newNeighbour builds another site behind another's NAT.
func (s *sites) newNeighbour(of *site, name, inner string) *site {
	s.t.Helper()
	here := &site{access: of.access, lan: of.lan, nat: of.nat, inner: netip.MustParseAddr(inner), outer: of.outer}
	s.place(here, name, of.lan)
	return here
}

// routerOf returns the first address of an address's /24.
func (s *sites) routerOf(a netip.Addr) netip.Addr {
	return gatewayAddr(netip.PrefixFrom(a, 24).Masked())
}

// configure changes both gateways' files.
func (s *sites) configure(spec *api.GatewaySpec) {
	// Not relayAlt: the first server answers from there to determine a NAT's filtering, which
	// does not work for an address that was sent to.
	spec.Discovery.STUNServers = []string{relayAddr + ":3478", secondRelayAddr + ":3478"}
	if !s.ways.noTURN {
		spec.Discovery.TURNServers = []api.TURNServer{s.turnServer(relayAddr)}
	}
	if s.ways.second {
		spec.Discovery.TURNServers = append(spec.Discovery.TURNServers, s.turnServer(secondRelayAddr))
	}
	spec.Services.Named = append(spec.Services.Named, api.NamedService{Name: streamService, Port: streamPort, Address: streamUpstream})
	if s.ways.configure != nil {
		s.ways.configure(spec)
	}
}

func (s *sites) turnServer(addr string) api.TURNServer {
	return api.TURNServer{Address: addr + ":3478", Username: turnUser, PasswordFile: s.passwordFile}
}

// start starts both gateways and waits until they are ready.
func (s *sites) start() {
	s.t.Helper()
	s.left.launch()
	s.right.launch()
	s.left.waitReady()
	s.right.waitReady()
}

// enrol makes the two peers, with inviter inviting, each with a listener that leads to the
// other's stream service. It returns how long `join` took.
func (s *sites) enrol(inviter, joiner *site) time.Duration {
	s.t.Helper()
	ticket := inviter.invite("--allow", "auth,"+streamService)
	start := time.Now()
	joiner.must("join", ticket, "--allow", streamService, "--local", streamService+"="+streamLocal)
	return time.Since(start)
}

// offerBack gives the inviter's users a listener that leads to the joiner.
func (s *sites) offerBack(inviter, joiner *site) {
	s.t.Helper()
	inviter.must("peer", "local", joiner.name, streamService+"="+streamLocal)
}

// started builds a world whose sites are peers, with left having invited right.
func started(t *testing.T, left, right access, w ways) *sites {
	t.Helper()
	s := newSites(t, left, right, w)
	s.start()
	s.enrol(s.left, s.right)
	return s
}

// other returns the other side.
func (s *sites) other(x *site) *site {
	if x == s.left {
		return s.right
	}
	return s.left
}

// both returns both sides.
func (s *sites) both() []*site { return []*site{s.left, s.right} }

// awaitPath waits at most d until both sides say that they are connected by a path of the kind,
// and returns how long that took.
func (s *sites) awaitPath(kind string, d time.Duration) time.Duration {
	s.t.Helper()
	start := time.Now()
	ctx := within(s.t, d)
	for _, x := range s.both() {
		x.awaitPath(ctx, s.other(x).name, kind)
	}
	return time.Since(start)
}

// awaitPath waits until the site says that it is connected by a path of the kind.
func (x *site) awaitPath(ctx context.Context, peer, kind string) api.PeerStatus {
	x.t.Helper()
	var p api.PeerStatus
	eventually(ctx, x.t, fmt.Sprintf("%s is connected to %s by a path of kind %s", x.name, peer, kind), func() (bool, string) {
		var found bool
		p, found = x.peer(peer)
		return found && p.State == api.StateConnected && p.Path.Kind == kind, describe(p)
	})
	return p
}

// describe summarises a peer for the error about a wrong path.
func describe(p api.PeerStatus) string {
	text := fmt.Sprintf("state %s (%s), path %s %s from %s: %s", p.State, p.Reason, p.Path.Kind, p.Path.Remote, p.Path.Source, p.Path.Reason)
	for _, c := range p.Candidates {
		text += fmt.Sprintf("\n    %s %s %s %s %s", c.Address, c.Source, c.Relay, c.State, c.Reason)
	}
	for _, h := range p.Path.History {
		text += fmt.Sprintf("\n    %s %s: %s", h.At.Format("15:04:05.000"), h.Event, h.Reason)
	}
	return text
}

// direct is nftables' match for direct packets from one side to the other.
func direct(from, to *site) string {
	return fmt.Sprintf("ip saddr %s ip daddr %s", from.outer, to.outer)
}
