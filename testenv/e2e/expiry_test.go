//go:build linux && e2e

package e2e

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// TestIdleMappingsNeverExpire leaves pairs idle for much longer than their NATs remember, and
// then expects an immediate answer from the NATed side. Times are shortened: NATs that forget
// after 8 and 12 s, and a keepalive of 2 s, which a busy machine may send late.
func TestIdleMappingsNeverExpire(t *testing.T) {
	t.Parallel()
	const idle, answerWithin = 30 * time.Second, 2 * time.Second
	forgetful := ways{
		nat:       func(o *netlab.NATOptions) { o.UDPTimeout, o.UDPStreamTimeout = 8, 12 },
		configure: func(spec *api.GatewaySpec) { spec.Discovery.Keepalive = api.Duration(2 * time.Second) },
	}
	for _, c := range []struct {
		name        string
		left, right access
		kind        string
	}{
		{"one side behind a NAT", dial, portRestricted, api.PathDirect},
		{"both behind NATs", portRestricted, portRestricted, api.PathDirect},
		{"on the relay", symmetric, symmetric, api.PathRelay},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := started(t, c.left, c.right, forgetful)
				s.offerBack(s.left, s.right)
				s.awaitPath(c.kind, patience)
				openStream(within(t, patience), t, s.left, s.right).close()
				ctx := within(t, patience)
				since := s.pathSince()
				select {
				case <-time.After(idle):
				case <-ctx.Done():
					t.Fatal(ctx.Err())
				}
				start := time.Now()
				openStream(within(t, patience), t, s.left, s.right)
				took := time.Since(start)
				t.Logf("after %v of silence a stream to the NATed side runs in %v", idle, took.Round(time.Millisecond))
				late("until a stream to the NATed side runs", took, answerWithin)
				if now := s.pathSince(); now != since {
					t.Errorf("the path changed while idle: in use since %s, was since %s", now, since)
				}
				s.report()
			})
		})
	}
}

// pathSince returns when both sides selected their current path.
func (s *sites) pathSince() (times [2]string) {
	s.t.Helper()
	for i, x := range s.both() {
		if p, _ := x.peer(s.other(x).name); p.Path.Since != nil {
			times[i] = p.Path.Since.Format(time.RFC3339Nano)
		}
	}
	return times
}
