package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

// ErrRunning is returned by a second [Agent.Run].
var ErrRunning = errors.New("discovery: the agent runs already")

// resolveTimeout bounds one resolution of a name.
const resolveTimeout = 5 * time.Second

// Options configure an [Agent]. Send and Port are required.
type Options struct {
	// Send sends a datagram from the gateway's own socket. It must not block for long.
	Send func(packet []byte, to netip.AddrPort) error
	// Port returns the gateway's listen port.
	Port func() uint16
	// HostAddrs lists the host's addresses that may be candidates; nil = [InterfaceAddrs].
	HostAddrs func() ([]netip.Addr, error)
	// Advertise are addresses to announce as they are: "IP:port" or "host:port".
	Advertise []string
	// STUNServers are queried for our public address: "IP:port" or "host:port".
	STUNServers []string
	// Resolve resolves a name; nil = the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Exclude are ranges whose addresses are never candidates: those of pods and Services, which
	// elsewhere lead to another host or nowhere.
	Exclude []netip.Prefix
	// Inside are ranges of this host's own addresses, such as a pod's, that may be unreachable from
	// outside its cluster. Each address is a candidate only if STUN servers see us there, and
	// nowhere else.
	Inside []netip.Prefix
	// Relays returns the current allocations on relays; nil = none. It is called without locks.
	// [Agent.RelaysChanged] reports changes.
	Relays func() []path.Relay
	// PortMapper maps a port on the router; nil = no port mapping. Its creator runs it, and makes
	// it call [Agent.PortMappingChanged].
	PortMapper *portmap.Mapper
	// Changed is called when the candidates or the NAT have changed; NetworkChanged when the host's
	// addresses have or the process was suspended, with the reason in words. Run calls both, in
	// order and without locks; they must not block for long.
	Changed        func()
	NetworkChanged func(reason string)
	// Logger logs changes; nil = discard.
	Logger *slog.Logger
}

// Agent gathers candidates while [Agent.Run] runs. Its methods are safe for concurrent use and do
// not block, except [Agent.WaitGathered] and Run.
type Agent struct {
	send      func([]byte, netip.AddrPort) error
	port      func() uint16
	hostAddrs func() ([]netip.Addr, error)
	resolve   func(context.Context, string) ([]netip.Addr, error)
	relays    func() []path.Relay
	changed   func()
	network   func(reason string)
	mapper    mapper
	log       *slog.Logger

	// Owned by Run.
	began    time.Time
	sleep    sleepWatch
	last     Snapshot // as of the last call of Changed
	observed observed // as last passed to the port mapper

	wake    wake.Signal // signals poll
	running atomic.Bool

	mu       sync.Mutex // guards the following; not held while sending or resolving
	g        *gatherer
	gathered chan struct{} // closed once nothing is pending
	complete bool
}

// New returns an agent that does nothing yet. It fails on an address that cannot be parsed.
func New(o Options) (*Agent, error) {
	if o.Send == nil || o.Port == nil {
		return nil, errors.New("discovery: Send and Port are required")
	}
	g := &gatherer{
		exclude: slices.Concat(o.Exclude, o.Inside), nowhere: o.Exclude, newTx: stunwire.NewTxID,
		jitter: func() time.Duration { return rand.N(refreshJitter) },
	}
	for _, text := range o.Advertise {
		n, err := parseName(text)
		if err != nil {
			return nil, fmt.Errorf("advertised address: %w", err)
		}
		g.advertised = append(g.advertised, n)
	}
	seen := make(map[string]bool)
	for _, text := range o.STUNServers {
		n, err := parseName(text)
		if err != nil {
			return nil, fmt.Errorf("STUN server: %w", err)
		}
		if !seen[text] {
			g.servers = append(g.servers, &server{name: n})
		}
		seen[text] = true
	}
	a := &Agent{
		send: o.Send, port: o.Port, hostAddrs: o.HostAddrs, resolve: o.Resolve, log: o.Logger,
		relays: o.Relays, changed: o.Changed, network: o.NetworkChanged, mapper: mapper{o.PortMapper},
		wake: wake.New(), g: g, gathered: make(chan struct{}),
	}
	a.setDefaults()
	return a, nil
}

func (a *Agent) setDefaults() {
	if a.hostAddrs == nil {
		a.hostAddrs = InterfaceAddrs
	}
	if a.resolve == nil {
		a.resolve = resolveBySystem
	}
	if a.relays == nil {
		a.relays = func() []path.Relay { return nil }
	}
	if a.changed == nil {
		a.changed = func() {}
	}
	if a.network == nil {
		a.network = func(string) {}
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
}

func resolveBySystem(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// Run gathers and refreshes candidates until ctx ends, and returns ctx's cause. It owns its
// goroutines and waits for them. An agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	if a.running.Swap(true) {
		return ErrRunning
	}
	a.mu.Lock()
	now := time.Now()
	for _, s := range a.g.servers {
		s.retarget(now)
	}
	a.mu.Unlock()
	a.began = now
	return drive(ctx, a.wake, a.step)
}

// step does what is due and returns the time of the next step.
func (a *Agent) step(ctx context.Context, resolving *sync.WaitGroup) time.Time {
	port, relays := a.port(), a.relays()
	mapping, settled := a.mapper.status(), a.mapper.settled()
	a.mu.Lock()
	now := time.Now()
	a.g.setPort(now, port)
	a.g.setMapping(mapping, settled)
	a.g.spoken = relayed(relays)
	do, next := a.g.poll(now)
	clocks := clocks{wall: now.Round(0), mono: now.Sub(a.began)}
	clocks.asleep, clocks.known = asleep()
	slept := a.sleep.looked(clocks, max(0, next.Sub(now)))
	if slept != "" {
		a.g.slept(now)
		next = now
	}
	a.mu.Unlock()

	for _, host := range do.resolve {
		resolving.Go(func() { a.resolveName(ctx, host) })
	}
	for _, d := range do.send {
		if err := a.send(d.packet, d.to); err != nil {
			a.update(func(now time.Time) { a.g.sendFailed(now, d, err) })
		}
	}
	if do.readHosts {
		addrs, err := a.hostAddrs()
		a.update(func(now time.Time) { a.g.setHosts(now, addrs, err) })
	}
	if slept != "" {
		a.log.Info("time has jumped ahead; all paths are checked", "because", slept)
		a.mapper.networkChanged()
		a.network(slept)
	}
	a.report(a.settle())
	a.observe()
	a.reportChanges()
	return next
}

// relayed returns the relays' addresses.
func relayed(relays []path.Relay) []netip.AddrPort {
	out := make([]netip.AddrPort, len(relays))
	for i, r := range relays {
		out[i] = r.Addr
	}
	return out
}

// reportChanges calls Changed if the candidates or the NAT have changed.
func (a *Agent) reportChanges() {
	s := a.Snapshot()
	if slices.Equal(s.Candidates, a.last.Candidates) && s.NAT.equal(a.last.NAT) {
		return
	}
	a.last = s
	a.changed()
}

func (a *Agent) resolveName(ctx context.Context, host string) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := a.resolve(ctx, host)
	a.update(func(now time.Time) { a.g.resolved(now, host, addrs, err) })
}

// update changes the state and wakes Run.
func (a *Agent) update(change func(now time.Time)) {
	a.mu.Lock()
	change(time.Now())
	a.mu.Unlock()
	a.wake.Set()
}

// RelaysChanged reports that [Options].Relays has changed.
func (a *Agent) RelaysChanged() { a.wake.Set() }

// HandleSTUN handles a STUN message that arrived at the gateway. It ignores anything but answers to
// our own requests, and whatever arrived through a relay: that says nothing about the gateway's own
// socket. It does not keep packet.
func (a *Agent) HandleSTUN(packet []byte, from peer.Path) {
	// Only answers, and only while one is expected: a stranger's message is not worth parsing.
	if from.Via != "" || len(packet) < stunwire.HeaderSize || packet[0] != 1 {
		return
	}
	a.mu.Lock()
	ours := a.g.awaits(packet) && a.g.handle(time.Now(), packet, from.Remote)
	a.mu.Unlock()
	if ours {
		a.wake.Set()
	}
}

// settle returns the events to log, and releases waiters once nothing is pending.
func (a *Agent) settle() []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	events := a.g.events
	a.g.events = nil
	if !a.complete && len(a.g.pending()) == 0 {
		a.complete = true
		close(a.gathered)
	}
	return events
}

func (a *Agent) report(events []event) {
	for _, e := range events {
		switch e.kind {
		case serverFailed:
			a.log.Warn("STUN server failed", "server", e.what, "error", e.detail)
		case serverAnswers:
			a.log.Info("STUN server answers again", "server", e.what)
		case mappingChanged:
			a.log.Info("public address changed", "server", e.what, "address", e.detail)
		case nameFailed:
			a.log.Warn("failed to resolve a name", "name", e.what, "error", e.detail)
		case hostsFailed:
			a.log.Warn("failed to list interface addresses", "error", e.detail)
		case hostsChanged:
			a.log.Info("addresses of this host changed", "change", e.detail)
			a.mapper.networkChanged()
			a.network("addresses of this host changed: " + e.detail)
		}
	}
}

// WaitGathered waits until every configured name has been resolved, and every STUN server and the
// router of the port mapping have answered, or failed to. If ctx ends first, the error says what is
// pending; the candidates found so far are available anyway.
func (a *Agent) WaitGathered(ctx context.Context) error {
	select {
	case <-a.gathered:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	pending := a.g.pending()
	a.mu.Unlock()
	return fmt.Errorf("gather candidates: waiting for %s: %w", strings.Join(pending, ", "), context.Cause(ctx))
}

// Candidates returns the addresses at which the gateway may be reached, best source first.
func (a *Agent) Candidates() []Candidate { return a.Snapshot().Candidates }

// NAT returns what is known about the NAT in front of the gateway.
func (a *Agent) NAT() NAT { return a.Snapshot().NAT }

// Snapshot returns all that the agent knows, with the reason for every failure.
func (a *Agent) Snapshot() Snapshot {
	relays := a.relays()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.g.snapshot(relays)
}

// Local returns what a [Pathfinder] needs to know about this side.
func (a *Agent) Local() path.Local {
	relays := a.relays()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.g.snapshot(relays)
	return path.Local{
		Relays: relays, Hosts: slices.Clone(a.g.hosts), Candidates: s.Candidates,
		NAT: path.NAT{Mapping: s.NAT.Mapping, Filtering: s.NAT.Filtering, Strays: s.NAT.Strays},
	}
}
