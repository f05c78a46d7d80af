package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// servicePort is the overlay TCP port that the load goes to.
const servicePort = 5201

// runPostern loads two gateways' data paths, with the options that gateways use.
func runPostern(ctx context.Context, spec load.Spec) (load.Result, error) {
	ends, err := newPostern()
	if err != nil {
		return load.Result{}, err
	}
	return load.Streams(ctx, spec, ends)
}

// end is one gateway's data path.
type end struct {
	key    peer.PrivateKey
	stack  *netstack.Stack
	bind   *underlay.Bind
	engine *tunnel.Engine
}

// newEnd brings one up on a free UDP port, without peers.
func newEnd() (*end, error) {
	key, err := peer.NewPrivateKey()
	if err != nil {
		return nil, err
	}
	e := &end{key: key, bind: underlay.New(underlay.Options{})}
	if e.stack, err = netstack.New(netstack.Options{Addresses: []netip.Addr{e.addr()}}); err != nil {
		return nil, err
	}
	e.engine, err = tunnel.New(tunnel.Options{PrivateKey: key, Device: e.stack.Device(), Underlay: e.bind})
	if err != nil {
		return nil, errors.Join(err, e.stack.Close())
	}
	return e, nil
}

// addr is the overlay address.
func (e *end) addr() netip.Addr { return peer.OverlayAddr(e.key.Public()) }

// connect makes other the only peer. With dial it is called, else it must call.
func (e *end) connect(name string, other *end, dial bool) error {
	c := peer.Config{Name: name, PublicKey: other.key.Public()}
	if dial {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		c.Endpoints = []netip.AddrPort{netip.AddrPortFrom(loopback, other.bind.Port())}
	}
	if err := e.engine.SetPeers([]peer.Config{c}); err != nil {
		return fmt.Errorf("set peer %s: %w", name, err)
	}
	return nil
}

func (e *end) close() error { return errors.Join(e.engine.Close(), e.stack.Close()) }

// newPostern connects two ends over the loopback interface: a dials, b serves.
func newPostern() (load.Ends, error) {
	a, err := newEnd()
	if err != nil {
		return load.Ends{}, fmt.Errorf("dialling end: %w", err)
	}
	b, err := newEnd()
	if err != nil {
		return load.Ends{}, errors.Join(fmt.Errorf("serving end: %w", err), a.close())
	}
	closeBoth := func() error { return errors.Join(a.close(), b.close()) }
	if err := errors.Join(b.connect("a", a, false), a.connect("b", b, true)); err != nil {
		return load.Ends{}, errors.Join(err, closeBoth())
	}
	service := netip.AddrPortFrom(b.addr(), servicePort)
	listener, err := b.stack.Listen(service)
	if err != nil {
		return load.Ends{}, errors.Join(err, closeBoth())
	}
	return load.Ends{
		Listener: listener,
		Dial:     func(ctx context.Context) (net.Conn, error) { return a.stack.DialTCP(ctx, service) },
		Close:    closeBoth,
	}, nil
}
