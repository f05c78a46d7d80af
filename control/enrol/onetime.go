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

// farewell bounds the wait for the end of a connection in a one-time tunnel: a round trip, or two
// if something is lost.
const farewell = time.Second

// oneTime is the short-lived tunnel in which a ticket is redeemed: a device with the ticket's key
// on its own port, with its own relay allocations. The inviter is dialled on every path at once;
// whatever those packets do to a NAT affects this port and not the gateway's.
type oneTime struct {
	log     *slog.Logger
	plane   *plane.Plane
	inviter peer.PublicKey
	to      []ticket.Candidate
	relays  atomic.Pointer[paths.Relays]
	dialing sync.Mutex // so that the dial that knows the most allocations is the last
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

// dial sends handshakes to all of the inviter's addresses, from our own socket and from the
// allocations that exist so far.
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
			// A relay reaches public addresses, but not the inviter's own network. Nor does it get
			// through the inviter's NAT, which an unsolicited packet may poison.
			if c.Source == discovery.SourceRelay || c.Source != discovery.SourceSTUN && !c.Addr.Addr().IsPrivate() {
				all = append(all, peer.Path{Via: l.Via, Remote: c.Addr})
			}
		}
	}
	if err := p.plane.Engine.SetPaths(p.inviter, tunnel.Paths{Initiate: all}); err != nil {
		p.log.Debug("failed to dial the one-time tunnel", "error", err)
	}
}

// redial replaces the session, if there is one.
func (p *oneTime) redial() {
	if err := p.plane.Engine.Redial(p.inviter); err != nil {
		p.log.Debug("failed to redial the one-time tunnel", "error", err)
	}
}

// dialContext connects to the inviter through the tunnel. Closing such a connection waits for the
// inviter's side, too: the tunnel ends next, and the inviter would retransmit to a closed port for
// a minute.
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

// finishingConn is a connection that is closed in order.
type finishingConn struct {
	*netstack.Conn
	ctx  context.Context // of its use; once it ends nothing is waited for
	once sync.Once
}

// Close takes at most farewell. It never fails: nobody cares if the end was not acknowledged.
func (f *finishingConn) Close() error {
	f.once.Do(func() {
		ctx, cancel := context.WithTimeout(f.ctx, farewell)
		defer cancel()
		_ = f.Finish(ctx)
	})
	return nil
}

// acknowledge confirms the inviter's answer, and with it the end of the connection. Without it the
// inviter keeps calling for 90 s: a few packets, and no harm.
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
