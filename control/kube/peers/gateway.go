package peers

import (
	"context"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/controller"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Gateway is what the controller needs of its gateway.
type Gateway interface {
	controller.Gateway
	Status(ctx context.Context) (api.Status, error)
	Config(ctx context.Context) ([]config.Value, error)
	// Services are those of clusters; nil if the gateway takes part in none.
	Services() mcs.Services
	// SetPeers replaces the configured peers by difference; an error changes nothing.
	SetPeers(ctx context.Context, peers []config.Peer) error
	PeerRemove(ctx context.Context, name string, force bool) error
	PeerApprove(ctx context.Context, name string, r api.PeerApproveRequest) error
	// Joined lists the peers of the gateway's own state.
	Joined() []state.Peer
	// NoteObject stores that such a peer has an object, and the key in it.
	NoteObject(name string, key peer.PublicKey) error
}

// namedServices returns those of the gateway's configuration, against which grants are checked.
func namedServices(ctx context.Context, g Gateway) ([]config.NamedService, error) {
	values, err := g.Config(ctx)
	if err != nil {
		return nil, err
	}
	var out []config.NamedService
	for _, v := range values {
		if strings.HasPrefix(v.Path, "spec.services.named[") && strings.HasSuffix(v.Path, "].name") {
			out = append(out, config.NamedService{Name: v.Value})
		}
	}
	return out, nil
}
