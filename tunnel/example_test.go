package tunnel_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// end is one end of a tunnel: an engine and its network stack.
type end struct {
	*tunnel.Engine
	stack *netstack.Stack
	addr  netip.Addr
}

func open() (end, error) {
	key, err := peer.NewPrivateKey()
	if err != nil {
		return end{}, err
	}
	addr := peer.OverlayAddr(key.Public())
	stack, err := netstack.New(netstack.Options{Addresses: []netip.Addr{addr}})
	if err != nil {
		return end{}, err
	}
	e, err := tunnel.New(tunnel.Options{PrivateKey: key, Device: stack.Device(), Underlay: underlay.New(underlay.Options{})})
	return end{e, stack, addr}, err
}

// Two engines on one machine: each knows the other's public key, and one knows where the other
// listens. Their overlay addresses follow from their keys.
func ExampleEngine() {
	cloud, err := open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cloud.Close() }()
	edge, err := open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = edge.Close() }()

	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), cloud.Snapshot().ListenPort)
	if err := cloud.SetPeers([]peer.Config{{Name: "edge", PublicKey: edge.PublicKey()}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := edge.SetPeers([]peer.Config{{Name: "cloud", PublicKey: cloud.PublicKey(), Endpoints: []netip.AddrPort{at}}}); err != nil {
		fmt.Println(err)
		return
	}

	listener, err := cloud.stack.Listen(netip.AddrPortFrom(cloud.addr, 80))
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "hello through the tunnel")
		_ = c.Close()
	}()
	c, err := edge.stack.DialTCP(context.Background(), netip.AddrPortFrom(cloud.addr, 80))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := io.ReadAll(c)
	fmt.Println(string(text), err)
	stats, _ := edge.Peer(cloud.PublicKey())
	fmt.Println(stats.Name, stats.Endpoint == at, !stats.LastHandshake.IsZero())
	// Output:
	// hello through the tunnel <nil>
	// cloud true true
}
