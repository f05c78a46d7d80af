package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// connectTimeout bounds the time until a connection is up, the tunnel's handshake included.
const connectTimeout = time.Minute

// Ends are the two sides of a subject: what is dialled here is accepted there.
type Ends struct {
	Listener net.Listener
	Dial     func(context.Context) (net.Conn, error)
	// ListenPacket opens the UDP socket of the accepting side, once, and DialPacket one
	// of the dialling side that is connected to it. Both are nil for a subject that
	// carries no UDP.
	ListenPacket func() (net.PacketConn, error)
	DialPacket   func(context.Context) (net.Conn, error)
	// Workloads are where other traffic goes, beside the load; nil for a subject that has no such
	// ends.
	Workloads *Ends
	// Close ends the subject after its last connection. It may be nil.
	Close func() error
	// Began is when bringing the ends up began: before the subject was asked for them,
	// unless the subject says otherwise, because it had to prepare something that a user
	// has running.
	Began time.Time
	// Bearers are the processes that bear the subject, when this one does not.
	Bearers
}

// Run fills the ends with what spec.Load names, measures what arrives, and closes them.
func Run(ctx context.Context, spec Spec, ends Ends) (r Result, err error) {
	defer func() {
		_ = ends.Listener.Close() // Again, when the load has closed it.
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

// wake connects once and hangs up, so that the load finds a tunnel that is up: a handshake
// would count into the first stream's round-trip time, by which TCP sets itself up.
func wake(ctx context.Context, ends Ends) error {
	out, in, err := connect(ctx, ends)
	if err != nil {
		return fmt.Errorf("first connection: %w", err)
	}
	out.Close()
	in.Close()
	return nil
}

// connect makes a connection and returns its two ends. When it fails the listener is
// closed, since nothing else ends the goroutine that accepts.
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
		out = nil // It may hold a nil pointer of the subject's type.
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
