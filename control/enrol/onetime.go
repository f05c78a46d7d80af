package enrol

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/control/plane"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// farewell is how long the end of a connection in a one-time tunnel is waited for at most:
// a round trip, or two if something is lost.
const farewell = time.Second

// oneTime is the short-lived tunnel in which a ticket is redeemed: a device with the
// ticket's key on a port of its own, and allocations of its own at the relays. The
// inviter is dialled on every way at once; whatever those packets do to a NAT concerns
// this port and not the gateway's.
type oneTime struct {
	log     *slog.Logger
	plane   *plane.Plane
	inviter peer.PublicKey
	to      []ticket.Candidate
	relays  atomic.Pointer[paths.Relays]
	dialing sync.Mutex // so that the dial that knows of most allocations is the last
}

func (e *Registrar) openOneTime(keys ticket.Keys, inviter peer.PublicKey, to []ticket.Candidate) (*oneTime, error) {
	p := &oneTime{log: e.log, inviter: inviter, to: to}
	var err error
	p.plane, err = e.o.OpenPlane(keys.OneTime)
	if err != nil {
		return nil, err
	}
	if err := p.plane.Engine.SetPeers([]peer.Config{{
		Name: "inviter", PublicKey: inviter, PresharedKey: keys.Tunnel, Managed: true,
	}}); err != nil {
		p.close()
		return nil, err
	}
	r := e.o.Paths.Allocate(p.plane.Bind, p.dial)
	var ips []netip.Addr
	for _, c := range to {
		ips = append(ips, c.Addr.Addr())
	}
	r.Permit(ips)
	p.relays.Store(r)
	p.dial()
	return p, nil
}

// dial has handshakes go to all of the inviter's addresses, from our own socket and by
// way of those allocations that there are by now.
func (p *oneTime) dial() {
	p.dialing.Lock()
	defer p.dialing.Unlock()
	var all []peer.Path
	for _, c := range p.to {
		all = append(all, peer.Direct(c.Addr))
	}
	var local []path.Relay
	if r := p.relays.Load(); r != nil {
		local = r.Local()
	}
	for _, l := range local {
		for _, c := range p.to {
			// A relay reaches what is public; the inviter's own network it does not. Nor does
			// it reach through the inviter's NAT, which a packet that comes unasked may
			// poison.
			if c.Source == discovery.SourceRelay || c.Source != discovery.SourceSTUN && !c.Addr.Addr().IsPrivate() {
				all = append(all, peer.Path{Via: l.Via, Remote: c.Addr})
			}
		}
	}
	if err := p.plane.Engine.SetPaths(p.inviter, tunnel.Paths{Initiate: all}); err != nil {
		p.log.Debug("failed to dial the one-time tunnel", "error", err)
	}
}

// dialContext reaches the inviter through the tunnel. The connections that it gives are over
// for the inviter too once they are closed: the tunnel ends next, and what the inviter had
// still to send would go to a closed port for a minute.
func (p *oneTime) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.plane.Stack.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*netstack.Conn); ok {
		return &finishingConn{Conn: tcp, ctx: ctx}, nil
	}
	return conn, nil
}

// finishingConn is a connection that ends in order when it is closed.
type finishingConn struct {
	*netstack.Conn
	ctx  context.Context // of what it is used for; after that nothing is waited for
	once sync.Once
}

// Close takes as long as farewell. It never fails: that the end was not acknowledged concerns
// nobody.
func (f *finishingConn) Close() error {
	f.once.Do(func() {
		ctx, cancel := context.WithTimeout(f.ctx, farewell)
		defer cancel()
		_ = f.Finish(ctx)
	})
	return nil
}

// acknowledge tells the inviter that its answer has arrived, and with it the end of the
// connection. Without it the inviter goes on to call us for 90 s: some packets, and no harm.
func (p *oneTime) acknowledge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if err := p.plane.Engine.Acknowledge(ctx, p.inviter); err != nil {
		p.log.Debug("failed to acknowledge the inviter's answer", "error", err)
	}
}

func (p *oneTime) close() {
	if r := p.relays.Load(); r != nil {
		r.Close()
	}
	if err := p.plane.Close(); err != nil {
		p.log.Debug("failed to close the one-time tunnel", "error", err)
	}
}
