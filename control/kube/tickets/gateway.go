package tickets

import (
	"context"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/controller"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
)

// Gateway is the part of the gateway that the controller uses.
type Gateway interface {
	controller.Gateway
	// InviteFor creates a ticket and stores the UID of the object that requested it.
	InviteFor(ctx context.Context, r api.InviteRequest, object string) (api.InviteResponse, error)
	Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error)
	// Tickets lists the tickets issued here with their states, Revoke ends an open one.
	Tickets() []ticket.Standing
	Revoke(id string) error
	// Joined lists the peers that joined, Status says which of them are connected.
	Joined() []state.Peer
	Status(ctx context.Context) (api.Status, error)
	// Alarms returns the gateway's alarms since its start.
	Alarms() []api.Alarm
}
