//go:build linux && e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// lossyVariable sets how long TestSmallGatewaysOverALossyPath loads each path (make test-lossy).
const lossyVariable = "POSTERN_LOSSY"

// Gateways with 64 MiB each survive four bulk streams both ways over long lossy paths: what is in
// flight, and held behind gaps, is limited by their memory.
func TestSmallGatewaysOverALossyPath(t *testing.T) {
	during, err := time.ParseDuration(os.Getenv(lossyVariable))
	if err != nil {
		t.Skipf("it takes minutes: make test-lossy (%s)", lossyVariable)
	}
	for _, f := range []wireFaults{
		{delay: 50 * time.Millisecond, loss: 0.01},
		{delay: 100 * time.Millisecond, loss: 0.03, reorder: 0.01},
	} {
		t.Run(fmt.Sprintf("%v/%g%%", 2*f.delay, f.loss*100), func(t *testing.T) { smallLossy(t, f, during) })
	}
}

func smallLossy(t *testing.T, f wireFaults, during time.Duration) {
	lab := netlab.New(t)
	var both [2]*site
	for i, name := range []string{"left", "right"} {
		x := &site{inner: netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)})}
		host := lab.Host(name)
		x.streams = serveStreams(t, host)
		x.gateway = newGateway(t, host, name, func(spec *api.GatewaySpec) {
			spec.Services.Named = []api.NamedService{{Name: streamService, Port: streamPort, Address: streamUpstream}}
		})
		var err error
		if x.in, err = limits.New(limits.Limits{Memory: 64 << 20}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := x.in.Close(); err != nil {
				t.Error(err)
			}
		})
		both[i] = x
	}
	left, right := both[0], both[1]
	a, b := longDevice(t, left.host, netip.PrefixFrom(left.inner, 24), 1500), longDevice(t, right.host, netip.PrefixFrom(right.inner, 24), 1500)
	var wires sync.WaitGroup
	wires.Go(func() { carry(a, b, f, 1) })
	wires.Go(func() { carry(b, a, f, 2) })
	t.Cleanup(func() { a.Close(); b.Close(); wires.Wait() })

	left.launch()
	right.launch()
	left.waitReady()
	right.waitReady()
	ticket := left.invite("--allow", "auth,"+streamService)
	right.must("join", ticket, "--allow", streamService, "--local", streamService+"="+streamLocal)
	left.must("peer", "local", right.name, streamService+"="+streamLocal)

	var streams []*stream
	for range 2 {
		streams = append(streams, openBulk(within(t, patience), t, left, right), openBulk(within(t, patience), t, right, left))
	}
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-left.proc.Done():
	case <-right.proc.Done():
	}
	carried := uint64(0)
	for _, s := range streams {
		if err := s.broken(); err != nil {
			t.Errorf("stream %s: %v", s.name, err)
		}
		n := s.received()
		if carried += n[0] + n[1]; min(n[0], n[1]) < 1<<20 {
			t.Errorf("stream %s carried %d and %d bytes", s.name, n[0], n[1])
		}
	}
	for _, x := range both {
		select {
		case <-x.proc.Done():
			t.Errorf("gateway %s ended: %s", x.name, x.proc.Stderr())
		default:
		}
		e := x.in.Events()
		if e.Kills > 0 {
			t.Errorf("the kernel killed gateway %s for want of memory", x.name)
		}
		t.Logf("%s: %.1f MB at most, the limit was reached %d times", x.name, mb(int(e.Peak)), e.Reclaims)
	}
	t.Logf("%.1f Mbit/s both ways together", float64(carried)*8/1e6/during.Seconds())
}
