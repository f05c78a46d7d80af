package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tailscale.com/client/local"
	"tailscale.com/ipn/store/mem"
	"tailscale.com/tailcfg"
	"tailscale.com/tsnet"
	"tailscale.com/types/logger"
)

const (
	// upTimeout bounds the time until both nodes are up and reach each other without the relay,
	// on a busy machine. On an idle one it takes a second or two.
	upTimeout = 45 * time.Second
	// pingTimeout bounds one ping. It is lost if a node is not connected to the relay yet.
	// Otherwise it takes a round trip, at most 200 ms in the WAN scenarios. pingPause is the time
	// between two pings.
	pingTimeout = 500 * time.Millisecond
	pingPause   = 20 * time.Millisecond
)

// tailnet is two nodes and their network. Everything ends with the process: closing a node resets
// all its connections, including those in TIME-WAIT, and blocks forever if their packets exceed
// its queue, which is not drained any more.
type tailnet struct {
	network *network
	nodes   []*node
	began   time.Time // when the network was up and nodes were started
	relayed int64     // bytes that the relay had carried when the path was direct
}

// node is one of the two.
type node struct {
	*tsnet.Server
	client *local.Client
	addr   netip.Addr // in the tailnet
}

// start starts the network and the nodes. If via is valid, they reach each other through the
// forwarder there.
func (t *tailnet) start(ctx context.Context, via netip.AddrPort) (err error) {
	// Nodes write log buffers to files, which they keep open. Their state is in memory.
	dir, err := os.MkdirTemp("", "postern-bench-tsnet-")
	if err != nil {
		return fmt.Errorf("make folder for nodes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if t.network, err = newNetwork(via); err != nil {
		return err
	}
	t.began = time.Now()
	var (
		adding sync.WaitGroup
		errs   [2]error
	)
	for i, name := range []string{"dialling", "serving"} {
		n := t.newNode(name, filepath.Join(dir, name))
		t.nodes = append(t.nodes, n)
		adding.Go(func() { errs[i] = n.up(ctx) })
	}
	adding.Wait()
	return errors.Join(errs[:]...)
}

// awaitDirect waits until both nodes reach each other without the relay, and at via, if that is
// valid.
func (t *tailnet) awaitDirect(ctx context.Context, via netip.AddrPort) error {
	for i, n := range t.nodes {
		if err := n.awaitDirect(ctx, t.nodes[1-i].addr, via); err != nil {
			return err
		}
	}
	t.relayed = t.network.relayed()
	return nil
}

func (t *tailnet) newNode(name, dir string) *node {
	return &node{Server: &tsnet.Server{
		Dir: dir, Store: new(mem.Store), Ephemeral: true,
		Hostname: name, ControlURL: t.network.control.URL, UserLogf: logger.Discard,
	}}
}

// up starts a node.
func (n *node) up(ctx context.Context) error {
	status, err := n.Up(ctx)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Hostname, err)
	}
	n.addr = status.TailscaleIPs[0]
	if n.client, err = n.LocalClient(); err != nil {
		return fmt.Errorf("node %s: %w", n.Hostname, err)
	}
	return nil
}

// awaitDirect pings the other node until the answer does not use the relay, and comes from via,
// if that is valid. The pings make magicsock look for a path.
func (n *node) awaitDirect(ctx context.Context, other netip.Addr, via netip.AddrPort) error {
	for {
		var last string
		switch way, err := n.ping(ctx, other); {
		case err != nil:
			last = err.Error()
		case way == "":
			last = "reached through the relay only"
		case via.IsValid() && way != via.String():
			return fmt.Errorf("node %s: %s was reached at %s, past the forwarder at %s", n.Hostname, other, way, via)
		default:
			return nil
		}
		select {
		case <-time.After(pingPause):
		case <-ctx.Done():
			return fmt.Errorf("node %s: no direct path to %s after %s: %s", n.Hostname, other, upTimeout, last)
		}
	}
}

// ping returns the address at which the other node answered; "" through the relay.
func (n *node) ping(ctx context.Context, other netip.Addr) (way string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	r, err := n.client.Ping(ctx, other, tailcfg.PingDisco)
	switch {
	case err != nil:
		return "", err
	case r.Err != "":
		return "", errors.New(r.Err)
	}
	return r.Endpoint, nil
}

// mostRelayed is how much a run may send through the relay, in bytes. Looking for better paths
// takes some hundred bytes from time to time. A bulk transfer that falls back to the relay
// exceeds this at once.
const mostRelayed = 1 << 20

// checkDirect returns an error if the load used the relay, which is not what is measured.
func (t *tailnet) checkDirect() error {
	if n := t.network.relayed() - t.relayed; n > mostRelayed {
		return fmt.Errorf("the direct path was lost: %d bytes went by the relay", n)
	}
	return nil
}
