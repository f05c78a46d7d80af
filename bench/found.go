package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/netstack"
	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

const (
	// pathTimeout bounds the time until both ends have a path.
	pathTimeout = time.Minute
	// clock is how often a gateway reads its counters and reports traffic to the path finder.
	clock = time.Second
	// renewAfter is how long a gateway waits for the peer to begin a handshake.
	renewAfter = time.Second
)

// newFound is newPostern over a path that path finders discover, and keep alive with probes while
// the load runs.
func newFound(ctx context.Context, spec load.Spec) (load.Ends, error) {
	a, b, err := newFinders(ctx, spec.MTU)
	if err != nil {
		return load.Ends{}, err
	}
	return service(a.end, b.end, func() error { return errors.Join(a.close(), b.close()) })
}

// found is an end with a path finder, connected as in a gateway.
type found struct {
	*end
	mtu      int // the overlay's, which the path may lower
	finder   *discovery.Pathfinder
	selected chan struct{} // closed once there is a path
	once     sync.Once
	stop     context.CancelFunc
	workers  sync.WaitGroup
}

// newFinders starts two ends and waits until each has selected a path to the other.
func newFinders(ctx context.Context, mtu int) (a, b *found, err error) {
	if a, err = newFinder(mtu); err != nil {
		return nil, nil, fmt.Errorf("dialling end: %w", err)
	}
	if b, err = newFinder(mtu); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("serving end: %w", err), a.close())
	}
	ctx, cancel := context.WithTimeout(ctx, pathTimeout)
	defer cancel()
	err = errors.Join(a.find(b), b.find(a))
	for _, f := range []*found{a, b} {
		if err == nil {
			err = f.wait(ctx)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, a.close(), b.close())
	}
	return a, b, nil
}

// newFinder starts an end without peers.
func newFinder(mtu int) (*found, error) {
	key, err := peer.NewPrivateKey()
	if err != nil {
		return nil, err
	}
	f := &found{mtu: cmp.Or(mtu, netstack.DefaultMTU), selected: make(chan struct{}), stop: func() {}}
	f.finder, err = discovery.NewPathfinder(discovery.PathfinderOptions{
		PrivateKey: key, BootID: 1, Send: f.send, Route: f.route, Handshake: f.handshake, Local: f.local,
	})
	if err != nil {
		return nil, err
	}
	f.end, err = newEnd(key, sizes{mtu: mtu}, hooks{
		onSTUN:  func(packet []byte, from peer.Path) { f.finder.HandleSTUN(packet, from) },
		onEvent: f.heard,
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// find makes other the only peer and starts the search for a path to it.
func (f *found) find(other *found) error {
	if err := f.manage(other.end); err != nil {
		return err
	}
	k := other.key.Public()
	err := f.finder.SetPeers([]discovery.PathPeer{{
		Key: k, Name: "other",
		Candidates: []discovery.Candidate{{Addr: other.at(), Source: discovery.SourceHost}},
	}})
	if err != nil {
		return fmt.Errorf("set peer to find: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.workers.Go(func() { _ = f.finder.Run(ctx) }) // only fails with the context
	f.workers.Go(func() { f.beat(ctx, k) })
	return nil
}

// wait waits for a path.
func (f *found) wait(ctx context.Context) error {
	select {
	case <-f.selected:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no path was found: %w", ctx.Err())
	}
}

// beat does a gateway's periodic work for its path finder.
func (f *found) beat(ctx context.Context, k peer.PublicKey) {
	tick := time.NewTicker(clock)
	defer tick.Stop()
	var before uint64
	for {
		select {
		case <-tick.C:
			if now := f.engine.Snapshot().Peers[k]; now.RxBytes+now.TxBytes > before {
				before = now.RxBytes + now.TxBytes
				f.finder.Traffic(k)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (f *found) local() path.Local { return path.Local{Hosts: []netip.Addr{loopback}} }

func (f *found) send(packet []byte, to peer.Path, ttl int, dontFragment bool) error {
	return f.bind.WriteProbe(packet, to, underlay.SendOptions{TTL: ttl, DontFragment: dontFragment})
}

// route applies the path finder's choice. It ignores errors: the only peer is never removed.
func (f *found) route(k peer.PublicKey, r path.Routing) {
	_ = f.engine.SetPaths(k, tunnel.Paths{Initiate: r.Initiate, Selected: r.Selected})
	f.stack.SetPathMTU(peer.OverlayAddr(k), min(r.MTU, f.mtu))
	if r.Selected.IsValid() {
		f.once.Do(func() { close(f.selected) })
	}
}

func (f *found) handshake(k peer.PublicKey) { _ = f.engine.Renew(k, renewAfter) }

func (f *found) heard(e tunnel.Event) {
	switch e.Kind {
	case tunnel.HandshakeDone:
		f.finder.HandshakeDone(e.Peer, e.Path)
	case tunnel.Silent:
		f.finder.Silent(e.Peer)
	}
}

func (f *found) close() error {
	f.stop()
	f.workers.Wait()
	return f.end.close()
}
