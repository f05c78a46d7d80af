package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// The subjects that run two gateways in the run's process, by the service that is used. The
// gateways are those of clusters, but without Kubernetes: the subject itself tells one what is
// exported, and asks the other for the address at which it listens.
const (
	GatewaysNamed    = "gateways-named"
	GatewaysImported = "gateways-imported"
	GatewaysControl  = "gateways-control"
	GatewaysBeside   = "gateways-beside"
)

const (
	gatewaysName = "bench" // name of the named service, and namespace and name of the exported one
	// gatewaysMTU is the MTU of the subjects that these are compared with.
	gatewaysMTU = 1420
	// gatewaysTimeout bounds the start, on a busy machine.
	gatewaysTimeout = 60 * time.Second
	// gatewaysLook is the polling interval during the start.
	gatewaysLook = 10 * time.Millisecond
	// statusInterval is how often the peers' states are checked while the load runs.
	statusInterval = 100 * time.Millisecond
)

func gatewaySubjects(p Programs) []Subject {
	own := process(p.Self)
	return []Subject{
		{Name: GatewaysNamed, About: "two gateways in one process: local listener, tunnel, named service", Run: own},
		{Name: GatewaysImported, About: "the same, with a service that one exports and the other imports", Run: own},
		{Name: GatewaysControl, About: "the same, with an API server, beside workloads that use an imported service", Run: own},
		{Name: GatewaysBeside, About: "the same workloads, but the API server is reached without the gateways: what the busy machine alone costs", Run: own},
	}
}

func ownGateways() load.Subjects {
	return load.Subjects{GatewaysNamed: newGateways, GatewaysImported: newGateways, GatewaysControl: newGateways, GatewaysBeside: newGateways}
}

// gateways are two gateways and the service behind one of them.
type gateways struct {
	dir               string
	via               string // the forwarder that each uses as the other's endpoint; empty for none
	service, api      net.Listener
	serving, dialling *gateway.Gateway
	watch             sync.WaitGroup
	cancel            context.CancelFunc
	lost              error // why a peer was disconnected during the load
}

// newGateways starts the gateways for the spec's subject.
func newGateways(ctx context.Context, spec load.Spec) (load.Ends, error) {
	g := &gateways{via: spec.Via, cancel: func() {}}
	ends, err := g.start(ctx, spec)
	if err != nil {
		return load.Ends{}, errors.Join(err, g.close())
	}
	return ends, nil
}

func (g *gateways) start(ctx context.Context, spec load.Spec) (load.Ends, error) {
	ctx, cancel := context.WithTimeout(ctx, gatewaysTimeout)
	defer cancel()
	if err := g.open(ctx, spec); err != nil {
		return load.Ends{}, err
	}
	if err := until(ctx, func() error { return g.connected(ctx) }); err != nil {
		return load.Ends{}, err
	}
	if spec.Subject == GatewaysNamed {
		at, err := g.local(ctx, gatewaysName)
		return g.ends(g.service, at), err
	}
	at, err := g.imported(ctx)
	if err != nil || spec.Subject == GatewaysImported {
		return g.ends(g.service, at), err
	}
	workloads := g.ends(g.service, at)
	workloads.Close = nil
	at = g.api.Addr().String()
	if spec.Subject == GatewaysControl {
		if at, err = g.local(ctx, api.ServiceAPIServer); err != nil {
			return load.Ends{}, err
		}
	}
	ends := g.ends(g.api, at)
	ends.Workloads = &workloads
	g.watchStatus()
	return ends, nil
}

func (g *gateways) ends(l net.Listener, at string) load.Ends {
	return load.Ends{
		Listener: load.Greeted{Listener: l},
		Dial:     func(ctx context.Context) (net.Conn, error) { return load.DialGreeting(ctx, at) },
		Close:    g.close,
	}
}

// open starts both gateways and the service.
func (g *gateways) open(ctx context.Context, spec load.Spec) (err error) {
	_ = tunnel.UseSmallPages() // as gateways do, which also run without it
	if g.dir, err = os.MkdirTemp("", "pb"); err != nil {
		return fmt.Errorf("make folder for two gateways: %w", err)
	}
	host, err := backendAddress()
	if err != nil {
		return err
	}
	for _, l := range []*net.Listener{&g.service, &g.api} {
		if *l, err = new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(host, 0).String()); err != nil {
			return fmt.Errorf("listen as the service: %w", err)
		}
	}
	var serving, dialling config.Peer
	var keys [2]peer.PrivateKey
	for i, p := range []*config.Peer{&serving, &dialling} {
		if keys[i], err = peer.NewPrivateKey(); err != nil {
			return err
		}
		p.PublicKey, p.Mode = keys[i].Public(), api.ModeInBand
	}
	serving.Name, dialling.Name = "serving", "dialling"
	dialling.Allow = []string{api.ServiceAPIServer, gatewaysName}
	dialling.Export, serving.Import = mcs.Patterns{gatewaysName}, mcs.Patterns{gatewaysName}
	anywhere := api.ListenAddress{Addr: loopback, Ports: api.PortsOf(0)}
	serving.Local = map[string]api.ListenAddress{api.ServiceAPIServer: anywhere, gatewaysName: anywhere}
	offers := config.Services{
		APIServer: &config.APIServer{Address: g.api.Addr().String()},
		Named:     []config.NamedService{{Name: gatewaysName, Ports: api.PortsOf(servicePort), Address: g.service.Addr().String()}},
	}
	if g.via != "" { // a forwarder learns the ends from their first packets, so both must speak
		at, err := netip.ParseAddrPort(g.via)
		if err != nil {
			return fmt.Errorf("forwarder's address: %w", err)
		}
		serving.Endpoints, dialling.Endpoints = []netip.AddrPort{at}, []netip.AddrPort{at}
	}
	if g.serving, err = g.gateway(ctx, "serving", keys[0], offers, dialling, spec); err != nil {
		return err
	}
	if g.via == "" {
		serving.Endpoints = []netip.AddrPort{netip.AddrPortFrom(loopback, g.serving.Port())}
	}
	g.dialling, err = g.gateway(ctx, "dialling", keys[1], config.Services{}, serving, spec)
	return err
}

// backendAddress returns an address of this host other than loopback, which backends may not
// have.
func backendAddress() (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find an address for the service: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("this machine has no address but loopback, which no backend of an exported service may have")
}

// gateway starts a gateway that knows its peer and discovers no others.
func (g *gateways) gateway(ctx context.Context, name string, key peer.PrivateKey, offers config.Services, other config.Peer, spec load.Spec) (*gateway.Gateway, error) {
	c := &config.Resolved{
		Name: name, StateDir: filepath.Join(g.dir, name), PrivateKey: key, MTU: spec.MTU,
		ConnectionRate: 100_000, Services: offers, Peers: []config.Peer{other},
	}
	addrs := []netip.Addr{loopback}
	if g.via != "" { // otherwise they would find each other directly
		addrs = nil
	}
	if c.MTU == 0 {
		c.MTU = gatewaysMTU
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return gateway.Start(ctx, gateway.Options{
		Config: c, Clusterset: &gateway.Clusterset{Namespace: "postern"},
		HostAddrs:     func() ([]netip.Addr, error) { return addrs, nil },
		LANInterfaces: func() ([]lan.Interface, error) { return nil, nil },
	})
}

// until waits until missing returns nil.
func until(ctx context.Context, missing func() error) error {
	tick := time.NewTicker(gatewaysLook)
	defer tick.Stop()
	for {
		err := missing()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// connected returns an error that names the gateway that is not connected to the other.
func (g *gateways) connected(ctx context.Context) error {
	for _, one := range []*gateway.Gateway{g.serving, g.dialling} {
		s, err := one.Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			if p.State != api.StateConnected {
				return fmt.Errorf("peer %s is %s: %s", p.Name, p.State, p.Reason)
			}
			if g.via != "" && p.Path.Remote != g.via {
				return fmt.Errorf("the path to %s is by %s, not by the forwarder", p.Name, p.Path.Remote)
			}
		}
	}
	return nil
}

// local returns the local listener of a named service.
func (g *gateways) local(ctx context.Context, service string) (at string, err error) {
	err = until(ctx, func() error {
		s, err := g.dialling.Status(ctx)
		if err != nil {
			return err
		}
		p := s.Peers[0]
		for _, l := range p.Local {
			if l.Service == service && l.Address != "" && slices.Contains(p.Offers, service) {
				at = l.Address
				return nil
			}
		}
		return fmt.Errorf("%s is not offered, or has no local listener", service)
	})
	return at, err
}

// imported exports the service from one gateway and returns the address at which the other
// listens for it.
func (g *gateways) imported(ctx context.Context) (at string, err error) {
	backend := g.service.Addr().(*net.TCPAddr).AddrPort()
	g.serving.Services().SetExports([]mcs.Export{{
		Name: mcs.Name{Namespace: gatewaysName, Name: gatewaysName}, UID: gatewaysName, Created: time.Now(),
		Spec:     mcs.Spec{Type: mcs.ClusterSetIP, Ports: []mcs.Port{{Protocol: api.TCP, Port: servicePort}}},
		Backends: []mcs.Backend{{Addr: backend.Addr().Unmap(), Ready: true, Ports: map[string]uint16{"": backend.Port()}}},
	}})
	g.dialling.Services().SetExports(nil)
	g.dialling.Services().SetNamespaces([]string{gatewaysName})
	for {
		state, changed := g.dialling.Services().State()
		for _, i := range state.Imports {
			for _, c := range i.Clusters {
				return c.Endpoints[0].Ports[0].At.String(), nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("the service is not imported: %w", ctx.Err())
		}
	}
}

// watchStatus checks the peers' states until the ends are closed.
func (g *gateways) watchStatus() {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.watch.Go(func() {
		tick := time.NewTicker(statusInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := g.connected(context.WithoutCancel(ctx)); err != nil && g.lost == nil {
				g.lost = err
			}
		}
	})
}

// close stops everything, also after a failed start. It returns an error if a peer was
// disconnected during the load.
func (g *gateways) close() error {
	g.cancel()
	g.watch.Wait()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	errs := []error{g.lost}
	for _, one := range []*gateway.Gateway{g.dialling, g.serving} {
		if one != nil {
			errs = append(errs, one.Close(now))
		}
	}
	for _, l := range []net.Listener{g.service, g.api} {
		if l != nil {
			_ = l.Close() // the load may have closed it already
		}
	}
	return errors.Join(append(errs, os.RemoveAll(g.dir))...)
}
