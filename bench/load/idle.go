package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// idle measures the cost of one TCP connection on which nothing is sent. A byte after the window
// verifies that the subject still works.
func idle(ctx context.Context, spec Spec, ends Ends) (Result, error) {
	w := newWorkers()
	defer w.close()
	out, in, err := w.connect(ctx, ends)
	if err != nil {
		return Result{}, fmt.Errorf("first connection: %w", err)
	}
	r, err := Measure(spec, func() []uint64 { return nil }, w.failed)
	if err != nil {
		return Result{}, err
	}
	if err := w.sendByte(out, in); err != nil {
		return Result{}, fmt.Errorf("byte after the window: %w", err)
	}
	r.Bytes = 1
	return r, nil
}

// sendByte sends a byte from one end of a connection to the other.
func (w *workers) sendByte(out, in net.Conn) error {
	if err := in.SetReadDeadline(time.Now().Add(connectTimeout)); err != nil {
		return err
	}
	w.Go(func() {
		if _, err := out.Write([]byte{1}); err != nil {
			w.fail("send", err)
		}
	})
	_, err := io.ReadFull(in, make([]byte, 1))
	return err
}
