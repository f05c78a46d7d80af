package discovery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
)

// party is an internet with STUN servers, perhaps a relay, and gateways without WireGuard: a
// handshake is two datagrams that name their sender, and a session carries unencrypted messages.
type party struct {
	*world
	t     *testing.T
	relay *relayHost
	stun  []string // servers that the gateways query

	mu    sync.Mutex
	names map[string][]netip.Addr // DNS names; one that is missing cannot be resolved
	all   []*gateway
}

// gateway is a gateway of a party.
type gateway struct {
	p     *party
	name  string
	n     int
	key   peer.PrivateKey
	self  peer.PublicKey // derived from key: that takes a millisecond under the race detector
	nat   *simnet.NAT
	host  *simnet.Host
	alloc *allocation

	// Of the current run.
	conn    *simnet.Conn
	agent   *discovery.Agent
	pf      *discovery.Pathfinder
	cancel  context.CancelFunc
	running sync.WaitGroup
	boot    uint64

	logging sync.Mutex
	log     bytes.Buffer

	mu         sync.Mutex
	peers      []discovery.PathPeer
	routes     map[peer.PublicKey]path.Routing
	sessions   map[peer.PublicKey]bool
	handshakes map[peer.PublicKey]int // that the path finder requested
	sentTo     map[netip.Addr]int     // datagrams, by destination
	tap        func(b []byte, from peer.Path)
	later      atomic.Uint64 // the later start with our own key that a peer reported
	busy       bool          // the tunnel carries traffic all the time
}

const listenPort = 51820

// inParty runs f in virtual time.
func inParty(t *testing.T, relay bool, f func(t *testing.T, p *party)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &party{t: t, stun: []string{stun1, stun2}, world: &world{net: simnet.New(simnet.Options{Seed: 1})}, names: make(map[string][]netip.Addr)}
		defer p.net.Close()
		p.addServers(t)
		if relay {
			p.relay = newRelayHost(t, p.net)
			defer p.relay.close()
		}
		defer func() {
			for _, g := range p.all {
				g.stop()
				if t.Failed() {
					t.Logf("%s\n%s", g.name, g.log.String())
				}
			}
			for _, s := range p.servers {
				_ = s.Close()
			}
			if t.Failed() && os.Getenv("POSTERN_TRACE") != "" {
				_ = p.net.WriteTrace(t.Output())
			}
		}()
		f(t, p)
	})
}

// add creates and starts a gateway behind a NAT (nil = none).
func (p *party) add(name string, b *simnet.Behaviour, o ...func(*gateway)) *gateway {
	p.t.Helper()
	key, err := peer.NewPrivateKey()
	if err != nil {
		p.t.Fatal(err)
	}
	n := len(p.all) + 1
	g := &gateway{p: p, name: name, n: n, key: key, self: key.Public()}
	ho := simnet.HostOptions{
		Name: name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(n)})},
		Link: simnet.Both(simnet.Conditions{Delay: 5 * time.Millisecond}),
	}
	if b != nil {
		g.nat, err = p.net.AddNAT(simnet.NATOptions{
			Name: name + "-nat", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(n)})}, Behaviour: *b,
		})
		if err != nil {
			p.t.Fatal(err)
		}
		ho.Network, ho.Addrs = g.nat.Inside(), []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(n), 5})}
	}
	if g.host, err = p.net.AddHost(ho); err != nil {
		p.t.Fatal(err)
	}
	if p.relay != nil {
		g.alloc = p.relay.allocate(p.t, n)
	}
	p.all = append(p.all, g)
	for _, option := range o {
		option(g)
	}
	g.start()
	return g
}

// start begins a run: a new socket, agent and path finder with the same key.
func (g *gateway) start() {
	t := g.p.t
	t.Helper()
	g.boot++
	g.routes, g.sessions = make(map[peer.PublicKey]path.Routing), make(map[peer.PublicKey]bool)
	g.handshakes, g.sentTo = make(map[peer.PublicKey]int), make(map[netip.Addr]int)
	var err error
	if g.conn, err = g.host.ListenUDP(listenPort); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(lockedWriter{g}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.agent, err = discovery.New(discovery.Options{
		Send:           func(b []byte, to netip.AddrPort) error { return g.send(b, peer.Direct(to), 0) },
		Port:           func() uint16 { return listenPort },
		HostAddrs:      func() ([]netip.Addr, error) { return g.host.Addrs(), nil },
		STUNServers:    g.p.stun,
		Relays:         g.relays,
		Changed:        func() { g.pf.LocalChanged() },
		NetworkChanged: func(string) { g.pf.NetworkChanged() },
		Logger:         log,
	})
	if err != nil {
		t.Fatal(err)
	}
	g.pf, err = discovery.NewPathfinder(discovery.PathfinderOptions{
		PrivateKey: g.key, BootID: g.boot, Resolve: g.p.resolve, Logger: log,
		Send:  func(b []byte, to peer.Path, ttl int, _ bool) error { return g.send(b, to, ttl) },
		Route: g.route, Handshake: g.handshake, Tell: g.tell, Local: g.agent.Local,
		OnSuperseded: func(_ peer.PublicKey, boot uint64) { g.later.Store(boot) },
		Permit:       func(addrs []netip.Addr) { g.alloc.permit(addrs) },
		Own:          func() ([]netip.Addr, error) { return g.host.Addrs(), nil },
		Forbidden:    []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.pf.SetPeers(g.peers); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	for _, run := range []func(context.Context) error{g.agent.Run, g.pf.Run} {
		g.running.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v, want context.Canceled", g.name, err)
			}
		})
	}
	g.running.Go(func() { read(g.conn, g.receive) })
	g.running.Go(func() { g.beat(ctx) })
}

// stop ends a run.
func (g *gateway) stop() {
	g.cancel()
	_ = g.conn.Close()
	g.running.Wait()
}

// heard returns the later start of its key that was reported to the gateway; 0 = none.
func (g *gateway) heard() uint64 { return g.later.Load() }

func (g *gateway) public() peer.PublicKey { return g.self }

// know gives the gateway a peer's candidates and names.
func (g *gateway) know(other *gateway, cs ...discovery.Candidate) { g.knowAs(other, nil, cs...) }

func (g *gateway) knowAs(other *gateway, names []string, cs ...discovery.Candidate) {
	g.p.t.Helper()
	g.mu.Lock()
	g.peers = append(g.peers, discovery.PathPeer{Key: other.public(), Name: other.name, Candidates: cs, Names: names})
	peers := slices.Clone(g.peers)
	g.mu.Unlock()
	if err := g.pf.SetPeers(peers); err != nil {
		g.p.t.Fatal(err)
	}
}

func advertised(a string) discovery.Candidate {
	return discovery.Candidate{Addr: netip.MustParseAddrPort(a), Source: discovery.SourceAdvertised}
}

func (g *gateway) relayedCandidate() discovery.Candidate {
	return discovery.Candidate{Addr: g.alloc.relayedAddr(), Source: discovery.SourceRelay}
}

func (g *gateway) relays() []path.Relay {
	if g.alloc == nil {
		return nil
	}
	return []path.Relay{{Via: g.via(), Addr: g.alloc.relayedAddr(), Server: relayAddr}}
}

func (g *gateway) via() string { return fmt.Sprintf("relay-%d", g.n) }

func (g *gateway) send(b []byte, to peer.Path, ttl int) error {
	g.mu.Lock()
	g.sentTo[to.Remote.Addr()]++
	g.mu.Unlock()
	var err error
	switch {
	case to.Via != "" && (g.alloc == nil || to.Via != g.via()):
		return errors.New("no such relay")
	case to.Via != "":
		_, err = g.conn.WriteToUDPAddrPort(head(to.Remote, b), g.alloc.controlAddr())
	case ttl > 0:
		_, err = g.conn.WriteToTTL(b, to.Remote, uint8(ttl))
	default:
		_, err = g.conn.WriteToUDPAddrPort(b, to.Remote)
	}
	return err
}

func (g *gateway) known() []discovery.PathPeer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.peers)
}

// silentName is a name for which no name server answers.
const silentName = "silent.example.net"

func (p *party) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if host == silentName {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if addrs := p.names[host]; len(addrs) > 0 {
		return addrs, nil
	}
	return nil, errors.New("no such host")
}

func (p *party) setName(host string, addrs ...netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[host] = addrs
}

func (g *gateway) setBusy() {
	g.mu.Lock()
	g.busy = true
	g.mu.Unlock()
}

// to returns the snapshot of the path to a peer.
func (g *gateway) to(other *gateway) path.Snapshot {
	g.p.t.Helper()
	s, ok := g.pf.Snapshot(other.public())
	if !ok {
		g.p.t.Fatalf("%s does not know %s", g.name, other.name)
	}
	return s
}

// until waits for a condition in virtual time.
func (p *party) until(within time.Duration, what string, met func() bool) time.Duration {
	p.t.Helper()
	began := time.Now()
	for !met() {
		if time.Since(began) > within {
			p.t.Fatalf("not within %v: %s", within, what)
		}
		if time.Since(began) < 5*time.Second {
			time.Sleep(10 * time.Millisecond) // virtual
		} else {
			time.Sleep(100 * time.Millisecond) // virtual
		}
		synctest.Wait()
	}
	return time.Since(began)
}

// connected waits until two gateways reach each other on a kind of path.
func (p *party) connected(within time.Duration, kind string, a, b *gateway) time.Duration {
	p.t.Helper()
	return p.until(within, fmt.Sprintf("%s and %s connected, %s", a.name, b.name, kind), func() bool {
		return a.to(b).Kind == kind && b.to(a).Kind == kind
	})
}

// lockedWriter writes to a gateway's log.
type lockedWriter struct{ g *gateway }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.g.logging.Lock()
	defer w.g.logging.Unlock()
	return w.g.log.Write(b)
}

// logged returns the gateway's log so far.
func (g *gateway) logged() string {
	g.logging.Lock()
	defer g.logging.Unlock()
	return g.log.String()
}

func portOf(c *simnet.Conn) uint16 {
	a, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return 0
	}
	return uint16(a.Port)
}
