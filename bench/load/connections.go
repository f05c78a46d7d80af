package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// UnitConnections is the number of connections made, used and closed each second.
const UnitConnections = "conns/s"

// connections makes TCP connections from the dialling end with spec.Streams clients (0 means 1).
// Each client makes one after the other: connect, send a byte, receive a byte, close. It measures
// the number of connections and how long each takes until its byte is back.
func connections(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	if err := wake(ctx, ends); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := newWorkers()
	defer func() {
		w.closing.Store(true) // before the errors that this causes
		cancel()
		_ = ends.Listener.Close()
		w.close()
	}()
	c := calls{delays: newDelays(), ends: ends}
	w.Go(func() { c.accept(w) })
	for range max(spec.Streams, 1) {
		w.Go(func() {
			for !w.closing.Load() {
				if err := c.one(ctx, w); err != nil {
					w.fail("connection", err)
					return
				}
			}
		})
	}
	r, win, err := measure(spec, func() []uint64 { return []uint64{c.bytes.Load()} }, w.failed)
	if err != nil {
		return Result{}, err
	}
	sorted := c.delays.of(win)
	r.with(map[string]float64{UnitConnections: float64(len(sorted)) / r.Seconds})
	quantiles(r.Values, sorted)
	return r, nil
}

// calls are the connections of a run.
type calls struct {
	delays *delays
	bytes  atomic.Uint64 // bytes that came back
	ends   Ends
}

// one makes a connection and closes it.
func (c *calls) one(ctx context.Context, w *workers) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.ends.Dial(ctx)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	if err := conn.SetDeadline(start.Add(connectTimeout)); err != nil {
		return errors.Join(err, conn.Close())
	}
	w.own(conn)
	defer w.closed(conn)
	b := []byte{1}
	if _, err := conn.Write(b); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	c.delays.add(start, time.Since(start))
	c.bytes.Add(1)
	return nil
}

// accept accepts connections until the listener is closed.
func (c *calls) accept(w *workers) {
	for {
		conn, err := c.ends.Listener.Accept()
		if err != nil {
			w.fail("accept", err)
			return
		}
		w.own(conn)
		w.Go(func() { echo(conn, w) })
	}
}

// echo sends a byte back, and closes after the other end does.
func echo(conn net.Conn, w *workers) {
	defer w.closed(conn)
	b := make([]byte, 1)
	for {
		_, err := io.ReadFull(conn, b)
		if err == nil {
			_, err = conn.Write(b)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.fail("echo", err)
			}
			return
		}
	}
}
