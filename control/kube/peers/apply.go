package peers

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
)

// refusedAgain is when a set is applied again of which the gateway refused something: other
// conditions (joined peers) may have changed.
const refusedAgain = time.Minute

// applied is what was last applied to the gateway.
type applied struct {
	// want is what was requested and given what the gateway accepted; refused says by name why it
	// refused the rest.
	want, given []config.Peer
	refused     map[string]string
	at          time.Time
	known       bool
}

// chosen returns the peers that the gateway should have, by name. A joined peer gets its options
// even if its object is refused: see fitJoined.
func chosen(list []*candidate) []config.Peer {
	out := []config.Peer{}
	for _, c := range list {
		if c.inForce() || c.peer.Joined {
			out = append(out, c.peer)
		}
	}
	return out
}

// apply applies the candidates to the gateway, unless nothing has changed, and marks those that it
// refuses.
func (c *Controller) apply(ctx context.Context, list []*candidate) {
	want := chosen(list)
	stale := len(c.applied.refused) > 0 && time.Since(c.applied.at) >= refusedAgain
	if !c.applied.known || stale || !reflect.DeepEqual(c.applied.want, want) {
		next := applied{want: want, given: want, at: time.Now(), known: true}
		if err := c.gateway.SetPeers(ctx, want); err != nil {
			c.Log.Warn("cluster's peers rejected as a whole; trying them one by one", "error", err)
			next.given, next.refused = c.applyEach(ctx, list)
		}
		if ctx.Err() != nil {
			return
		}
		c.applied = next
	}
	for _, x := range list {
		if why, bad := c.applied.refused[x.object.Name]; bad {
			x.refused = found(x.object, catalogue.PeerRefused, why)
		}
	}
}

// applyEach finds out what the gateway refuses. Existing unchanged peers stay; then the others are
// added, oldest first.
func (c *Controller) applyEach(ctx context.Context, list []*candidate) (given []config.Peer, refused map[string]string) {
	given, refused = []config.Peer{}, map[string]string{}
	byAge := slices.Clone(list)
	slices.SortStableFunc(byAge, func(a, b *candidate) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time), cmp.Compare(a.object.Name, b.object.Name))
	})
	var added []*candidate
	for _, x := range byAge {
		switch {
		case !x.inForce() && !x.peer.Joined:
		case slices.ContainsFunc(c.applied.given, func(p config.Peer) bool { return reflect.DeepEqual(p, x.peer) }):
			given = append(given, x.peer)
		default:
			added = append(added, x)
		}
	}
	for _, x := range added {
		next := append(slices.Clone(given), x.peer)
		if err := c.gateway.SetPeers(ctx, next); err != nil {
			refused[x.object.Name] = err.Error()
			continue
		}
		given = next
	}
	if len(refused) == len(added) { // nothing was added, but unwanted peers must go
		if err := c.gateway.SetPeers(ctx, given); err != nil && ctx.Err() == nil {
			c.Log.Error("peers that are already in force were rejected", "error", err)
		}
	}
	return given, refused
}
