package underlay

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	candidatesPrefix = "peer:"
	// maxCandidates bounds what one handshake initiation costs: 16 × 148 bytes.
	maxCandidates = 16
)

// ErrNoCandidates is what sending to a peer:ID endpoint without addresses gives.
var ErrNoCandidates = errors.New("no address is known to send to")

// fanOut is the endpoint peer:ID. Its identity stays while its addresses change.
type fanOut struct {
	id      string
	targets atomic.Pointer[[]conn.Endpoint]
}

var _ conn.Endpoint = (*fanOut)(nil)

// SetCandidates sets the addresses of the endpoint peer:ID, best first. Duplicates,
// unusable addresses (unspecified, multicast, port 0) and all beyond 16 are left out.
// Without addresses the ID is forgotten; endpoints already made of it send nowhere.
func (b *Bind) SetCandidates(id string, paths []peer.Path) {
	targets := make([]conn.Endpoint, 0, min(len(paths), maxCandidates))
	seen := make(map[netip.AddrPort]bool, len(paths))
	for _, p := range paths {
		a := unmapped(p.Remote)
		if len(targets) == maxCandidates {
			break
		}
		if !usable(a) || seen[a] {
			continue
		}
		seen[a] = true
		targets = append(targets, b.inner.endpoint(a))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.candidates[id]
	if f == nil {
		if len(targets) == 0 {
			return
		}
		f = &fanOut{id: id}
		b.candidates[id] = f
	}
	f.targets.Store(&targets)
	if len(targets) == 0 {
		delete(b.candidates, id)
	}
}

// isCandidate reports whether the address is among any peer's candidates.
func (b *Bind) isCandidate(a netip.AddrPort) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.candidates {
		for _, ep := range *f.targets.Load() {
			if addrOf(ep) == a {
				return true
			}
		}
	}
	return false
}

func usable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

// send sends an initiation to all addresses, anything else to the first. It fails only
// when no address could be sent to: one without a route is no reason to give up.
func (f *fanOut) send(via conn.Bind, bufs [][]byte) error {
	targets := *f.targets.Load()
	if len(targets) == 0 {
		return fmt.Errorf("%s: %w", f.DstToString(), ErrNoCandidates)
	}
	if len(bufs) != 1 || !isInitiation(bufs[0]) {
		return via.Send(bufs, targets[0])
	}
	var errs []error
	for _, ep := range targets {
		if err := via.Send(bufs, ep); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ep.DstToString(), err))
		}
	}
	if len(errs) < len(targets) {
		return nil
	}
	return errors.Join(errs...)
}

func (f *fanOut) first() conn.Endpoint {
	if targets := *f.targets.Load(); len(targets) > 0 {
		return targets[0]
	}
	return nil
}

// ClearSrc does nothing: candidates have no source address of ours yet.
func (f *fanOut) ClearSrc() {}

// SrcToString is empty.
func (f *fanOut) SrcToString() string { return "" }

// SrcIP is invalid.
func (f *fanOut) SrcIP() netip.Addr { return netip.Addr{} }

// DstToString is peer:ID, not an address.
func (f *fanOut) DstToString() string { return candidatesPrefix + f.id }

// DstToBytes is that of the first address.
func (f *fanOut) DstToBytes() []byte {
	if ep := f.first(); ep != nil {
		return ep.DstToBytes()
	}
	return nil
}

// DstIP is that of the first address.
func (f *fanOut) DstIP() netip.Addr {
	if ep := f.first(); ep != nil {
		return ep.DstIP()
	}
	return netip.Addr{}
}
