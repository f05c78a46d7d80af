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

// servicePort is the overlay port that receives the load, TCP and UDP.
const servicePort = 5201

// configure restricts tailscale to the loopback interface. It does not change how packets are
// handled, except for the MTU if requested: tailscale's default is 1,280.
func configure(spec load.Spec) {
	envknob.SetNoLogsNoSupport()                            // no logs are sent
	envknob.Setenv("TS_DISABLE_PORTMAPPER", "true")         // do not ask a router for a port
	envknob.Setenv("TS_DEBUG_OMIT_LOCAL_ADDRS", "true")     // nodes only offer addresses from STUN
	envknob.Setenv("TS_ASSUME_NETWORK_UP_FOR_TEST", "true") // the loopback interface is enough
	netns.SetEnabled(false)                                 // so do not bind sockets to another one
	if spec.MTU > 0 {
		envknob.Setenv("TS_DEBUG_MTU", strconv.Itoa(spec.MTU))
	}
}

// newEnds starts two nodes of a private tailnet. They reach each other directly: over the
// loopback interface, or through the forwarder at spec.Via.
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

// bringUp starts the nodes of a run.
func (t *tailnet) bringUp(ctx context.Context, via netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	if err := t.start(ctx, via); err != nil {
		return err
	}
	return t.awaitDirect(ctx, via)
}

// newProxy is newEnds between a local listener and a service, as used by programs that are not
// linked with tailscale.
func newProxy(ctx context.Context, spec load.Spec) (load.Ends, error) {
	inner, err := newEnds(ctx, spec)
	if err != nil {
		return load.Ends{}, err
	}
	return load.Proxied(ctx, inner)
}
