package tickets

import (
	"context"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/controller"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
)

// Gateway is what the controller needs of the gateway it serves.
type Gateway interface {
	controller.Gateway
	// InviteFor makes a ticket and keeps the UID of the object that asks for it.
	InviteFor(ctx context.Context, r api.InviteRequest, object string) (api.InviteResponse, error)
	Join(ctx context.Context, r api.JoinRequest) (api.JoinResponse, error)
	// Tickets lists what became of those that were made here, Revoke ends an open one.
	Tickets() []ticket.Standing
	Revoke(id string) error
	// Joined lists the peers that joined, Status says which of them are connected.
	Joined() []state.Peer
	Status(ctx context.Context) (api.Status, error)
	// Alarms are those of the gateway since its start.
	Alarms() []api.Alarm
}
