package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// starters is the number of peers that are started concurrently. Starting needs processor
	// time, and there are few cores.
	starters = 4
	// look is the usual polling interval.
	look = 20 * time.Millisecond
	// closeLook is the polling interval for a peer that connects within tens of milliseconds.
	closeLook = time.Millisecond
)

// member is a peer of the hub.
type member struct {
	name string
	key  peer.PrivateKey
}

// newMembers makes keys for n peers.
func newMembers(n int) ([]member, error) {
	out := make([]member, n)
	for i := range out {
		key, err := peer.NewPrivateKey()
		if err != nil {
			return nil, err
		}
		out[i] = member{name: fmt.Sprintf("peer-%d", i+1), key: key}
	}
	return out, nil
}

// Peer is a gateway whose only peer is the hub.
type Peer struct {
	*gateway.Gateway
	name string
}

// startPeer starts a peer with its own folder below dir. local are its listeners for the hub's
// services.
func startPeer(ctx context.Context, dir string, m member, hub *Hub, local map[string]api.ListenAddress) (*Peer, error) {
	c := newConfig(dir, m)
	c.Peers = []config.Peer{{
		Name: hubName, PublicKey: hub.public, Endpoints: []netip.AddrPort{hub.at}, Mode: api.ModeInBand, Local: local,
	}}
	return start(ctx, c, m)
}

// newConfig returns a peer's configuration without its peers.
func newConfig(dir string, m member) *config.Resolved {
	return &config.Resolved{Name: m.name, StateDir: filepath.Join(dir, m.name), PrivateKey: m.key}
}

func start(ctx context.Context, c *config.Resolved, m member) (*Peer, error) {
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("start %s: %w", m.name, err)
	}
	g, err := gateway.Start(ctx, gateway.Options{Config: c, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", m.name, err)
	}
	return &Peer{Gateway: g, name: m.name}, nil
}

// hub returns the peer's status of the hub.
func (p *Peer) hub(ctx context.Context) (api.PeerStatus, error) {
	s, err := p.Status(ctx)
	if err != nil {
		return api.PeerStatus{}, err
	}
	if len(s.Peers) != 1 {
		return api.PeerStatus{}, fmt.Errorf("%s has %d peers, want the hub alone", p.name, len(s.Peers))
	}
	return s.Peers[0], nil
}

// connected waits until the peer is connected.
func (p *Peer) connected(ctx context.Context) error {
	tick := time.NewTicker(closeLook)
	defer tick.Stop()
	for {
		h, err := p.hub(ctx)
		if err != nil || h.State == api.StateConnected {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not connected: it is %s (%s): %w", p.name, h.State, h.Reason, ctx.Err())
		}
	}
}

// Fleet is the idle peers.
type Fleet struct {
	peers []*Peer
}

// startFleet starts all members. On an error it closes those that it started.
func startFleet(ctx context.Context, dir string, members []member, hub *Hub, local map[string]api.ListenAddress) (*Fleet, error) {
	f := &Fleet{peers: make([]*Peer, len(members))}
	errs := make([]error, len(members))
	each(len(members), func(i int) {
		if err := ctx.Err(); err != nil {
			errs[i] = err
			return
		}
		f.peers[i], errs[i] = startPeer(ctx, dir, members[i], hub, local)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// each calls do for all numbers below n, starters of them at a time.
func each(n int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range starters {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// close closes all peers, without waiting for the network.
func (f *Fleet) close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	errs := make([]error, len(f.peers))
	each(len(f.peers), func(i int) {
		if f.peers[i] != nil {
			errs[i] = f.peers[i].Close(ctx)
		}
	})
	return errors.Join(errs...)
}
