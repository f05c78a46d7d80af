package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// connectTimeout bounds the time until a connection is up, including the tunnel's handshake.
const connectTimeout = time.Minute

// Ends are the two sides of a subject. Connections dialled at one are accepted at the other.
type Ends struct {
	Listener net.Listener
	Dial     func(context.Context) (net.Conn, error)
	// ListenPacket opens the UDP socket of the accepting side, once. DialPacket opens one of the
	// dialling side that is connected to it. Both are nil for a subject without UDP.
	ListenPacket func() (net.PacketConn, error)
	DialPacket   func(context.Context) (net.Conn, error)
	// Workloads are the ends for other traffic beside the load; nil if the subject has none.
	Workloads *Ends
	// Close closes the subject after its last connection. It may be nil.
	Close func() error
	// Began is the time from which the start of the ends counts; zero means the call of the
	// subject. A subject that must first start things that a user would already have running sets
	// a later time.
	Began time.Time
	// Bearers are the processes that carry the subject, if not this one.
	Bearers
}

// Run applies the load spec.Load to the ends, measures, and closes them.
func Run(ctx context.Context, spec Spec, ends Ends) (r Result, err error) {
	defer func() {
		_ = ends.Listener.Close() // the load may have closed it already
		if ends.Close != nil {
			err = errors.Join(err, ends.Close())
		}
	}()
	defer func() { r.with(ends.Values) }()
	spec.bearers = &ends.Bearers
	switch spec.Load {
	case "", LoadStreams:
		return bulk(ctx, spec, ends)
	case LoadDatagrams:
		return datagrams(ctx, spec, ends)
	case LoadRequests:
		return requests(ctx, spec, ends)
	case LoadConnections:
		return connections(ctx, spec, ends)
	case LoadWatches:
		return watches(ctx, spec, ends)
	case LoadFirstByte:
		return firstByte(ctx, ends)
	case LoadIdle:
		return idle(ctx, spec, ends)
	}
	return Result{}, fmt.Errorf("no load %q", spec.Load)
}

// wake makes one connection and closes it, so that the tunnel is up for the load. Otherwise the
// handshake would be part of the first round-trip time that TCP measures, from which it derives
// its timers and buffers.
func wake(ctx context.Context, ends Ends) error {
	out, in, err := connect(ctx, ends)
	if err != nil {
		return fmt.Errorf("first connection: %w", err)
	}
	out.Close()
	in.Close()
	return nil
}

// connect makes a connection and returns both ends. On an error it closes the listener: nothing
// else ends the accepting goroutine.
func connect(ctx context.Context, ends Ends) (out, in net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	type accepted struct {
		conn net.Conn
		err  error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := ends.Listener.Accept()
		got <- accepted{c, err}
	}()
	giveUp := func(err error) (net.Conn, net.Conn, error) {
		err = errors.Join(err, ends.Listener.Close())
		if a := <-got; a.conn != nil {
			a.conn.Close()
		}
		if out != nil {
			out.Close()
		}
		return nil, nil, err
	}
	if out, err = ends.Dial(ctx); err != nil {
		out = nil // it may hold a nil pointer of the subject's type
		return giveUp(fmt.Errorf("dial: %w", err))
	}
	select {
	case a := <-got:
		if a.err != nil {
			out.Close()
			return nil, nil, fmt.Errorf("accept: %w", a.err)
		}
		return out, a.conn, nil
	case <-ctx.Done():
		return giveUp(fmt.Errorf("accept: %w", ctx.Err()))
	}
}
