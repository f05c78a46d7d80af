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

// NameMTU is the check of the packet sizes that reach a peer.
const NameMTU = "mtu"

const (
	// fullTries is how often a full-size echo is sent: at 10 % loss each way all of them are lost
	// by chance with 0.19⁴ ≈ 10⁻³.
	fullTries = 4
	// fullWait is how long to wait for one, at least.
	fullWait = time.Second
	// wireGuardOverhead is a data message's header and tag in bytes (WireGuard paper
	// §5.4.6).
	wireGuardOverhead = 32
)

// vanishes returns the smallest overlay packet that the path finder tried and that did not pass,
// given the largest that did; 0 if all did. What passes is rounded down to WireGuard's padding,
// this is not.
func vanishes(crosses, link int, remote netip.Addr) int {
	for _, s := range slices.Backward(path.Sizes(remote, link)) {
		if s.Overlay > crosses {
			return min(s.Payload-wireGuardOverhead, path.LargestOverlayMTU(link))
		}
	}
	return 0
}

// sizes are the packet sizes known to pass or not.
type sizes struct {
	crosses int // the largest overlay packet that passes; 0 = unknown
	lost    int // the smallest that does not; 0 = none
	sent    int // full-size echoes that were sent, none of which was answered
}

// MTU checks which packet sizes reach a peer whose gateway works: by the path finder's probes,
// which are never fragmented, and, if measure is set, by full-size echoes. It returns false if
// nothing is known.
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
	p.Address, p.Own = f.Path.Remote, f.shown().SeenAs()
	r.stage(StageMTU, api.Warning, fmt.Sprintf("%d bytes cross, %d do not", s.crosses, s.lost))
	return r.found(api.Warning, StageMTU, catalogue.PathMTUSmall, p), true
}

// sizeSeen describes what is known to pass.
func (f Facts) sizeSeen() string {
	if f.Path.MTU == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes", min(f.Path.MTU, f.Path.LinkMTU))
}

// probedSizes returns what the path finder found. A relay's header makes packets larger than on a
// direct path, and an overlay of the minimum MTU cannot be reduced.
func (f Facts) probedSizes() sizes {
	mtu, link := f.Path.MTU, f.Path.LinkMTU
	remote, err := netip.ParseAddrPort(f.Path.Remote)
	if mtu == 0 || mtu >= path.UnmeasuredOverlayMTU(f.Path.LinkMTU) || link <= catalogue.LeastMTU || f.Path.Kind != api.PathDirect || err != nil {
		return sizes{}
	}
	lost := vanishes(mtu, link, remote.Addr().Unmap())
	if lost == 0 || lost > link {
		return sizes{} // the next size tried is more than this host sends
	}
	return sizes{crosses: mtu, lost: lost}
}

// measureSizes sends echoes as large as the overlay's packets may be; found is false if they
// arrive, or if small ones are lost as well. Echo and reply have the same size, so both directions
// count.
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
	crossed, chance := make([]bool, len(tried)), false
	var wg sync.WaitGroup
	for i, size := range tried {
		wg.Go(func() { crossed[i] = answered(ctx, ping, f, size) })
	}
	wg.Go(func() { chance = answered(ctx, ping, f, full) })
	wg.Wait()
	if chance { // it is lost now and then
		return sizes{}, false
	}
	for i, size := range tried {
		if crossed[i] {
			s.crosses = size
			break
		}
		s.lost = size
	}
	return s, ctx.Err() == nil
}

// payload returns that of an echo of a size in bytes, IP header included.
func (f Facts) payload(size int) int {
	if f.Address.Is4() {
		return size - 20 - 8
	}
	return size - 40 - 8
}

// answered reports whether any echo of a size in bytes, IP header included, is answered; 0 means an
// ordinary small one.
func answered(ctx context.Context, ping PingFunc, f Facts, size int) bool {
	payload := f.payload(size)
	if size == 0 {
		payload = pingPayload
	}
	ctx, cancel := context.WithTimeout(ctx, waitFor(f.Path.RTT, fullWait))
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
