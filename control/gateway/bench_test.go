package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/tunnel/peer"
)

// BenchmarkAddPeer adds one peer to so many that do not answer, and removes it again: what a
// join costs that is not WireGuard's.
func BenchmarkAddPeer(b *testing.B) {
	for _, present := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(present), func(b *testing.B) {
			g := withPeers(b, present)
			ctx := context.Background()
			added := api.Peer{Name: "new", PublicKey: benchKey(b).Public().String()}
			for b.Loop() {
				if err := g.PeerAdd(ctx, api.PeerAddRequest{Peer: added}); err != nil {
					b.Fatal(err)
				}
				if err := g.PeerRemove(ctx, added.Name, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// withPeers starts a gateway on loopback with peers that nobody is.
func withPeers(b *testing.B, n int) *gateway.Gateway {
	b.Helper()
	c := &config.Resolved{Name: "hub", StateDir: b.TempDir(), PrivateKey: benchKey(b)}
	for i := range n {
		c.Peers = append(c.Peers, config.Peer{
			Name: fmt.Sprintf("peer-%d", i+1), PublicKey: benchKey(b).Public(), Mode: api.ModeInBand,
			Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(10000+i))},
		})
	}
	g, err := gateway.Start(b.Context(), gateway.Options{Config: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return g
}

func benchKey(b *testing.B) peer.PrivateKey {
	b.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	return k
}
