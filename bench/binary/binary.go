// Package binary measures what a user runs: two postern processes, each with a configuration
// file, joined by a ticket. One offers a named TCP service, for which the other has a local
// listener.
//
// # Path of the load
//
//	load → kernel TCP → local listener → gateway → UDP on loopback → gateway → kernel TCP → load
//
// The service is the load's own listener. A gateway also checks from time to time that its
// services answer, with a connection that it closes at once. So every connection of the load
// begins with one byte by which the listener recognises it.
//
// # Accounting
//
// Processor time and memory are those of the two gateways together, without the load's. Bytes on
// the wire are those of WireGuard's messages as the gateways count them, without UDP and IP
// headers (28 or 48 bytes a packet).
package binary

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/postern-dev/postern/bench/limits"
	"github.com/postern-dev/postern/bench/load"
)

// service is the named service that receives the load.
const service = "bench"

// UnitJoin is the time, in seconds, from the start of `postern join` until the peer is connected.
const UnitJoin = "join-sec"

// startTimeout bounds the start of a gateway and the join, with half a core each.
const startTimeout = 60 * time.Second

// Subject starts two gateways of spec.Program on loopback, each within spec.CPUs and spec.Memory.
// The ends count from the call of `postern join`: a user's gateways run before that.
func Subject(ctx context.Context, spec load.Spec) (load.Ends, error) {
	dir, err := os.MkdirTemp("", "pb") // short: a socket's path holds 107 bytes
	if err != nil {
		return load.Ends{}, fmt.Errorf("make folder for two gateways: %w", err)
	}
	p := &pair{dir: dir}
	ends, err := p.start(ctx, spec)
	if err != nil {
		return load.Ends{}, errors.Join(err, p.close())
	}
	return ends, nil
}

// pair is two gateways and the service between them.
type pair struct {
	dir               string
	service           net.Listener
	serving, dialling *gateway
}

func (p *pair) start(ctx context.Context, spec load.Spec) (load.Ends, error) {
	if spec.Program == "" {
		return load.Ends{}, errors.New("which postern? The run was not told")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var lc net.ListenConfig
	var err error
	if p.service, err = lc.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return load.Ends{}, fmt.Errorf("listen as the service: %w", err)
	}
	port, err := freePort(ctx)
	if err != nil {
		return load.Ends{}, err
	}
	l := limits.Limits{CPUs: spec.CPUs, Memory: spec.Memory}
	p.serving, err = start(p.dir, spec.Program, l, configuration{
		name: "serving", port: port, mtu: spec.MTU, service: p.service.Addr().String(),
	})
	if err != nil {
		return load.Ends{}, err
	}
	p.dialling, err = start(p.dir, spec.Program, l, configuration{name: "dialling", mtu: spec.MTU})
	if err != nil {
		return load.Ends{}, err
	}
	for _, g := range []*gateway{p.serving, p.dialling} {
		if err := g.up(ctx); err != nil {
			return load.Ends{}, err
		}
	}
	return p.join(ctx, spec.MTU)
}

// join makes a ticket and redeems it, as users do. If an overlay MTU is requested, it is in
// effect on return.
func (p *pair) join(ctx context.Context, mtu int) (load.Ends, error) {
	ticket, err := p.serving.command(ctx, "invite", "--allow", service)
	if err != nil {
		return load.Ends{}, err
	}
	began := time.Now()
	if _, err := p.dialling.command(ctx, "join", ticket, "--local", service+"=127.0.0.1:0"); err != nil {
		return load.Ends{}, err
	}
	took := time.Since(began)
	if mtu > 0 {
		for _, g := range []*gateway{p.serving, p.dialling} {
			if err := g.carries(ctx, mtu); err != nil {
				return load.Ends{}, err
			}
		}
	}
	local, err := p.dialling.local(ctx, service)
	if err != nil {
		return load.Ends{}, err
	}
	return load.Ends{
		Listener: load.Greeted{Listener: p.service},
		Dial:     func(ctx context.Context) (net.Conn, error) { return load.DialGreeting(ctx, local) },
		Close:    p.close,
		Began:    began,
		Bearers: load.Bearers{
			Processes: []int{p.serving.pid(), p.dialling.pid()},
			Counters:  p.counters,
			Values:    map[string]float64{UnitJoin: took.Seconds()},
		},
	}, nil
}

// counters returns the sums of both gateways' counters, and of their groups'.
func (p *pair) counters() (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	out := map[string]float64{}
	for _, g := range []*gateway{p.serving, p.dialling} {
		if err := g.count(ctx, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// close stops everything, also after a failed start.
func (p *pair) close() error {
	var errs []error
	if p.service != nil {
		_ = p.service.Close() // the load may have closed it already
	}
	var running []*gateway
	for _, g := range []*gateway{p.dialling, p.serving} {
		if g != nil {
			g.terminate()
			running = append(running, g)
		}
	}
	for _, g := range running {
		errs = append(errs, g.close())
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}

// freePort returns an unused UDP port. The gateway announces its port, so it must be known before
// the start.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	c, err := lc.ListenPacket(ctx, "udp", ":0")
	if err != nil {
		return 0, fmt.Errorf("find a free UDP port: %w", err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port, nil
}
