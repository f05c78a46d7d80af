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

// PeerTry makes a change of a peer that is undone unless it is confirmed.
func (g *Gateway) PeerTry(ctx context.Context, name string, r api.PeerTryRequest) (api.PeerTryResponse, error) {
	return g.peers.PeerTry(ctx, name, r)
}

// PeerConfirm has the changes of a peer stay that would be undone.
func (g *Gateway) PeerConfirm(ctx context.Context, name string) error {
	return g.peers.PeerConfirm(ctx, name)
}

// PeerApprove lets a peer in whose key an operator has confirmed.
func (g *Gateway) PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error {
	return g.peers.PeerApprove(ctx, name, r)
}

// Invite makes a ticket.
func (g *Gateway) Invite(ctx context.Context, r api.InviteRequest) (api.InviteResponse, error) {
	return g.enrolment.InviteFor(ctx, r, "")
}

// InviteFor is Invite for an object of the cluster, whose UID is kept with the ticket.
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

// KeyRotate gives the gateway another key without losing a peer.
func (g *Gateway) KeyRotate(ctx context.Context, r api.KeyRotateRequest) (api.KeyRotateResponse, error) {
	return g.enrolment.KeyRotate(ctx, r)
}

// Restart is closed when the gateway has to be closed and started again.
func (g *Gateway) Restart() <-chan struct{} { return g.enrolment.Restart() }

// NetCheck asks the STUN and TURN servers and the router again and says what the network
// around this gateway is like.
func (g *Gateway) NetCheck(ctx context.Context) (api.NetCheck, error) { return g.paths.NetCheck(ctx) }

// Kubeconfig says what it takes to write one for the peer's API server.
func (g *Gateway) Kubeconfig(ctx context.Context, name string) (api.Kubeconfig, error) {
	return g.services.Kubeconfig(ctx, name)
}

// ServicePort is the port of a peer's service inside the tunnel, if it is known. It is for a
// gateway in a cluster.
func (g *Gateway) ServicePort(name, service string) (uint16, bool) {
	return g.services.ServicePort(name, service)
}

// Credential is the identity that the peer issued to us.
func (g *Gateway) Credential(ctx context.Context, name string) (api.Credential, error) {
	return g.exchange.Credential(ctx, name)
}

// PeerToken makes a token by which a peer is known to auth outside the tunnel.
func (g *Gateway) PeerToken(ctx context.Context, name string, r api.PeerTokenRequest) (api.PeerTokenResponse, error) {
	return g.auth.PeerToken(ctx, name, r)
}

// ClusterServices lists the services of clusters that are exported and imported; of one peer, if it is
// named.
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

// Discovered lists the gateways that were found, and why a search finds none.
func (g *Gateway) Discovered(ctx context.Context) (api.DiscoveredList, error) {
	return g.found.Discovered(ctx)
}

// DiscoveredApprove makes a peer of a gateway that was found.
func (g *Gateway) DiscoveredApprove(ctx context.Context, name string, r api.DiscoveredApproveRequest) (api.DiscoveredApproveResponse, error) {
	return g.found.DiscoveredApprove(ctx, name, r)
}

// PeerRemove forgets a peer.
func (g *Gateway) PeerRemove(ctx context.Context, name string, force bool) error {
	return g.peers.PeerRemove(ctx, name, force)
}
