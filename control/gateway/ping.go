package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// Layers of `postern ping`.
const (
	layerOverlay   = "overlay"
	layerAuth      = api.ServiceAuth
	layerAPIServer = api.ServiceAPIServer
)

// pingWait bounds one echo.
const pingWait = 2 * time.Second

// pingPayload makes the packet as long as that of ping(8).
const pingPayload = 56

// Ping sends one echo inside the tunnel, or connects to a service there.
func (g *Gateway) Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error) {
	m, err := g.member(name)
	if err != nil {
		return api.PingReply{}, err
	}
	echo, err := g.echo(r.Layer)
	if err != nil {
		return api.PingReply{}, err
	}
	if !m.address().IsValid() {
		return api.PingReply{}, admin.Conflict(fmt.Sprintf("peer %s is a plain WireGuard peer without an overlay address", name),
			"its handshake is in `postern status "+name+"`")
	}
	reply := api.PingReply{Seq: r.Seq, Layer: r.Layer}
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	rtt, err := echo(ctx, m.address())
	reply.RTTSeconds = rtt.Seconds()
	if err != nil {
		reply.Error = err.Error()
	}
	reply.Path = api.PathNone
	if t := g.plane.engine.Snapshot().Peers[m.key]; t.Proven {
		reply.Path, reply.Remote = api.PathDirect, t.Endpoint.String()
	}
	return reply, nil
}

// echo is how one round trip is measured on a layer.
func (g *Gateway) echo(layer string) (func(context.Context, netip.Addr) (time.Duration, error), error) {
	connect := func(port uint16) func(context.Context, netip.Addr) (time.Duration, error) {
		return func(ctx context.Context, to netip.Addr) (time.Duration, error) {
			start := time.Now()
			c, err := g.plane.stack.DialTCP(ctx, netip.AddrPortFrom(to, port))
			if err != nil {
				return 0, err
			}
			rtt := time.Since(start)
			c.Abort()
			return rtt, nil
		}
	}
	switch layer {
	case layerOverlay:
		return func(ctx context.Context, to netip.Addr) (time.Duration, error) {
			return g.plane.stack.Ping(ctx, to, pingPayload)
		}, nil
	case layerAuth:
		return connect(api.PortAuth), nil
	case layerAPIServer:
		return connect(api.PortAPIServer), nil
	}
	return nil, admin.Usage(fmt.Sprintf("ping: there is no layer %q", layer), "use overlay, auth or apiServer")
}

// facts are what a check of a peer starts from.
func (g *Gateway) facts(name string) (check.Facts, bool) {
	m := g.roster.Load().byName[name]
	if m == nil {
		return check.Facts{}, false
	}
	t := g.plane.engine.Snapshot().Peers[m.key]
	f := check.Facts{
		Name: m.name, Address: m.address(), Stock: m.stock, Pending: m.pending,
		Since: g.running.Load().since[m.key], LastHandshake: t.LastHandshake,
		Identity: g.keepers.certificate(m.name),
	}
	for _, e := range m.endpoints(g.provenEndpoints(m.key)) {
		f.Endpoints = append(f.Endpoints, e.String())
	}
	if h, ok := g.hellos.get(m.key); ok {
		a := apiServerOf(h.Hello)
		f.Offers, f.ServerName, f.CA = h.Offers, a.ServerName, []byte(a.CAData)
		if f.Offers == nil {
			f.Offers = []string{}
		}
	}
	return f, true
}
