package gateway

import (
	"context"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
)

// Commands, each passed on to the part that carries it out.

var _ admin.Backend = (*Gateway)(nil)

// PeerAdd adds a peer with a known key, or replaces the one of that name and key.
func (g *Gateway) PeerAdd(ctx context.Context, r api.PeerAddRequest) error {
	return g.peers.PeerAdd(ctx, r)
}

// PeerAllow sets what a peer may reach here.
func (g *Gateway) PeerAllow(ctx context.Context, name string, r api.PeerAllowRequest) error {
	return g.peers.PeerAllow(ctx, name, r)
}

// PeerLocal adds, moves or removes local listeners for a peer's services.
func (g *Gateway) PeerLocal(ctx context.Context, name string, r api.PeerLocalRequest) error {
	return g.peers.PeerLocal(ctx, name, r)
}

// PeerTry changes a peer. The change is rolled back unless it is confirmed.
func (g *Gateway) PeerTry(ctx context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error) {
	return g.peers.PeerTry(ctx, name, r)
}

// PeerConfirm makes a peer's tried changes permanent.
func (g *Gateway) PeerConfirm(ctx context.Context, name string) error {
	return g.peers.PeerConfirm(ctx, name)
}

// PeerApprove admits a peer whose key an operator has confirmed.
func (g *Gateway) PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error {
	return g.peers.PeerApprove(ctx, name, r)
}

// Invite creates a ticket.
func (g *Gateway) Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return g.enrolment.InviteFor(ctx, r, "")
}

// InviteFor is Invite on behalf of a cluster object, whose UID is stored with the ticket.
func (g *Gateway) InviteFor(ctx context.Context, r api.InviteRequest, object string) (api.InviteResponse, error) {
	return g.enrolment.InviteFor(ctx, r, object)
}

// Join redeems a ticket.
func (g *Gateway) Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error) {
	return g.enrolment.Join(ctx, r)
}

// Accept makes this gateway dial a joiner that could not reach it.
func (g *Gateway) Accept(ctx context.Context, r api.AcceptRequest) (api.AcceptResponse, error) {
	return g.enrolment.Accept(ctx, r)
}

// KeyRotate replaces the gateway's key without losing a peer.
func (g *Gateway) KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	return g.enrolment.KeyRotate(ctx, r)
}

// Restart is closed when the gateway must be closed and started again.
func (g *Gateway) Restart() <-chan struct{} { return g.enrolment.Restart() }

// NetCheck queries the STUN and TURN servers and the router again and describes the network around
// this gateway.
func (g *Gateway) NetCheck(ctx context.Context) (api.NetCheck, error) { return g.paths.NetCheck(ctx) }

// Kubeconfig returns what is needed to write a kubeconfig for the peer's API server.
func (g *Gateway) Kubeconfig(ctx context.Context, name string) (api.Kubeconfig, error) {
	return g.services.Kubeconfig(ctx, name)
}

// ServicePort returns the port of a peer's service inside the tunnel, if it is known. Gateways in a
// cluster use it.
func (g *Gateway) ServicePort(name, service string) (uint16, bool) {
	return g.services.ServicePort(name, service)
}

// Credential is the identity that the peer issued to us.
func (g *Gateway) Credential(ctx context.Context, name string) (api.Credential, error) {
	return g.exchange.Credential(ctx, name)
}

// PeerToken issues a token that identifies a peer to auth outside the tunnel.
func (g *Gateway) PeerToken(ctx context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error) {
	return g.auth.PeerToken(ctx, name, r)
}

// ClusterServices lists the exported and imported services of clusters, of one peer if peer is not
// empty.
func (g *Gateway) ClusterServices(_ context.Context, peer string) (api.ClusterServices, error) {
	out := api.ClusterServices{APIVersion: api.Version, Kind: "ClusterServices", Services: []api.ClusterService{}}
	if peer != "" {
		if _, err := g.peers.Member(peer); err != nil {
			return out, err
		}
	}
	if g.clusters != nil {
		out.Enabled, out.Services = true, append(out.Services, g.clusters.List(peer)...)
	}
	return out, nil
}

// Discovered lists the gateways that discovery found, and why a search finds none.
func (g *Gateway) Discovered(ctx context.Context) (api.DiscoveredList, error) {
	return g.found.Discovered(ctx)
}

// DiscoveredApprove adds a gateway that discovery found as a peer.
func (g *Gateway) DiscoveredApprove(ctx context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error) {
	return g.found.DiscoveredApprove(ctx, name, r)
}

// PeerRemove removes a peer.
func (g *Gateway) PeerRemove(ctx context.Context, name string, force bool) error {
	return g.peers.PeerRemove(ctx, name, force)
}
