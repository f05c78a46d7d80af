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

// The subjects that are two gateways in the run's process, by what is used through them: as
// clusters have them, but without Kubernetes, which tells the one what is exported and has
// the other say where it listens.
const (
	GatewaysNamed    = "gateways-named"
	GatewaysImported = "gateways-imported"
	GatewaysControl  = "gateways-control"
	GatewaysBeside   = "gateways-beside"
)

const (
	gatewaysName = "bench" // Of the named service, and of the namespace and name of the exported one.
	// gatewaysMTU is that of the subjects that they are compared with.
	gatewaysMTU = 1420
	// gatewaysTimeout bounds the time until all is there, on a busy machine.
	gatewaysTimeout = 60 * time.Second
	// gatewaysLook is the pause between two looks whether something is there.
	gatewaysLook = 10 * time.Millisecond
	// statusInterval is how often the peers' states are looked at while the load runs.
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

// gateways are two, and what is behind the one.
type gateways struct {
	dir               string
	via               string // A forwarder's address, which is each one's endpoint of the other; empty without one.
	service, api      net.Listener
	serving, dialling *gateway.Gateway
	watch             sync.WaitGroup
	cancel            context.CancelFunc
	lost              error // Why a peer was not connected while the load ran.
}

// newGateways brings them up for the subject that the spec names.
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

// open starts both gateways and what is behind them.
func (g *gateways) open(ctx context.Context, spec load.Spec) (err error) {
	_ = tunnel.UseSmallPages() // as gateways do, and like them without it if that is forbidden
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
	if g.via != "" { // It knows the ends by their first packets: both speak at once.
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

// backendAddress is one of this host's that is not loopback, which no backend may have.
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

// gateway starts one, which knows its peer and looks for nobody.
func (g *gateways) gateway(ctx context.Context, name string, key peer.PrivateKey, offers config.Services, other config.Peer, spec load.Spec) (*gateway.Gateway, error) {
	c := &config.Resolved{
		Name: name, StateDir: filepath.Join(g.dir, name), PrivateKey: key, MTU: spec.MTU,
		ConnectionRate: 100_000, Services: offers, Peers: []config.Peer{other},
	}
	addrs := []netip.Addr{loopback}
	if g.via != "" { // They would find each other.
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

// until waits until there is nothing that is missing.
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

// connected says which gateway is not connected to the other.
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

// local is the listener for a service that is offered by name.
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

// imported exports the service at the one gateway, and is where the other listens for it.
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

// watchStatus looks at the peers' states until the ends are closed.
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

// close ends everything, also after half a start, and reports whether a peer was not connected
// meanwhile.
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
			_ = l.Close() // Again, when the load has closed it.
		}
	}
	return errors.Join(append(errs, os.RemoveAll(g.dir))...)
}
