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
	// upTimeout bounds the time until both nodes are up and reach each other without the
	// relay, on a busy machine. On an idle one it takes a second or two.
	upTimeout = 45 * time.Second
	// pingTimeout bounds one question how the other node is reached: it is lost when a node
	// has no connection to the relay yet, and takes a round trip, of 200 ms at most in the
	// WAN scenarios, otherwise. pingPause is the time between two questions.
	pingTimeout = 500 * time.Millisecond
	pingPause   = 20 * time.Millisecond
)

// tailnet is two nodes, and the network that they need. All of it ends with the process:
// closing a node resets every connection that it had, also those in TIME-WAIT, and waits
// for ever when there are more of them than fit its queue of packets, which nobody empties
// any more.
type tailnet struct {
	network *network
	nodes   []*node
	began   time.Time // When there was a network, and nodes began to come up.
	relayed int64     // Bytes that had gone by the relay when the path was direct.
}

// node is one of them.
type node struct {
	*tsnet.Server
	client *local.Client
	addr   netip.Addr // In the tailnet.
}

// start brings the network and the nodes up. With a valid via they reach each other by a
// forwarder there.
func (t *tailnet) start(ctx context.Context, via netip.AddrPort) (err error) {
	// Nodes write log buffers, which they keep open. Their state is in memory.
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

// awaitDirect waits until both nodes reach each other without the relay, and at via, if
// that is valid.
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

// up brings a node up.
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

// awaitDirect asks how the other node is reached until it is without the relay: at via, if
// that is valid. Asking is what makes magicsock look for a way.
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

// ping tells at which address the other node answered; none if through the relay.
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

// mostRelayed is what a run may send by the relay, in bytes: looking for better paths
// costs some hundred bytes now and then, a bulk transfer that falls back to the relay
// passes this in a blink.
const mostRelayed = 1 << 20

// checkDirect fails when the load went by the relay, which is no part of what is measured.
func (t *tailnet) checkDirect() error {
	if n := t.network.relayed() - t.relayed; n > mostRelayed {
		return fmt.Errorf("the direct path was lost: %d bytes went by the relay", n)
	}
	return nil
}
