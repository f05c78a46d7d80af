//go:build linux && e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

func hairpin(o *netlab.NATOptions) { o.Hairpin = true }

// bulkBytes is what bulk transfers carry each way: many times the windows of both ends.
const bulkBytes = 8 << 20

// TestBulkPassesNarrowPaths sends in both directions at once over a path that is narrower than
// anyone reports: all ICMP errors are filtered, and in one case the fragments as well.
func TestBulkPassesNarrowPaths(t *testing.T) {
	t.Parallel()
	for _, mtu := range []int{1280, 1100} {
		for _, fragments := range []bool{true, false} {
			name := fmt.Sprintf("MTU %d, fragments pass %v", mtu, fragments)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				onTime(t, func(late lateness) {
					s := newSites(t, dial, portRestricted, ways{mtu: mtu})
					for _, router := range []*netlab.Host{s.core, s.right.nat.Host} {
						router.DropICMPErrors()
						if !fragments {
							router.DropFragments()
						}
					}
					s.start()
					s.enrol(s.left, s.right)
					s.awaitPath(api.PathDirect, patience)
					bulk := openBulk(within(t, patience), t, s.right, s.left)
					took := bulk.carries(within(t, 2*patience), bulkBytes)
					t.Logf("%d MiB each way in %v, the stream rested for at most %v; left has MTU %d, right %d", bulkBytes>>20,
						took.Round(10*time.Millisecond), bulk.gap().Round(time.Millisecond), s.mtu(s.left), s.mtu(s.right))
					late("the transfer rested", bulk.gap(), repairWithin)
					s.report()
				})
			})
		}
	}
}

// TestJumboFramesCarryTheTunnel has both sides configured for jumbo frames. Nothing larger than
// the path arrives: neither fragments nor ICMP errors pass.
func TestJumboFramesCarryTheTunnel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ right, want int }{{9000, 8920}, {1500, 1440}} {
		t.Run(fmt.Sprintf("the right side has %d", c.right), func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := newSites(t, dial, dial, ways{leftMTU: 9000, mtu: c.right, noTURN: true, configure: func(spec *api.GatewaySpec) { spec.MTU = 8920 }})
				s.core.DropICMPErrors()
				s.core.DropFragments()
				s.start()
				s.enrol(s.left, s.right)
				s.awaitPath(api.PathDirect, patience)
				eventually(within(t, patience), t, fmt.Sprintf("packets of %d bytes cross both ways", c.want), func() (bool, string) {
					left, right := s.mtu(s.left), s.mtu(s.right)
					return left == c.want && right == c.want, fmt.Sprintf("left has %d, right %d", left, right)
				})
				bulk := openBulk(within(t, patience), t, s.right, s.left)
				took := bulk.carries(within(t, 2*patience), bulkBytes)
				t.Logf("%d MiB each way in %v, the stream rested for at most %v", bulkBytes>>20, took.Round(10*time.Millisecond), bulk.gap().Round(time.Millisecond))
				late("the transfer rested", bulk.gap(), repairWithin)
				s.report()
			})
		})
	}
}

// mtu returns the path MTU in a side's status of the other.
func (s *sites) mtu(x *site) int {
	p, _ := x.peer(s.other(x).name)
	return p.Path.MTU
}
