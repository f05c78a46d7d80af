package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// The account at the measured TURN servers.
const (
	relayUser     = "bench"
	relayPassword = "bench"
)

// allocateTimeout bounds the time until the allocation exists.
const allocateTimeout = time.Minute

// newRelayed is newPostern through the TURN server at spec.Relay, which is another process.
func newRelayed(transport string) load.Subject {
	return func(ctx context.Context, spec load.Spec) (load.Ends, error) {
		return connectRelayed(ctx, spec.MTU, relay.Server{
			Address: spec.Relay, Username: relayUser, Password: relayPassword, Transport: transport,
		})
	}
}

// connectRelayed connects two ends of which one needs a relay: the dialling end, which sends the
// load, has an allocation and only sends through it, and the serving end sends to the relayed
// address.
func connectRelayed(ctx context.Context, mtu int, server relay.Server) (load.Ends, error) {
	a, b, err := newEnds(sizes{mtu: mtu})
	if err != nil {
		return load.Ends{}, err
	}
	r, err := allocate(ctx, a.bind, server)
	if err != nil {
		return load.Ends{}, errors.Join(err, a.close(), b.close())
	}
	closeBoth := func() error { return errors.Join(r.close(), a.close(), b.close()) }
	err = errors.Join(
		a.manage(b), a.route(b, peer.Path{Via: r.ID, Remote: b.at()}),
		b.manage(a), b.route(a, peer.Direct(r.Relayed)),
	)
	if err != nil {
		return load.Ends{}, errors.Join(err, closeBoth())
	}
	return service(a, b, closeBoth)
}

// route sets the only path to a managed peer.
func (e *end) route(other *end, p peer.Path) error {
	err := e.engine.SetPaths(other.key.Public(), tunnel.Paths{Initiate: []peer.Path{p}, Selected: p})
	if err != nil {
		return fmt.Errorf("set path %v: %w", p, err)
	}
	return nil
}

// relayed is an allocation that is refreshed until it is closed.
type relayed struct {
	relay.Allocation
	client *relay.Client
	stop   context.CancelFunc
	ended  chan error
}

// socket adapts an end's bind to the interface of the relay client.
type socket struct{ *underlay.Bind }

func (s socket) WriteTo(b []byte, to netip.AddrPort) error { return s.Bind.WriteTo(b, peer.Direct(to)) }

// allocate makes an allocation for an end's socket that permits packets from this machine.
func allocate(ctx context.Context, bind *underlay.Bind, server relay.Server) (*relayed, error) {
	var ids atomic.Uint64
	changed := make(chan struct{}, 1)
	r := &relayed{ended: make(chan error, 1)}
	r.client = relay.New(relay.Options{
		Server: server, Socket: socket{bind}, Attach: bind.AddRelay,
		ID: func() string { return fmt.Sprintf("relay-%d", ids.Add(1)) },
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	r.client.Permit([]netip.Addr{loopback})
	running, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- r.client.Run(running) }()
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	for {
		if a, ok := r.client.Allocation(); ok {
			r.Allocation = a
			return r, nil
		}
		select {
		case <-changed:
		case err := <-r.ended:
			stop()
			return nil, err
		case <-ctx.Done():
			err := fmt.Errorf("no allocation at %s: %w: %s", server.Address, ctx.Err(), r.client.Status().Err)
			stop()
			return nil, errors.Join(err, <-r.ended)
		}
	}
}

// close releases the allocation. It fails if the allocation has changed since the beginning: the
// measurement then includes an interruption.
func (r *relayed) close() error {
	var err error
	if now, ok := r.client.Allocation(); !ok || now.ID != r.ID {
		err = fmt.Errorf("the allocation at %s was lost meanwhile: %s", r.Server, r.client.Status().Err)
	}
	r.stop()
	return errors.Join(err, <-r.ended)
}
