package load

import (
	"context"
	"fmt"
	"time"
)

// UnitFirstByte is the time from the start of the subject to the first byte, in seconds.
const UnitFirstByte = "first-byte-sec"

// firstByte measures the time from the start of the subject until a byte has arrived: keys,
// sockets, stacks, handshake and a TCP connection. This happens once in a run, so there is no
// warm-up and no window. Processor time is that of the whole run.
func firstByte(ctx context.Context, ends Ends) (Result, error) {
	w := newWorkers()
	defer w.close()
	out, in, err := w.connect(ctx, ends)
	if err != nil {
		return Result{}, fmt.Errorf("first connection: %w", err)
	}
	if err := w.sendByte(out, in); err != nil {
		return Result{}, fmt.Errorf("first byte: %w", err)
	}
	took := time.Since(ends.Began).Seconds()
	user, system := ends.processorTime()
	m := ends.memory()
	return Result{
		Bytes: 1, Seconds: took, Values: map[string]float64{UnitFirstByte: took},
		UserSeconds: user.Seconds(), SystemSeconds: system.Seconds(), PeakRSS: m.peak, PeakAnon: m.anon,
	}, nil
}
