package paths

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// allocationIDs number the allocations of this process. A name is never reused, so that a datagram
// for an old allocation cannot leave through a new one.
type allocationIDs struct{ last atomic.Uint64 }

func (a *allocationIDs) next() string { return fmt.Sprintf("relay-%d", a.last.Add(1)) }

// relayLook is how often a wait looks for failed allocations.
const relayLook = 100 * time.Millisecond

// Relays keep an allocation at each configured TURN server, for one socket.
type Relays struct {
	clients []*relay.Client
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when an allocation comes or goes
}

type relaysOptions struct {
	bind    *underlay.Bind
	servers []relay.Server
	ids     *allocationIDs
	resolve func(context.Context, string) ([]netip.Addr, error)
	egress  *egress.Dialer
	// onChange may be nil; it must not block.
	onChange func()
	// previous are allocations of an earlier process; onGrant is called with what the next one
	// needs. Both may be nil.
	previous []relay.Grant
	onGrant  func(relay.Grant)
	// after is closed when the relays may be contacted: until then, others may still be
	// deallocating from the same socket. nil means at once.
	after  <-chan struct{}
	logger *slog.Logger
}

// bindSocket adapts the gateway's socket for a relay client, runs of datagrams included.
type bindSocket struct{ *underlay.Bind }

func (s bindSocket) WriteTo(b []byte, to netip.AddrPort) error {
	return s.Bind.WriteTo(b, peer.Direct(to))
}

// openRelays starts allocating.
func openRelays(o relaysOptions) *Relays {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &Relays{cancel: cancel, changed: make(chan struct{})}
	for _, s := range o.servers {
		var previous *relay.Grant
		if i := slices.IndexFunc(o.previous, func(g relay.Grant) bool { return g.Server == s.Address && g.Username == s.Username }); i >= 0 {
			previous = &o.previous[i]
		}
		c := relay.New(relay.Options{
			Server: s, Previous: previous, OnGrant: o.onGrant,
			ID: o.ids.next, Socket: bindSocket{o.bind}, Attach: o.bind.AddRelay, Resolve: o.resolve,
			Dial: o.egress.DialContext, Proxied: o.egress.Proxied,
			OnChange: func() {
				r.announce()
				if o.onChange != nil {
					o.onChange()
				}
			},
			Logger: o.logger,
		})
		r.clients = append(r.clients, c)
		r.wg.Go(func() {
			if o.after != nil {
				select {
				case <-o.after:
				case <-ctx.Done():
				}
			}
			if err := c.Run(ctx); err != nil {
				o.logger.Warn("cannot use a relay", "relay", s.Address, "error", err)
			}
		})
	}
	return r
}

func (r *Relays) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// Close deallocates.
func (r *Relays) Close() { r.end(nil) }

// leave stops like Close, but leaves the allocations on the servers for the next start.
func (r *Relays) leave() { r.end(relay.ErrKeep) }

func (r *Relays) end(cause error) {
	r.cancel(cause)
	r.wg.Wait()
}

// Local returns the allocations in the path finder's terms, in the order of the configuration.
func (r *Relays) Local() []path.Relay {
	var out []path.Relay
	for _, c := range r.clients {
		if a, ok := c.Allocation(); ok {
			out = append(out, path.Relay{Via: a.ID, Addr: a.Relayed, Server: a.Server})
		}
	}
	return out
}

// Permit makes the allocations accept datagrams from exactly these addresses.
func (r *Relays) Permit(addrs []netip.Addr) {
	for _, c := range r.clients {
		c.Permit(addrs)
	}
}

// check verifies the allocations.
func (r *Relays) check() {
	for _, c := range r.clients {
		c.Check()
	}
}

// ask queries whether the servers are there.
func (r *Relays) ask() {
	for _, c := range r.clients {
		c.Ask()
	}
}

func (r *Relays) statuses() []relay.Status {
	out := make([]relay.Status, 0, len(r.clients))
	for _, c := range r.clients {
		out = append(out, c.Status())
	}
	return out
}

// server returns the configured address of an allocation's server; empty if the allocation is gone.
func (r *Relays) server(via string) string {
	for _, l := range r.Local() {
		if l.Via == via {
			return l.Server
		}
	}
	return ""
}

// wait waits until each server has an allocation or a reason for having none, or ctx ends.
func (r *Relays) wait(ctx context.Context) {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		settled := !slices.ContainsFunc(r.statuses(), func(s relay.Status) bool { return !s.Relayed.IsValid() && s.Err == "" })
		if settled {
			return
		}
		select {
		case <-changed:
		case <-time.After(relayLook): // a failure does not signal changed
		case <-ctx.Done():
			return
		}
	}
}
