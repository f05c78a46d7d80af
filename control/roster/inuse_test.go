package roster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// Connections of gateways do not prevent the removal of a peer, but those of users do.
func TestWhatKeepsAPeerFromBeingRemoved(t *testing.T) {
	flow := func(direction, service string) api.Flow { return api.Flow{Direction: direction, Service: service} }
	for _, tc := range []struct {
		what  string
		flows []api.Flow
		lasts time.Duration
		want  int
		waits bool
	}{
		{"nothing", nil, 0, 0, false},
		{"a request to auth", []api.Flow{flow(api.DirectionInbound, api.ServiceAuth)}, time.Hour, 0, false},
		{"a check of the API server", []api.Flow{flow(api.DirectionInbound, api.ServiceAPIServer)}, time.Second, 0, true},
		{"a user of the API server", []api.Flow{flow(api.DirectionInbound, api.ServiceAPIServer)}, time.Hour, 1, true},
		{"a user here", []api.Flow{flow(api.DirectionOutbound, api.ServiceAPIServer)}, time.Hour, 1, false},
		{"a named service beside a check", []api.Flow{flow(api.DirectionInbound, "registry"), flow(api.DirectionInbound, api.ServiceAPIServer)}, time.Second, 2, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				n, err := inUse(t.Context(), func() (out []api.Flow) {
					for _, f := range tc.flows {
						if f.StartedAt = start; time.Since(start) < tc.lasts {
							out = append(out, f)
						}
					}
					return out
				})
				took := time.Since(start)
				if n != tc.want || err != nil {
					t.Errorf("got %d, %v, want %d", n, err, tc.want)
				}
				if tc.waits != (took > 0) || took > check.Timeout+time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// A cancelled removal does not wait.
func TestAWaitForAChecksConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := inUse(ctx, func() []api.Flow {
			return []api.Flow{{Direction: api.DirectionInbound, Service: api.ServiceAPIServer, StartedAt: time.Now()}}
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// Connections that are always new, as of a client that opens one for each request, prevent a
// removal after a while.
func TestAlwaysNewConnectionsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		n, err := inUse(t.Context(), func() []api.Flow {
			return []api.Flow{{Direction: api.DirectionInbound, Service: api.ServiceAPIServer, StartedAt: time.Now()}}
		})
		if took := time.Since(start); n != 1 || err != nil || took > check.Timeout+time.Second {
			t.Errorf("%d connections after %s, %v", n, took, err)
		}
	})
}
