package underlay

import (
	"fmt"
	"net"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// SendOptions are how a probe travels.
type SendOptions struct {
	// TTL is the number of hops the datagram may take, 1 to 255; 0 is the system's default.
	TTL int
	// DontFragment asks that neither this system nor a router cuts the datagram up.
	DontFragment bool
}

// RouteChanged tells that datagrams may take other interfaces from now on: what was
// learned of their MTU is forgotten.
func (b *Bind) RouteChanged() {
	if n, ok := b.inner.(interface{ routeChanged() }); ok {
		n.routeChanged()
	}
}

// WriteTo sends one datagram over the path.
func (b *Bind) WriteTo(p []byte, to peer.Path) error { return b.WriteProbe(p, to, SendOptions{}) }

// WriteProbe sends one datagram over the path in the way that the options say. One that
// is too long for the interface gives EMSGSIZE when it must not be fragmented.
//
// The options are for our own socket on Linux; over a datagram socket that was handed in
// the TTL is kept to if the socket has the method WriteToTTL. Otherwise they are ignored.
func (b *Bind) WriteProbe(p []byte, to peer.Path, o SendOptions) error {
	if b.Port() == 0 {
		return net.ErrClosed
	}
	if o.TTL < 0 || o.TTL > 255 {
		return fmt.Errorf("send to %s: TTL %d is not from 1 to 255", to, o.TTL)
	}
	ep := b.endpointOfProbe(p, peer.Path{Via: to.Via, Remote: unmapped(to.Remote)}, o)
	if err := b.probe(p, ep, o); err != nil {
		b.counters.sendErrors.Add(1)
		return fmt.Errorf("send to %s: %w", to, err)
	}
	b.observed.leaves(addrOf(ep))
	b.counters.sent.Add(1)
	return nil
}

func (b *Bind) probe(p []byte, ep conn.Endpoint, o SendOptions) error {
	if _, relayed := ep.(*relayEndpoint); relayed || o == (SendOptions{}) {
		return b.sendDirect([][]byte{p}, ep)
	}
	err := b.inner.probe(p, ep, o)
	b.noteSend(ep, err)
	return err
}
