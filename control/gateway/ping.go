package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/roster"
)

// Layers of `postern ping`, from the socket up.
const (
	layerProbe     = "probe"
	layerWG        = "wg"
	layerOverlay   = "overlay"
	layerAuth      = api.ServiceAuth
	layerAPIServer = api.ServiceAPIServer
)

// pingWait bounds one echo.
const pingWait = 2 * time.Second

// pingPayload makes the packet as long as ping(8)'s.
const pingPayload = 56

// Ping measures one round trip at a layer: a probe between the sockets, a WireGuard handshake, an
// echo inside the tunnel, or a connection to a service.
func (g *Gateway) Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	m, err := g.peers.Member(name)
	if err != nil {
		return api.PingReply{}, err
	}
	measure, err := g.measure(r.Layer)
	if err != nil {
		return api.PingReply{}, err
	}
	switch {
	case m.Stock && r.Layer != layerWG:
		return api.PingReply{}, admin.Conflict(fmt.Sprintf("peer %s is a plain WireGuard peer without an overlay address", name),
			"use --layer wg")
	case m.Pending:
		return api.PingReply{}, admin.Conflict(fmt.Sprintf("peer %s waits for approval", name), "postern peer approve "+name)
	}
	reply := api.PingReply{Seq: r.Seq, Layer: r.Layer}
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	rtt, err := measure(ctx, m)
	reply.RTTSeconds = rtt.Seconds()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reply.Error = fmt.Sprintf("no answer in %s", pingWait)
	case err != nil:
		reply.Error = err.Error()
	}
	w := g.paths.Way(m, g.plane.Engine.Snapshot().Peers[m.Key])
	state, why := paths.PeerState(m, w, time.Now())
	p := g.paths.Path(m, w, state, why, g.echoRTT)
	reply.Path, reply.Remote = p.Kind, p.Remote
	return reply, nil
}

// measure returns the function that measures one round trip at a layer.
func (g *Gateway) measure(layer string) (func(context.Context, *roster.Member) (time.Duration, error), error) {
	connect := func(port uint16) func(context.Context, *roster.Member) (time.Duration, error) {
		return func(ctx context.Context, m *roster.Member) (time.Duration, error) {
			start := time.Now()
			c, err := g.plane.Stack.DialTCP(ctx, netip.AddrPortFrom(m.Address(), port))
			if err != nil {
				return 0, err
			}
			rtt := time.Since(start)
			c.Abort()
			return rtt, nil
		}
	}
	switch layer {
	case layerProbe:
		return func(ctx context.Context, m *roster.Member) (time.Duration, error) {
			return g.paths.Probe(ctx, m.Key)
		}, nil
	case layerWG:
		return g.handshakeRTT, nil
	case layerOverlay:
		return func(ctx context.Context, m *roster.Member) (time.Duration, error) {
			return g.plane.Stack.Ping(ctx, m.Address(), pingPayload)
		}, nil
	case layerAuth:
		return connect(api.PortAuth), nil
	case layerAPIServer:
		return connect(api.PortAPIServer), nil
	}
	return nil, admin.Usage(fmt.Sprintf("ping: there is no layer %q", layer), "use probe, wg, overlay, auth or apiServer")
}

// handshakeRTT performs a new WireGuard handshake and returns its duration.
func (g *Gateway) handshakeRTT(ctx context.Context, m *roster.Member) (time.Duration, error) {
	return g.plane.Engine.Handshake(ctx, m.Key)
}

// pingKnown sends an echo for the checks, unless the peer has no session and no known address.
// WireGuard would queue such an echo in a buffer of 64 KiB until there is a session, and a gateway
// may have a thousand peers that have never connected.
func (g *Gateway) pingKnown(ctx context.Context, to netip.Addr, payload int) (time.Duration, error) {
	m := g.peers.Load().Find(to)
	if m != nil {
		t, _ := g.plane.Engine.Peer(m.Key)
		if t.LastHandshake.IsZero() && !g.paths.Way(m, t).Tried() {
			<-ctx.Done()
			return 0, ctx.Err()
		}
	}
	return g.plane.Stack.Ping(ctx, to, payload)
}
