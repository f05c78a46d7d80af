package gateway

import (
	"context"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
)

// What commands ask of the parts.

var _ admin.Backend = (*Gateway)(nil)

// PeerAdd adds a peer with a known key, or replaces the one of that name and key.
func (g *Gateway) PeerAdd(ctx context.Context, r api.PeerAddRequest) error {
	return g.peers.PeerAdd(ctx, r)
}

// PeerAllow sets what a peer may reach here.
func (g *Gateway) PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error {
	return g.peers.PeerAllow(ctx, name, r)
}

// PeerLocal adds, moves or removes listeners here that lead to services of a peer.
func (g *Gateway) PeerLocal(ctx context.Context, name string, r api.PeerLocalRequest) error {
	return g.peers.PeerLocal(ctx, name, r)
}

// PeerApprove lets a peer in whose key an operator has confirmed.
func (g *Gateway) PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error {
	return g.peers.PeerApprove(ctx, name, r)
}

// PeerRemove forgets a peer.
func (g *Gateway) PeerRemove(ctx context.Context, name string, force bool) error {
	return g.peers.PeerRemove(ctx, name, force)
}
