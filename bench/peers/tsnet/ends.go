package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"tailscale.com/envknob"
	"tailscale.com/net/netns"

	"github.com/postern-dev/postern/bench/peers/tsnet/load"
)

// servicePort is the overlay port that the load goes to, TCP and UDP.
const servicePort = 5201

// configure keeps tailscale to itself and to the loopback interface. It changes nothing
// of how packets are handled, but for the MTU where one is asked for: the default is
// tailscale's own, 1,280.
func configure(spec load.Spec) {
	envknob.SetNoLogsNoSupport()                            // Logs go nowhere.
	envknob.Setenv("TS_DISABLE_PORTMAPPER", "true")         // No router is asked for a port.
	envknob.Setenv("TS_DEBUG_OMIT_LOCAL_ADDRS", "true")     // Nodes offer what STUN tells them, and that alone.
	envknob.Setenv("TS_ASSUME_NETWORK_UP_FOR_TEST", "true") // The loopback interface will do.
	netns.SetEnabled(false)                                 // So sockets must not be bound to another one.
	if spec.MTU > 0 {
		envknob.Setenv("TS_DEBUG_MTU", strconv.Itoa(spec.MTU))
	}
}

// newEnds brings up two nodes of a tailnet of their own, which reach each other directly:
// over the loopback interface, or by the forwarder at spec.Via.
func newEnds(ctx context.Context, spec load.Spec) (load.Ends, error) {
	var via netip.AddrPort
	if spec.Via != "" {
		var err error
		if via, err = netip.ParseAddrPort(spec.Via); err != nil {
			return load.Ends{}, fmt.Errorf("forwarder's address: %w", err)
		}
	}
	configure(spec)
	t := new(tailnet)
	if err := t.bringUp(ctx, via); err != nil {
		return load.Ends{}, err
	}
	dialling, serving := t.nodes[0], t.nodes[1]
	at := netip.AddrPortFrom(serving.addr, servicePort).String()
	listener, err := serving.Listen("tcp", at)
	if err != nil {
		return load.Ends{}, fmt.Errorf("listen on %s: %w", at, err)
	}
	return load.Ends{
		Listener:     listener,
		Dial:         func(ctx context.Context) (net.Conn, error) { return dialling.Dial(ctx, "tcp", at) },
		ListenPacket: func() (net.PacketConn, error) { return serving.ListenPacket("udp", at) },
		DialPacket:   func(ctx context.Context) (net.Conn, error) { return dialling.Dial(ctx, "udp", at) },
		Close:        t.checkDirect,
		Began:        t.began,
	}, nil
}

// bringUp brings up the nodes of a run.
func (t *tailnet) bringUp(ctx context.Context, via netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	if err := t.start(ctx, via); err != nil {
		return err
	}
	return t.awaitDirect(ctx, via)
}

// newProxy is newEnds between a local listener and a service, as programs have it that are not
// linked with tailscale.
func newProxy(ctx context.Context, spec load.Spec) (load.Ends, error) {
	inner, err := newEnds(ctx, spec)
	if err != nil {
		return load.Ends{}, err
	}
	return load.Proxied(ctx, inner)
}
