package check

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/path"
)

// NameMTU is the check of what sizes cross the way to a peer.
const NameMTU = "mtu"

const (
	// fullTries is how often an echo of full size is sent: at a loss of 10 % each way all
	// of them are lost by chance with 0.19⁴ ≈ 10⁻³.
	fullTries = 4
	// fullWait is how long one is waited for.
	fullWait = time.Second
	// wireGuardOverhead is a data message's header and tag in bytes (WireGuard paper
	// §5.4.6).
	wireGuardOverhead = 32
)

// vanishes is the smallest overlay packet that the path finder tried and that did not
// cross, given the largest that did; 0 when all did. What crosses is rounded down to what
// WireGuard pads to, this is not.
func vanishes(crosses, link int, remote netip.Addr) int {
	for _, s := range slices.Backward(path.Sizes(remote, link)) {
		if s.Overlay > crosses {
			return min(s.Payload-wireGuardOverhead, path.LargestOverlayMTU(link))
		}
	}
	return 0
}

// sizes is what is known of the sizes that cross.
type sizes struct {
	crosses int // the largest overlay packet that crosses; 0 = not known
	lost    int // the smallest that does not; 0 = none
	sent    int // echoes of full size that were sent, none of which was answered
}

// MTU checks what sizes cross the way to a peer whose gateway works: by the path finder's
// probes, which are never fragmented, and, if it is to be measured, by echoes of full
// size. It gives false when nothing is known of it.
func MTU(ctx context.Context, ping PingFunc, f Facts, measure bool) (verdict.Finding, bool) {
	if f.Path.LinkMTU == 0 || !f.Address.IsValid() {
		return verdict.Finding{}, false
	}
	r := begin(NameMTU, api.ServiceGateway, f)
	s := f.probedSizes()
	if measure {
		if m, found := measureSizes(ctx, ping, f); found {
			s = m
		}
	}
	if s.lost == 0 {
		r.passed(StageMTU, f.sizeSeen())
		return r.ok(0), true
	}
	var p catalogue.Params
	p.MTU, p.LinkMTU, p.Size, p.Sent, p.Lost = s.crosses, f.Path.LinkMTU, s.lost, s.sent, s.sent
	p.Address = f.Path.Remote
	r.stage(StageMTU, api.Warning, fmt.Sprintf("%d bytes cross, %d do not", s.crosses, s.lost))
	return r.found(api.Warning, StageMTU, catalogue.PathMTUSmall, p), true
}

// sizeSeen says what is known to cross.
func (f Facts) sizeSeen() string {
	if f.Path.MTU == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes", min(f.Path.MTU, f.Path.LinkMTU))
}

// probedSizes is what the path finder found. A relay's header makes packets larger than on
// a direct path, and an overlay that is as small as it may be has nothing left to give.
func (f Facts) probedSizes() sizes {
	mtu, link := f.Path.MTU, f.Path.LinkMTU
	remote, err := netip.ParseAddrPort(f.Path.Remote)
	if mtu == 0 || mtu >= path.UnmeasuredOverlayMTU(f.Path.LinkMTU) || link <= catalogue.LeastMTU || f.Path.Kind != api.PathDirect || err != nil {
		return sizes{}
	}
	lost := vanishes(mtu, link, remote.Addr().Unmap())
	if lost == 0 || lost > link {
		return sizes{} // the next size that was tried is more than this machine sends
	}
	return sizes{crosses: mtu, lost: lost}
}

// measureSizes sends echoes as large as the overlay's packets may be; found is false when
// they arrive, or when small ones are lost as well. Echo and reply have the same size, so
// both ways count.
func measureSizes(ctx context.Context, ping PingFunc, f Facts) (s sizes, found bool) {
	full := path.UnmeasuredOverlayMTU(f.Path.LinkMTU)
	if answered(ctx, ping, f, full) || !answered(ctx, ping, f, 0) {
		return sizes{}, false
	}
	s = sizes{lost: full, sent: fullTries}
	var tried []int
	for _, size := range []int{1420, 1400, 1376, 1360, 1328, catalogue.LeastMTU, 1216, 1040, 512} {
		if size < full {
			tried = append(tried, size)
		}
	}
	crossed := make([]bool, len(tried))
	var wg sync.WaitGroup
	for i, size := range tried {
		wg.Go(func() { crossed[i] = answered(ctx, ping, f, size) })
	}
	wg.Wait()
	for i, size := range tried {
		if crossed[i] {
			s.crosses = size
			break
		}
		s.lost = size
	}
	return s, ctx.Err() == nil
}

// answered reports whether any echo of a size in bytes, IP header included, is answered; 0
// is an ordinary small one.
func answered(ctx context.Context, ping PingFunc, f Facts, size int) bool {
	headers := 40 + 8
	if f.Address.Is4() {
		headers = 20 + 8
	}
	payload := size - headers
	if size == 0 {
		payload = pingPayload
	}
	ctx, cancel := context.WithTimeout(ctx, fullWait)
	defer cancel()
	replies := make(chan bool, fullTries)
	var wg sync.WaitGroup
	for range fullTries {
		wg.Go(func() {
			_, err := ping(ctx, f.Address, payload)
			replies <- err == nil
		})
	}
	got := false
	for range fullTries {
		if <-replies {
			got = true
			cancel() // one is enough
		}
	}
	wg.Wait()
	return got
}
