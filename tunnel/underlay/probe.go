package underlay

import (
	"fmt"
	"net"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// SendOptions are the options of a probe.
type SendOptions struct {
	// TTL is the hop limit, 1 to 255; 0 means the system's default.
	TTL int
	// DontFragment forbids fragmentation by this system and by routers.
	DontFragment bool
}

// RouteChanged says that datagrams may now take other interfaces, so what was learned about their
// MTU is forgotten.
func (b *Bind) RouteChanged() {
	if n, ok := b.inner.(interface{ routeChanged() }); ok {
		n.routeChanged()
	}
}

// WriteTo sends one datagram on the path.
func (b *Bind) WriteTo(p []byte, to peer.Path) error { return b.WriteProbe(p, to, SendOptions{}) }

// WriteProbe sends one datagram on the path with the options. With DontFragment, one that is too
// long for the interface returns EMSGSIZE.
//
// The options work for our own socket on Linux. A datagram socket that was passed in honours the
// TTL if it has the method WriteToTTL. Otherwise they are ignored.
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
