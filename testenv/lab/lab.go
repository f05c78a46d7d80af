// Package lab is the demonstration: two gateways, two API servers and the internet between them,
// in one process and without privileges. A [Scenario] describes the internet and what is shown.
// The default is:
//
//	edge 192.168.7.2 ──── NAT 198.51.100.7 ──── internet ──── cloud 203.0.113.10
//	                      port-restricted           │
//	                                    stun 192.0.2.53, 192.0.2.54
//
// Both gateways are real and complete (configuration files, state directories, WireGuard, the
// network stack, tickets, issued certificates, admin sockets). So are the TLS and client
// certificates of the API endpoints, and the TURN server that is the relay of some scenarios. The
// internet, NATs and firewalls are simulated (testenv/simnet), and so are the backends of the API
// endpoints (testenv/apiserver; no etcd, no scheduler).
package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Addresses of the lab's internet: documentation ranges (RFC 5737) outside, private ones behind
// NATs.
var (
	cloudAddr    = netip.MustParseAddr("203.0.113.10") // if it has no NAT
	cloudNATAddr = netip.MustParseAddr("198.51.100.10")
	cloudInside  = netip.MustParseAddr("192.168.10.2")
	natAddr      = netip.MustParseAddr("198.51.100.7")
	edgeAddr     = netip.MustParseAddr("192.168.7.2")
	edgePublic   = netip.MustParseAddr("203.0.113.7") // if it has no NAT
	copyAddr     = netip.MustParseAddr("203.0.113.8")
	movedAddr    = netip.MustParseAddr("203.0.113.20") // cloud's new address when it moves
	elsewhere    = netip.MustParseAddr("203.0.113.99") // an unused address
	besideAddr   = netip.MustParseAddr("192.168.7.3")  // cloud's if it is on edge's network
	relayAddr    = netip.MustParseAddr("192.0.2.60")
	stunAddrs    = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.54")}
	testerAddrs  = [2]netip.Addr{netip.MustParseAddr("192.0.2.55"), netip.MustParseAddr("192.0.2.56")}
)

const stunPort = 3478

// wanDelay is the one-way delay of each site's access line. A round trip takes 20 ms, as between
// two cities of a country.
const wanDelay = 5 * time.Millisecond

// drainTime is how long Close waits for open connections.
const drainTime = 2 * time.Second

// Options configure a lab.
type Options struct {
	// Dir is for configurations and state; empty means a temporary one, which Close removes.
	Dir     string
	Version string
	// Scenario is what to build and play; the zero value means the default.
	Scenario Scenario
	// Logger receives the logs of all gateways; nil discards them.
	Logger *slog.Logger
	// Adjust changes the options of each gateway before it starts, by the site's name; it may be
	// nil.
	Adjust func(site string, o *gateway.Options)
	// StepLimit bounds each step of the scenario; 0 means two minutes.
	StepLimit time.Duration
}

// Lab is a running demonstration.
type Lab struct {
	Internet *simnet.Internet
	NAT      *simnet.NAT // in front of edge; nil if it has none
	Cloud    *Site
	Edge     *Site

	opts      Options
	scenario  Scenario
	dir       string
	remove    bool
	stun      []*stunserver.Server
	tester    *stunserver.BehaviourServer
	relay     *turnserver.Server
	relayHost *simnet.Host // nil without a relay
	cloudNAT  *simnet.NAT  // nil if it has none
	others    []*Site
	load      load
	names     names
	ticket    string // cloud's latest ticket
	fault     faultState
}

// load is the transfer of a scenario and its server.
type load struct {
	echo     *echo
	transfer *transfer
}

// Build starts everything, without peering the sites. On an error it cleans up.
func Build(ctx context.Context, o Options) (*Lab, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Scenario.Name == "" {
		o.Scenario, _ = FindScenario(DefaultScenario)
	}
	l := &Lab{opts: o, scenario: o.Scenario, dir: o.Dir, Internet: simnet.New(simnet.Options{Seed: 1})}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context) error {
	if l.dir == "" {
		dir, err := os.MkdirTemp("", "postern-lab-")
		if err != nil {
			return fmt.Errorf("make a directory for the lab: %w", err)
		}
		l.dir, l.remove = dir, true
	}
	cloud, edge, err := l.wire()
	if err != nil {
		return err
	}
	if l.scenario.transfer {
		if l.load.echo, err = startEcho(ctx); err != nil {
			return err
		}
	}
	var keys [2]peer.PrivateKey
	if f := l.scenario.fault; f != nil && !f.byTicket { // the peers are in files, with their keys
		for i := range keys {
			if keys[i], err = peer.NewPrivateKey(); err != nil {
				return err
			}
		}
	}
	if l.Cloud, err = l.newSite(ctx, cloud, keys[0], "default", "kube-system", "shop"); err != nil {
		return err
	}
	if l.Edge, err = l.newSite(ctx, edge, keys[1], "default", "kube-system", "sensors"); err != nil {
		return err
	}
	if f := l.scenario.fault; f != nil && !f.byTicket {
		return l.introduce()
	}
	return nil
}

// AddSite starts another cluster on a host of the lab's internet.
func (l *Lab) AddSite(ctx context.Context, o simnet.HostOptions) (*Site, error) {
	host, err := l.Internet.AddHost(o)
	if err != nil {
		return nil, err
	}
	s, err := l.newSite(ctx, host, peer.PrivateKey{}, "default")
	if err == nil {
		l.others = append(l.others, s)
	}
	return s, err
}

// Close stops everything and removes the temporary directory.
func (l *Lab) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var errs []error
	if l.load.transfer != nil {
		errs = append(errs, l.load.transfer.Close())
	}
	for _, s := range append(l.others, l.Edge, l.Cloud) {
		if s != nil {
			errs = append(errs, s.close(ctx))
		}
	}
	for _, s := range l.stun {
		errs = append(errs, s.Close())
	}
	for _, s := range l.fault.servers {
		errs = append(errs, s.Close())
	}
	errs = append(errs, l.closeServers())
	l.Internet.Close()
	if l.remove {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// closeServers stops the servers that only some scenarios have.
func (l *Lab) closeServers() error {
	var errs []error
	if l.load.echo != nil {
		errs = append(errs, l.load.echo.Close())
	}
	if l.tester != nil {
		errs = append(errs, l.tester.Close())
	}
	if l.relay != nil {
		errs = append(errs, l.relay.Close())
	}
	return errors.Join(errs...)
}
