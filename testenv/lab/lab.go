// Package lab is the demonstration: two gateways, two API servers, a NAT and the
// internet between them, in one process and without privileges.
//
//	edge 192.168.7.2 ──── NAT 198.51.100.7 ──── internet ──── cloud 203.0.113.10
//	                      port-restricted           │
//	                                    stun 192.0.2.53, 192.0.2.54
//
// What is real: both gateways are complete (configuration files, state directories,
// WireGuard, the network stack, tickets, issued certificates, admin sockets), and so are
// the TLS and the client certificates of the API endpoints. What is simulated: the
// internet and the NAT (testenv/simnet), and what stands behind the API endpoints
// (testenv/apiserver; no etcd, no scheduler).
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
)

// Addresses of the lab's internet: documentation ranges (RFC 5737) outside, a private
// one behind the NAT.
var (
	cloudAddr = netip.MustParseAddr("203.0.113.10")
	natAddr   = netip.MustParseAddr("198.51.100.7")
	edgeAddr  = netip.MustParseAddr("192.168.7.2")
	stunAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.54")}
)

const stunPort = 3478

// wanDelay is the one-way delay of each site's access line: a round trip of 20 ms, as
// between two cities of a country.
const wanDelay = 5 * time.Millisecond

// drainTime is how long closing waits for open connections.
const drainTime = 2 * time.Second

// Options of a lab.
type Options struct {
	// Dir holds configurations and state; empty makes a temporary one, removed by Close.
	Dir     string
	Version string
	// Logger gets what all gateways log; nil discards.
	Logger *slog.Logger
	// Adjust changes the options of each gateway before it starts, by the site's name;
	// nil leaves them as they are.
	Adjust func(site string, o *gateway.Options)
}

// Lab is a running demonstration.
type Lab struct {
	Internet *simnet.Internet
	NAT      *simnet.NAT
	Cloud    *Site
	Edge     *Site

	opts   Options
	dir    string
	remove bool
	stun   []*stunserver.Server
	others []*Site
}

// Build starts everything; nothing is peered yet. On an error nothing is left behind.
func Build(ctx context.Context, o Options) (*Lab, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lab{opts: o, dir: o.Dir, Internet: simnet.New(simnet.Options{Seed: 1})}
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
	if l.Cloud, err = l.newSite(ctx, cloud, "default", "kube-system", "shop"); err != nil {
		return err
	}
	l.Edge, err = l.newSite(ctx, edge, "default", "kube-system", "sensors")
	return err
}

// AddSite starts one more cluster on a host of the lab's internet.
func (l *Lab) AddSite(ctx context.Context, o simnet.HostOptions) (*Site, error) {
	host, err := l.Internet.AddHost(o)
	if err != nil {
		return nil, err
	}
	s, err := l.newSite(ctx, host, "default")
	if err == nil {
		l.others = append(l.others, s)
	}
	return s, err
}

// wire makes the internet: hosts, NAT and STUN servers.
func (l *Lab) wire() (cloud, edge *simnet.Host, err error) {
	line := simnet.Both(simnet.Conditions{Delay: wanDelay})
	if cloud, err = l.Internet.AddHost(simnet.HostOptions{Name: "cloud", Addrs: []netip.Addr{cloudAddr}, Link: line}); err != nil {
		return nil, nil, err
	}
	if l.NAT, err = l.Internet.AddNAT(simnet.NATOptions{
		Name: "nat", Addrs: []netip.Addr{natAddr}, Behaviour: simnet.PortRestricted(), Link: line,
	}); err != nil {
		return nil, nil, err
	}
	if edge, err = l.Internet.AddHost(simnet.HostOptions{Name: "edge", Network: l.NAT.Inside(), Addrs: []netip.Addr{edgeAddr}}); err != nil {
		return nil, nil, err
	}
	host, err := l.Internet.AddHost(simnet.HostOptions{Name: "stun", Addrs: stunAddrs, Link: line})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range stunAddrs {
		conn, err := host.ListenAddrPort(netip.AddrPortFrom(a, stunPort))
		if err != nil {
			return nil, nil, err
		}
		l.stun = append(l.stun, stunserver.Serve(conn))
	}
	return cloud, edge, nil
}

// Close ends everything and removes the temporary directory.
func (l *Lab) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var errs []error
	for _, s := range append(l.others, l.Edge, l.Cloud) {
		if s != nil {
			errs = append(errs, s.close(ctx))
		}
	}
	for _, s := range l.stun {
		errs = append(errs, s.Close())
	}
	l.Internet.Close()
	if l.remove {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}
