package screen

import (
	"context"

	"github.com/postern-dev/postern/control/api"
)

// Source is the gateway that the screen shows. Every call ends with its context. Calls may be
// concurrent.
type Source interface {
	Status(ctx context.Context) (api.Status, error)
	// Check runs checks now.
	Check(ctx context.Context, r api.CheckRequest) (api.CheckReport, error)
	// Ping sends one echo to a peer.
	Ping(ctx context.Context, name string, r api.PingRequest) (api.PingReply, error)
	// Checks returns the last results at once.
	Checks(ctx context.Context) (api.CheckReport, error)
	// History returns the recent history of peers.
	History(ctx context.Context, r api.HistoryRequest) (api.History, error)
	// ClusterServices returns the services of clusters; for all peers if peer is "".
	ClusterServices(ctx context.Context, peer string) (api.ClusterServices, error)
	// Log returns the records after a sequence number, 0 for all that are kept.
	Log(ctx context.Context, after uint64) (api.Log, error)
}
