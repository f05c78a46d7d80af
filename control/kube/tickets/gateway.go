package tickets

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/control/ticket"
)

// Gateway is what the controller needs of the gateway it serves.
type Gateway interface {
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
	// OnChange has f called, besides others, when there may be something new in any of these.
	OnChange(f func())
	// SetProblems replaces what one source has found wrong with the gateway itself.
	SetProblems(source string, list []check.OwnProblem)
}

// Cluster gives clients for the gateway's own cluster.
type Cluster interface {
	Namespace() string
	Group(version schema.GroupVersion, objects ...runtime.Object) (rest.Interface, error)
}
