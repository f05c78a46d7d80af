package lab

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Faults are generated from a place, a kind, a direction, the affected hosts and a time. The
// right answer for each side is derived from what it can know by its own evidence. So the test is
// not a list of the faults that the diagnosis was made for. See the README.

// spot is the place of a fault on the path, from edge to cloud.
type spot int

const (
	edgeHost spot = iota
	edgeRouter
	transit
	cloudHost
)

func (s spot) String() string {
	return [...]string{"edge host", "edge router", "transit", "cloud host"}[s]
}

// kind is what goes wrong there.
type kind int

const (
	dropped      kind = iota
	rejectedNet       // ICMP: network unreachable
	rejectedHost      // ICMP: host unreachable
	rejectedRule      // ICMP: administratively prohibited
	lossy             // three packets of ten are lost
	narrowed          // packets of more than 600 bytes are dropped silently
	policed           // what exceeds 50 kbit/s is dropped
	uneven            // delay of 100 to 200 ms, with reordering: no fault
	cut               // the link is down
	noRoute           // the machine has no route
	noLeave           // its firewall drops everything that leaves
	noBuffers         // it has no buffers to send
	someRefused       // it refuses every second packet
	slow              // a delay of 600 ms each way
	filtered          // WireGuard's messages are dropped, and probes are not
	probeless         // probes are dropped, and WireGuard's messages are not
)

func (k kind) String() string {
	return [...]string{"drop", "reject net", "reject host", "reject rule", "loss 30 %", "size 600", "rate", "jitter", "link down", "no route", "output drop",
		"no buffers", "some refused", "slow", "WireGuard dropped", "probes dropped"}[k]
}

func (k kind) rejects() bool { return k >= rejectedNet && k <= rejectedRule }

// direction is the affected direction: from edge to cloud, from cloud to edge, or both.
type direction int

const (
	toCloud direction = iota + 1
	toEdge
	bothWays
)

func (d direction) String() string { return [...]string{"", "to cloud", "to edge", "both ways"}[d] }

// when is when the fault begins.
type when int

const (
	inLife        when = iota
	fromStart          // before edge's gateway starts and the two know each other
	afterFailover      // another process has just taken cloud's place, with its state
)

func (w when) String() string { return [...]string{"", "from the start", "after a failover"}[w] }

// generatedFault is a fault made of these parts.
type generatedFault struct {
	spot
	kind
	direction
	when
	all bool // everything that edge speaks to is affected, not only cloud
	nat bool // edge is behind a NAT
	// end is a fault at an end instead of on the path. also is one in addition.
	end, also *endFault
	// rules are the rules that fixes have inserted.
	rules *rules
}

// endFault is a fault at an end of the path: a process, a key, a server.
type endFault struct {
	name        string
	do          func(context.Context, *Lab) error
	cloud, edge []catalogue.Code
	// says is what the cause or fix of each side's root must contain; empty means nothing.
	says string
	// fix does what says names; nil if that takes judgement.
	fix func(context.Context, *Lab) error
	// relay means that there is a relay, which both may use.
	relay bool
	// disk is the site whose files are on their own small disk; empty means none.
	disk string
	// adjust changes the gateways' options before they start; it may be nil.
	adjust func(site string, o *gateway.Options)
}

func (g generatedFault) String() string {
	if g.end != nil {
		return strings.TrimSuffix(g.end.name+", "+g.when.String(), ", ")
	}
	if g.also != nil {
		both := *g.also
		g.also = nil
		return g.String() + ", and " + both.name
	}
	parts := []string{g.spot.String(), g.kind.String(), g.direction.String()}
	if g.all {
		parts = append(parts, "of all")
	}
	if g.nat {
		parts = append(parts, "behind NAT")
	}
	if g.when != inLife {
		parts = append(parts, g.when.String())
	}
	return strings.Join(parts, ", ")
}

// generate returns all faults, always in the same order.
func generate() (out []generatedFault) {
	for at := edgeHost; at <= cloudHost; at++ {
		for k := dropped; k <= probeless; k++ {
			for d := toCloud; d <= bothWays; d++ {
				for _, all := range []bool{false, true} {
					for _, nat := range []bool{false, true} {
						for w := inLife; w <= afterFailover; w++ {
							g := generatedFault{spot: at, kind: k, direction: d, all: all, nat: nat, when: w}
							if g.possible() {
								out = append(out, g)
							}
						}
					}
				}
			}
		}
	}
	servers := serverFaults()
	for i, g := range out {
		if !g.nat && g.when == inLife {
			g.also = &servers[i%len(servers)]
			out = append(out, g)
		}
	}
	for _, w := range []when{inLife, afterFailover} {
		for _, e := range slices.Concat(processFaults(), relayFaults(), diskFaults(), objectFaults(), serviceFaults(), clockFaults(), servers) {
			out = append(out, generatedFault{end: &e, when: w})
		}
	}
	for _, e := range nameFaults() {
		out = append(out, generatedFault{end: &e, nat: true, when: fromStart})
	}
	for _, e := range endpointFaults() {
		out = append(out, generatedFault{end: &e, when: fromStart})
	}
	for i := range out {
		out[i].rules = new(rules)
	}
	return out
}

// possible reports whether the parts of a fault fit together.
func (g generatedFault) possible() bool {
	switch {
	case g.all && g.spot > edgeRouter: // traffic to others does not pass there
		return false
	case g.kind == cut:
		return g.direction == bothWays && (g.all || g.spot == cloudHost) && g.spot != transit && (g.spot != edgeRouter || g.nat)
	case g.kind == noRoute, g.kind == noLeave, g.kind == noBuffers: // of edge's machine
		return g.spot == edgeHost && g.direction == toCloud
	case g.kind == someRefused:
		return g.spot == edgeHost && g.direction == toCloud && g.when != fromStart
	case g.kind == slow && g.direction != bothWays:
		return false
	case g.kind == filtered:
		return !g.all && g.when != fromStart
	case g.kind == probeless:
		return !g.all
	case g.passes():
		return !g.all && g.when != fromStart
	case g.rejects() && g.spot == edgeHost, g.rejects() && g.spot == cloudHost: // a host's own firewall
		return g.kind == rejectedRule
	}
	return true
}

// passes reports whether some packets get through in spite of the fault.
func (g generatedFault) passes() bool {
	return slices.Contains([]kind{lossy, narrowed, policed, uneven, someRefused, slow}, g.kind)
}

// cuts reports whether the two cannot reach each other, as far as a status can know: a side that
// still hears the other's messages in the tunnel is connected.
func (g generatedFault) cuts() bool {
	return g.end == nil && !g.passes() && g.kind != probeless && (g.kind != filtered || g.direction == bothWays)
}

// answers returns the right codes for each side; none if nothing is wrong for it.
func (g generatedFault) answers() (cloud, edge []catalogue.Code) {
	if g.end != nil {
		return g.end.cloud, g.end.edge
	}
	if both := g.also; both != nil { // edge names the nearer one, cloud its own server
		g.also = nil
		cloud, edge = g.answers()
		if cloud = append(cloud, both.cloud...); g.passes() || g.kind == probeless {
			edge = append(edge, both.edge...)
		}
		return cloud, edge
	}
	silent := codes(catalogue.HandshakeStale)
	if g.when == fromStart {
		silent = codes(catalogue.PeerSilent)
	}
	switch g.kind {
	case lossy:
		return codes(catalogue.PacketsLost), codes(catalogue.PacketsLost)
	case narrowed:
		return codes(catalogue.PathMTUSmall), codes(catalogue.PathMTUSmall)
	case policed: // only connections distinguish a limiter from a lossy line, and there are none
		both := codes(catalogue.PacketsLost, catalogue.RateLimited)
		return both, both
	case uneven:
		return nil, nil
	case someRefused:
		return codes(catalogue.PacketsLost), codes(catalogue.SendFails)
	case slow:
		return codes(catalogue.PathSlow), codes(catalogue.PathSlow)
	case probeless:
		return codes(catalogue.ProbesDropped), codes(catalogue.ProbesDropped)
	case filtered: // which messages are, shows when WireGuard has tried a handshake
		both := codes(catalogue.PingLost, catalogue.HandshakeStale)
		return both, both
	}
	out, in := g.direction&toCloud != 0, g.direction&toEdge != 0
	unknown := g.when == fromStart && g.nat && out // edge never dials, and cloud knows no address of it
	cloud, edge = silent, silent
	switch {
	case g.kind == cut && g.spot == cloudHost:
		cloud = codes(catalogue.LinkDown)
	case unknown:
		cloud = codes(catalogue.PeerMustDial)
	case in && g.rejects():
		cloud = g.refused(cloudHost)
	case in && !out:
		cloud = codes(catalogue.NotHeardByPeer)
	}
	switch {
	case g.kind == noRoute:
		edge = codes(catalogue.NoRoute)
	case g.kind == noLeave:
		edge = codes(catalogue.SendProhibited)
	case g.kind == noBuffers:
		edge = codes(catalogue.SendFails)
	case g.kind == cut && g.spot == edgeHost:
		edge = codes(catalogue.LinkDown)
	case out && g.rejects():
		edge = g.refused(edgeHost)
	case g.all && out && !in && !unknown:
		edge = codes(catalogue.NothingAnswers, catalogue.NotHeardByPeer)
	case g.all:
		edge = codes(catalogue.NothingAnswers)
	case out && !in && !unknown:
		edge = codes(catalogue.NotHeardByPeer)
	}
	return cloud, edge
}

// refused returns the codes for the side whose packets are rejected.
func (g generatedFault) refused(host spot) []catalogue.Code {
	if g.spot == host { // its own firewall
		return codes(catalogue.SendProhibited)
	}
	return codes(catalogue.RouterRefuses)
}

// make causes the fault.
func (g generatedFault) make(ctx context.Context, l *Lab) error {
	if g.end != nil {
		return g.end.do(ctx, l)
	}
	if g.also != nil {
		if err := g.also.do(ctx, l); err != nil {
			return err
		}
	}
	link, fromEdge, by := l.Edge.Host.Link(), true, l.Edge.Host.Addrs()[0]
	switch {
	case g.spot == edgeRouter && g.nat:
		link, by = l.NAT.Link(), netip.MustParseAddr("192.168.7.1")
	case g.spot == edgeRouter:
		by = netip.MustParseAddr("203.0.113.1")
	case g.spot == transit:
		link, fromEdge, by = l.Cloud.Host.Link(), false, netip.MustParseAddr("192.0.2.254")
	case g.spot == cloudHost:
		link, fromEdge, by = l.Cloud.Host.Link(), false, cloudAddr
	}
	edges := []netip.Addr{edgePublic, natAddr, edgeAddr}
	hit := func(d simnet.Datagram, out bool) bool {
		way := toEdge
		if out == fromEdge {
			way = toCloud
		}
		pair := slices.Contains([]netip.Addr{d.Src.Addr(), d.Dst.Addr()}, cloudAddr) &&
			(slices.Contains(edges, d.Src.Addr()) || slices.Contains(edges, d.Dst.Addr()))
		return g.direction&way != 0 && (g.all || pair) && (g.kind != filtered || isWireGuard(d.Payload)) &&
			(g.kind != probeless || !isWireGuard(d.Payload))
	}
	switch g.kind {
	case cut:
		link.SetDown(true)
	case noRoute, noLeave, noBuffers, someRefused:
		why := map[kind]syscall.Errno{noRoute: syscall.ENETUNREACH, noLeave: syscall.EPERM, noBuffers: syscall.ENOBUFS, someRefused: syscall.EPERM}[g.kind]
		var sends atomic.Uint64
		l.Edge.Refuse(func(to netip.AddrPort) error {
			passes := g.kind == someRefused && sends.Add(1)%2 == 0
			if (g.all || to.Addr() == cloudAddr) && !passes && !g.rules.accepts(netip.AddrPort{}, to) {
				return fmt.Errorf("sendmsg: %w", why)
			}
			return nil
		})
	case lossy, narrowed, policed, uneven, slow:
		for way, d := range map[simnet.Direction]direction{simnet.Up: toCloud, simnet.Down: toEdge} {
			if !fromEdge {
				d ^= bothWays
			}
			c := link.Conditions(way)
			if g.direction&d == 0 {
				continue
			}
			switch g.kind {
			case lossy:
				c.Loss = 0.3
			case narrowed:
				c.MTU, c.SilentMTU = 600, true
			case policed:
				c.Rate, c.Queue = 50_000, simnet.DefaultMTU
			case slow:
				c.Delay = 600 * time.Millisecond
			default:
				c.Delay, c.Jitter, c.Reorder = 100*time.Millisecond, 100*time.Millisecond, 0.02
			}
			if err := link.SetConditions(way, c); err != nil {
				return err
			}
		}
	default:
		f := simnet.Firewall{Drop: g.rules.filter(hit)}
		if g.rejects() {
			f.Reject = &simnet.Rejection{Kind: simnet.NetworkUnreachable + simnet.ICMPKind(g.kind-rejectedNet), By: by}
		}
		link.SetFirewall(f)
	}
	return nil
}

// isWireGuard reports whether a datagram is a WireGuard message: a type from 1 to 4, and three zeros
// (WireGuard paper §5.4). A STUN message has its length there.
func isWireGuard(b []byte) bool {
	return len(b) >= 4 && b[0] >= 1 && b[0] <= 4 && b[1] == 0 && b[2] == 0 && b[3] == 0
}

// processFaults are faults of gateways and STUN servers.
func processFaults() []endFault {
	both := func(name string, c catalogue.Code, do func(context.Context, *Lab) error) endFault {
		return endFault{name: name, do: do, cloud: codes(c), edge: codes(c)}
	}
	return []endFault{
		{name: "cloud process, stopped", edge: codes(catalogue.NothingListens), says: "start the gateway",
			do:  func(_ context.Context, l *Lab) error { return l.Cloud.halt() },
			fix: func(ctx context.Context, l *Lab) error { return l.Cloud.Start(ctx) }},
		{name: "cloud process, ending again and again", edge: codes(catalogue.PeerRestarts), says: "what it says before each start",
			do: func(ctx context.Context, l *Lab) error {
				for range 3 {
					if err := l.Cloud.restart(ctx); err != nil {
						return err
					}
					if _, err := l.awaitMet(ctx); err != nil { // edge has heard of this start
						return err
					}
				}
				return l.Cloud.halt()
			}},
		both("cloud key, another after a new installation", catalogue.WrongPeerKey, func(ctx context.Context, l *Lab) error {
			key, err := peer.NewPrivateKey()
			if err != nil {
				return err
			}
			if err := l.Cloud.halt(); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(l.Cloud.File), "private.key"), []byte(key.Base64()+"\n"), 0o600); err != nil {
				return err
			}
			if err := os.RemoveAll(l.Cloud.Spec().StateDir); err != nil {
				return err
			}
			return l.Cloud.Start(ctx)
		}),
		{name: "cloud process, restored without edge", cloud: codes(catalogue.UnknownKey), edge: codes(catalogue.HandshakeStale),
			do: func(ctx context.Context, l *Lab) error {
				if err := l.Cloud.Edit(func(spec *api.GatewaySpec) { spec.Peers = nil }); err != nil {
					return err
				}
				return l.Cloud.restart(ctx)
			}},
		{name: "STUN server, one of three sees another address", edge: codes(catalogue.StunOutvoted), says: "take 192.0.2.57:3478 out of", fix: func(ctx context.Context, l *Lab) error {
			if err := l.Edge.Edit(func(spec *api.GatewaySpec) {
				spec.Discovery.STUNServers = slices.DeleteFunc(spec.Discovery.STUNServers, func(s string) bool { return s == "192.0.2.57:3478" })
			}); err != nil {
				return err
			}
			return l.Edge.reload(ctx)
		}, do: func(ctx context.Context, l *Lab) error {
			at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.57"), stunPort)
			host, err := l.Internet.AddHost(simnet.HostOptions{Name: "stun-lying", Addrs: []netip.Addr{at.Addr()}, Link: line()})
			if err != nil {
				return err
			}
			conn, err := host.ListenAddrPort(at)
			if err != nil {
				return err
			}
			s := stunserver.Serve(conn)
			s.SetResponse(stunserver.Lying(netip.MustParseAddrPort("203.0.113.77:4711")))
			l.stun = append(l.stun, s)
			if err := l.Edge.Edit(func(spec *api.GatewaySpec) {
				spec.Discovery.STUNServers = append(spec.Discovery.STUNServers, at.String())
			}); err != nil {
				return err
			}
			return l.Edge.reload(ctx)
		}},
		{name: "STUN servers, silent to edge", edge: codes(catalogue.StunUnreachable), says: "let UDP to it out", fix: func(_ context.Context, l *Lab) error {
			l.Edge.Host.Link().SetFirewall(simnet.Firewall{})
			return nil
		}, do: func(_ context.Context, l *Lab) error {
			l.Edge.Host.Link().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, _ bool) bool {
				return slices.Contains(stunAddrs, d.Src.Addr()) || slices.Contains(stunAddrs, d.Dst.Addr())
			}})
			return nil
		}},
	}
}

// nameFaults are faults of names by which edge, behind a NAT, knows cloud from the start.
func nameFaults() []endFault {
	const name = "cloud.example.net"
	dials := func(l *Lab) error { return l.Edge.know(dial(name + ":51820")) }
	return []endFault{
		{name: "DNS, silent", cloud: codes(catalogue.PeerMustDial), edge: codes(catalogue.ResolverSilent), do: func(_ context.Context, l *Lab) error {
			l.names.silence()
			return dials(l)
		}},
		{name: "DNS, no such name", cloud: codes(catalogue.PeerMustDial), edge: codes(catalogue.NameUnknown), do: func(_ context.Context, l *Lab) error {
			return dials(l)
		}},
		{name: "DNS, the address of nobody", cloud: codes(catalogue.PeerMustDial), edge: codes(catalogue.PeerSilent), do: func(_ context.Context, l *Lab) error {
			l.names.set(name, netip.MustParseAddr("203.0.113.99"))
			return dials(l)
		}},
	}
}

// endpointFaults are endpoints by which edge, alone, is to dial cloud, and which lead elsewhere.
func endpointFaults() []endFault {
	leads := func(name string, to func(context.Context, *Lab) (netip.Addr, error)) endFault {
		return endFault{name: name, cloud: codes(catalogue.PeerMustDial), edge: codes(catalogue.EndpointOfAnother), do: func(ctx context.Context, l *Lab) error {
			if err := l.Cloud.know(func(p *api.Peer) { p.Endpoints = nil }); err != nil {
				return err
			}
			at, err := to(ctx, l)
			if err != nil {
				return err
			}
			return l.Edge.Edit(func(s *api.GatewaySpec) { s.Peers[0].Endpoints = []string{endpoint(at)} })
		}}
	}
	return []endFault{
		leads("endpoint, edge's own", func(context.Context, *Lab) (netip.Addr, error) { return edgePublic, nil }),
		leads("endpoint, another peer's", func(ctx context.Context, l *Lab) (netip.Addr, error) { return copyAddr, l.befriend(ctx, copyAddr) }),
	}
}

// befriend adds a gateway at an address as another peer of edge.
func (l *Lab) befriend(ctx context.Context, at netip.Addr) error {
	host, err := l.Internet.AddHost(simnet.HostOptions{Name: "berlin", Addrs: []netip.Addr{at}, Link: line()})
	if err != nil {
		return err
	}
	key, err := peer.NewPrivateKey()
	if err != nil {
		return err
	}
	berlin, err := l.newSite(ctx, host, key, "default")
	if err != nil {
		return err
	}
	l.others = append(l.others, berlin)
	both := []string{api.ServiceAuth, api.ServiceAPIServer}
	if err := berlin.learn(ctx, func(p *api.Peer) {
		*p = api.Peer{Name: "edge", PublicKey: l.Edge.key.Public().String(), Allow: both}
	}); err != nil {
		return err
	}
	return l.Edge.Edit(func(s *api.GatewaySpec) {
		s.Peers = append(s.Peers, api.Peer{Name: "berlin", PublicKey: key.Public().String(), Endpoints: []string{endpoint(at)}, Allow: both})
	})
}

// serverFaults are those of cloud's API server.
func serverFaults() (out []endFault) {
	for _, s := range apiServers() {
		out = append(out, endFault{name: s.Name, cloud: s.fault.cloud, edge: s.fault.edge, do: func(ctx context.Context, l *Lab) error {
			_, err := s.fault.harm(ctx, l)
			return err
		}})
	}
	return out
}

// says reports whether a root contains what it must.
func (d diagnosis) says(g generatedFault) bool {
	return g.end == nil || g.end.says == "" || slices.ContainsFunc(d.roots(), func(c api.Check) bool {
		return strings.Contains(c.Cause+" "+c.Fix, g.end.says)
	})
}

// outcome is how correct a verdict is.
type outcome int

const (
	wrong outcome = iota
	half          // nothing false, but not everything that can be known
	right
)

func (o outcome) String() string { return [...]string{"wrong", "half", "right"}[o] }

// judge compares what a side found with what is right. If there is something to find, finding
// nothing is half right, and so are codes that only say that nothing is heard. Any other code that
// is not right makes the verdict wrong.
func judge(found, want []catalogue.Code) outcome {
	silence := codes(catalogue.Unanswered, catalogue.HandshakeStale, catalogue.PeerSilent)
	in := func(list []catalogue.Code) func(catalogue.Code) bool {
		return func(c catalogue.Code) bool { return slices.Contains(list, c) }
	}
	other := func(list []catalogue.Code) bool {
		return slices.ContainsFunc(found, func(c catalogue.Code) bool { return !slices.Contains(list, c) })
	}
	switch {
	case !other(want) && (len(want) == 0 || slices.ContainsFunc(found, in(want))):
		return right
	case len(want) > 0 && !other(append(silence, want...)):
		return half
	}
	return wrong
}

// scored is the result for one side.
type scored struct {
	fault          generatedFault
	side           string
	want           []catalogue.Code
	first, settled []catalogue.Code
	atFirst        outcome
	outcome                      // once settled
	after          time.Duration // time until it was right; 0 for never
	exit           bool          // an unreachable peer without an error
	green          bool          // a status shows an unreachable peer as connected although it could know
	other          bool          // a status shows another root of the peer's silence once settled
	silent         time.Duration // the longest check while the peer was silent
	wrong          []string      // what was false in any check
	log            *record       // that of both gateways
	repair                       // of both sides
	fixes          []string      // of this side
	starved        bool          // the gateway reports that this machine was too busy for its timers
}

const (
	// soon is how long after the fault a verdict may be wrong.
	soon = 5 * time.Second
	// settleTime is the time after which verdicts must be settled.
	settleTime = 50 * time.Second
)

// scenario returns the fault as a scenario of the lab.
func (g generatedFault) scenario() Scenario {
	s := Scenario{Name: g.String(), cloud: public, edge: public, fault: new(fault)}
	s.fault.cloud, s.fault.edge = g.answers()
	if g.nat {
		s.edge = portRestricted
	}
	if g.end != nil {
		s.relay = g.end.relay
	}
	if g.when == fromStart {
		s.fault.slip = func(ctx context.Context, l *Lab) (string, error) {
			if err := g.make(ctx, l); err != nil {
				return "", err
			}
			return s.Name, l.Edge.restart(ctx)
		}
		return s
	}
	s.fault.harm = func(ctx context.Context, l *Lab) (string, error) {
		if g.when == afterFailover {
			if err := l.failOver(ctx); err != nil {
				return "", err
			}
		}
		return s.Name, g.make(ctx, l)
	}
	return s
}

// options returns the options of the fault's lab.
func (g generatedFault) options() Options {
	o := Options{Version: "test", Scenario: g.scenario(), StepLimit: patience}
	if g.end != nil {
		o.Adjust = g.end.adjust
	}
	return o
}

// play causes a fault on a new pair and reads what both sides find, at once and until it is
// right.
func (g generatedFault) play(ctx context.Context, dir string) (out []scored, err error) {
	log := &record{}
	o := g.options()
	o.Dir, o.Logger = dir, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if g.end != nil && g.end.disk != "" {
		undo, err := mountDisk(filepath.Join(dir, g.end.disk))
		if err != nil {
			return nil, err
		}
		defer undo()
	}
	l, err := Build(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := l.Close(); err == nil {
			err = cerr
		}
	}()
	if err := l.Play(ctx, Prepare, Progress{}); err != nil {
		return nil, err
	}
	if _, err := l.harm(ctx); err != nil {
		return nil, err
	}
	out, err = g.watch(ctx, l)
	for i := range out {
		out[i].log = log
	}
	return out, err
}

// harm causes the fault, without waiting until it is found.
func (l *Lab) harm(ctx context.Context) (string, error) { return l.steps(Harm)[0].do(ctx) }

func (g generatedFault) watch(ctx context.Context, l *Lab) ([]scored, error) {
	cloud, edge := g.answers()
	out := []scored{{fault: g, side: "cloud", want: cloud}, {fault: g, side: "edge", want: edge}}
	out = slices.DeleteFunc(out, func(s scored) bool { return s.side == "cloud" && l.Cloud.Running() == nil })
	start := time.Now()
	for round := 0; ; round++ {
		all := true
		var looking sync.WaitGroup
		errs := make([]error, len(out))
		found := make([]diagnosis, len(out))
		for i := range out {
			looking.Go(func() {
				s := &out[i]
				d := diagnosis{site: l.Edge}
				if s.side == "cloud" {
					d.site = l.Cloud
				}
				asked := time.Now()
				d.report, d.err = d.site.Gateway.Check(ctx, api.CheckRequest{})
				errs[i], found[i] = d.err, d
				silent := unreached(d.report)
				if silent && !slices.Contains(d.codes(), catalogue.PacketsLost) { // such a peer is heard occasionally
					s.silent = max(s.silent, time.Since(asked))
				}
				s.settled = d.codes()
				if round == 0 {
					s.first = s.settled
				}
				since := time.Since(start)
				if status, err := d.site.Gateway.Status(ctx); err != nil {
					errs[i] = err
				} else if len(status.Peers) == 1 {
					p := status.Peers[0]
					s.green = s.green || g.cuts() && since > soon && p.Shown() == api.StateConnected
					s.other = silent && !slices.Contains(s.settled, catalogue.Code(p.Reachability.Outbound.Gateway.Code)) && p.Reachability.Outbound.Gateway.Verdict == api.Error
				}
				s.exit = s.exit || d.report.Summary.Error == 0 && silent
				s.starved = s.starved || slices.Contains(s.settled, catalogue.ProcessStarved)
				o := judge(s.settled, s.want)
				if o == right && len(s.want) > 0 && !d.says(g) {
					o = half
				}
				s.outcome = o
				if round == 0 {
					s.atFirst = o
				}
				if o == wrong {
					s.wrong = append(s.wrong, text(s.settled))
				}
				for _, c := range d.roots() {
					if words := c.Cause + " " + c.Fix; goError.MatchString(words) {
						s.wrong = append(s.wrong, c.Code+" says: "+words)
					}
				}
				if o != right {
					s.after = 0
				} else if s.after == 0 {
					s.after = time.Since(start)
				}
			})
		}
		looking.Wait()
		for i, s := range out {
			if errs[i] != nil {
				return nil, errs[i]
			}
			all = all && s.after > 0 && time.Since(start)-s.after > time.Second
		}
		quiet := len(cloud)+len(edge) == 0 && round < 3 // finding nothing takes longer to confirm
		if all && !quiet || time.Since(start) > settleTime {
			done, err := g.applyFixes(ctx, l, found)
			for i := range out {
				out[i].repair = done
				for _, c := range found[i].roots() {
					out[i].fixes = append(out[i].fixes, c.Fix)
				}
			}
			return out, err
		}
		rest(ctx)
	}
}

// goError matches Go's error texts, which must not be shown to users.
var goError = regexp.MustCompile(`context (deadline exceeded|canceled)|netstack:|(dial|read|write) (tcp|udp)|sendmsg|i/o timeout`)

// unreached reports whether a peer's tunnel does not work. One that follows from a warning works.
func unreached(r api.CheckReport) bool {
	return slices.ContainsFunc(r.Checks, func(c api.Check) bool {
		return c.Direction == api.DirectionOutbound && c.Name == api.ServiceGateway && c.Verdict.Verdict != api.OK && c.Verdict.Verdict != api.Warning &&
			!slices.ContainsFunc(r.Checks, func(root api.Check) bool {
				return root.Direction == api.DirectionOwn && c.DependsOn == "own/"+root.Name && root.Verdict.Verdict == api.Warning
			})
	})
}

// sample draws n of all faults, the same each time, or of those that match POSTERN_FAULTS_OF.
func sample(n int) []generatedFault {
	only := regexp.MustCompile(os.Getenv("POSTERN_FAULTS_OF"))
	all := slices.DeleteFunc(generate(), func(g generatedFault) bool { return !only.MatchString(g.String()) })
	rng := rand.New(rand.NewPCG(uint64(20), uint64(n)))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// The sample is drawn from all faults; see `make faults`. Verdicts may be half right as long as
// nothing is false. Once settled, 9 of 10 must be right.
func TestGeneratedFaultsAreNamed(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("POSTERN_FAULTS"))
	if err != nil {
		t.Skip("set POSTERN_FAULTS to the size of a sample")
	}
	all := sample(n)
	var mu sync.Mutex
	var scores []scored
	t.Run("all", func(t *testing.T) {
		turns := make(chan struct{}, 12)
		for _, g := range all {
			t.Run(g.String(), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				s, err := g.play(t.Context(), t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range s {
					if len(s.wrong) > 0 {
						t.Logf("false of %s: %s\n%s", s.side, strings.Join(s.wrong, ", "), s.log)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				scores = append(scores, s...)
			})
		}
	})
	drawn := len(scores)
	scores = slices.DeleteFunc(scores, func(s scored) bool { return s.starved })
	for _, s := range scores {
		if s.exit || s.green {
			t.Errorf("%s, %s: the peer is out of reach, and a check has no error: %v; a status shows it as connected: %v", s.fault, s.side, s.exit, s.green)
		}
	}
	text, share := confusion(scores)
	t.Logf("\n%s%d of %d verdicts are left out: this machine was too busy\n", text, drawn-len(scores), drawn)
	if share < 0.9 {
		t.Errorf("%.0f %% are right once settled, want 90", 100*share)
	}
}

// confusion returns the matrix of right and found codes, and the share that is right once
// settled.
func confusion(scores []scored) (string, float64) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	count := map[outcome]int{}
	first := map[outcome]int{}
	exits, greens, others, everWrong := 0, 0, 0, 0
	var silent []time.Duration
	cells := map[[2]string]int{}
	var late []time.Duration
	for _, s := range scores {
		count[s.outcome]++
		first[s.atFirst]++
		cells[[2]string{text(s.want), text(s.settled)}]++
		if s.after > 0 {
			late = append(late, s.after)
		}
		if s.exit {
			exits++
		}
		if s.other {
			others++
		}
		if s.silent > 0 {
			silent = append(silent, s.silent)
		}
		if s.green {
			greens++
		}
		if len(s.wrong) > 0 {
			everWrong++
		}
		if o := s.outcome; o != right || len(s.wrong) > 0 || s.after > soon {
			fmt.Fprintf(w, "%s\t%s\tright %s\tat first %s (%s)\tsettled %s (%s)\tafter %.0f s\tfalse %s\n", s.fault, s.side, text(s.want),
				text(s.first), s.atFirst, text(s.settled), o, s.after.Seconds(), strings.Join(s.wrong, ", "))
		}
	}
	fmt.Fprint(w, "\nright answer\tfound, once settled\tverdicts\n")
	var keys [][2]string
	for k := range cells {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%d\n", k[0], k[1], cells[k])
	}
	n := float64(max(len(scores), 1))
	slices.Sort(late)
	if len(late) == 0 {
		late = []time.Duration{0}
	}
	fmt.Fprintf(w, "\n%d verdicts\tright\thalf\twrong\n", len(scores))
	for _, l := range []struct {
		when string
		of   map[outcome]int
	}{{"at the first check", first}, {"once settled", count}} {
		fmt.Fprintf(w, "%s\t%.1f %%\t%.1f %%\t%.1f %%\n", l.when, 100*float64(l.of[right])/n, 100*float64(l.of[half])/n, 100*float64(l.of[wrong])/n)
	}
	fmt.Fprintf(w, "right after\tmedian %.0f s\t90 %% %.0f s\t\nunreachable without an error\t%d\t\t\nconnected by status after 5 s\t%d\t\t\nfalse at any check\t%.1f %%\t\t\n",
		late[len(late)/2].Seconds(), late[len(late)*9/10].Seconds(), exits, greens, 100*float64(everWrong)/n)
	slices.Sort(silent)
	if len(silent) > 0 {
		fmt.Fprintf(w, "another root by status\t%d\t\t\nlongest check of a silent peer\tmedian %.1f s\t90 %% %.1f s\tat most %.1f s\n", others,
			silent[len(silent)/2].Seconds(), silent[len(silent)*9/10].Seconds(), silent[len(silent)-1].Seconds())
	}
	repairs := map[repair]int{}
	for i, s := range scores {
		if i == 0 || scores[i-1].fault.String() != s.fault.String() {
			repairs[s.repair]++
		}
		if s.repair == useless {
			fmt.Fprintf(w, "the fix did not help: %s, %s: %s\n", s.fault, s.side, strings.Join(s.fixes, "; "))
		}
	}
	fmt.Fprintf(w, "the fix applied as printed\thelped %d\tdid not %d\ttakes judgement %d\n", repairs[helpful], repairs[useless], repairs[notMechanical])
	byTime(w, scores)
	_ = w.Flush() // in memory
	return b.String(), float64(count[right]) / n
}

// byTime writes, for each kind of fault, the share of verdicts that were right by a time after
// the fault and stayed right.
func byTime(w io.Writer, scores []scored) {
	within := []time.Duration{soon, 15 * time.Second, settleTime}
	kinds := map[string][]scored{"all": scores}
	for _, s := range scores {
		kinds[s.fault.sort()] = append(kinds[s.fault.sort()], s)
	}
	fmt.Fprint(w, "\nright within\tverdicts")
	for _, d := range within {
		fmt.Fprintf(w, "\t%s", d)
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(w, "\n%s\t%d", k, len(kinds[k]))
		for _, d := range within {
			n := 0
			for _, s := range kinds[k] {
				if s.after > 0 && s.after <= d {
					n++
				}
			}
			fmt.Fprintf(w, "\t%.1f %%", 100*float64(n)/float64(len(kinds[k])))
		}
	}
	fmt.Fprintln(w)
}

// sort returns the group of a fault in the table of times.
func (g generatedFault) sort() string {
	switch {
	case g.end != nil:
		return "end"
	case g.also != nil:
		return "pair, " + g.kind.String()
	}
	return strings.TrimSuffix(g.kind.String()+", "+g.when.String(), ", ")
}

func text(c []catalogue.Code) string {
	if len(c) == 0 {
		return "nothing"
	}
	var out []string
	for _, code := range c {
		out = append(out, strings.TrimPrefix(string(code), "PST"))
	}
	return strings.Join(out, " ")
}

// Every generated fault has a unique name and an answer, which tells no side of what it cannot
// know.
func TestGeneratedFaultsHaveAnswers(t *testing.T) {
	names := map[string]bool{}
	for _, g := range generate() {
		cloud, edge := g.answers()
		if names[g.String()] || len(cloud)+len(edge) == 0 && g.kind != uneven {
			t.Errorf("%s is duplicate or has no answer", g)
		}
		names[g.String()] = true
		if own := codes(catalogue.LinkDown, catalogue.NoRoute, catalogue.SendProhibited); g.spot < transit && g.end == nil &&
			slices.ContainsFunc(cloud, func(c catalogue.Code) bool { return slices.Contains(own, c) }) {
			t.Errorf("%s: cloud is to find %v of itself", g, cloud)
		}
	}
	if len(names) < 100 {
		t.Errorf("got only %d faults", len(names))
	}
	for _, c := range []struct {
		found, want []catalogue.Code
		is          outcome
	}{
		{nil, nil, right},
		{codes(catalogue.HandshakeStale), nil, wrong},
		{nil, codes(catalogue.LinkDown), half},
		{codes(catalogue.LinkDown), codes(catalogue.LinkDown), right},
		{codes(catalogue.Unanswered), codes(catalogue.LinkDown), half},
		{codes(catalogue.LinkDown, catalogue.AuthTimeout), codes(catalogue.LinkDown), wrong},
		{codes(catalogue.NothingListens), codes(catalogue.LinkDown), wrong},
	} {
		if got := judge(c.found, c.want); got != c.is {
			t.Errorf("found %v, right %v: got %s, want %s", c.found, c.want, got, c.is)
		}
	}
}
