// Package forward carries TCP connections, and flows of datagrams, between the tunnel and the world
// outside it.
//
//   - Inbound: a peer dials a service of this gateway at its overlay address. Inbound
//     finds who the peer is (its source address is its key), which service listens on the
//     port, and whether that peer may reach it: by default it may not. The configured
//     upstream is dialled before the peer's handshake is completed, so that an upstream
//     that is down shows as "connection refused" and never as a hang.
//   - Outbound: a listener on this machine leads to a service of a peer.
//   - Flows is the table that both fill: it lists the open connections and flows of
//     datagrams, bounds them per peer and in all, and ends them when a peer is removed, a
//     grant revoked or the gateway stopped.
//
// The upstream of a service is what the configuration says and nothing else; a peer
// cannot choose it, and nothing leads from one peer to another. Bytes are passed as they
// are: TLS ends at the API server. A side that ends its stream (FIN) ends it on the other
// side, and a reset becomes a reset (RFC 9293 §3.5, §3.6). Established connections have
// no idle time-out, since a Kubernetes watch may be silent for hours; TCP keepalive finds
// those whose host is gone.
package forward

import (
	"context"
	"net"
	"net/netip"
)

// Directions of a flow, as api.Flow names them.
const (
	DirectionInbound  = "inbound"
	DirectionOutbound = "outbound"
)

// Peer is the owner of a source address.
type Peer struct {
	// Name is the peer's name here. That of a one-time key is unique as well.
	Name string
	// OneTime marks the key of an open ticket. Whatever the policy says, it reaches auth
	// and nothing else.
	OneTime bool
	// Mute marks a peer that does not use auth, such as a plain WireGuard peer.
	Mute bool
}

// Conn is one end of a flow: a stream whose sending side can be closed separately, such as
// *net.TCPConn and *netstack.Conn.
//
// A Conn with an Abort method is reset by that; a *net.TCPConn is reset by closing it with a zero
// linger time; any other is closed.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Incoming is a connection request of a peer that has not been answered yet. Exactly one of Accept,
// Refuse and Drop must be called.
type Incoming interface {
	Remote() netip.AddrPort
	Local() netip.AddrPort
	// Accept completes the handshake.
	Accept(context.Context) (Conn, error)
	// Refuse answers with a reset.
	Refuse()
	// Drop answers nothing.
	Drop()
}

// Pending is Incoming for a stack whose Accept returns its own type.
type Pending[C Conn] interface {
	Remote() netip.AddrPort
	Local() netip.AddrPort
	Accept(context.Context) (C, error)
	Refuse()
	Drop()
}

// Wrap converts a stack's own type, such as *netstack.Incoming, to an Incoming.
func Wrap[C Conn](p Pending[C]) Incoming { return wrapped[C]{p} }

type wrapped[C Conn] struct{ Pending[C] }

func (w wrapped[C]) Accept(ctx context.Context) (Conn, error) {
	c, err := w.Pending.Accept(ctx)
	if err != nil {
		return nil, err // never an interface that holds a nil C
	}
	return c, nil
}

// abort ends a connection, with a reset if possible.
func abort(c net.Conn) {
	switch c := c.(type) {
	case interface{ Abort() }:
		c.Abort()
		return
	case interface{ SetLinger(sec int) error }:
		// Linger time 0 makes close send RST and drop unsent data (socket(7)). It only fails on a
		// connection that is already closed.
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}
