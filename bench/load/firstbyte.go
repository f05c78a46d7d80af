package load

import (
	"context"
	"fmt"
	"time"
)

// UnitFirstByte is the time from nothing to the first byte, in seconds.
const UnitFirstByte = "first-byte-sec"

// firstByte measures how long it takes from nothing until a byte has come through: keys,
// sockets, stacks, the handshake and a TCP connection. It happens once in a run, so there
// is neither a warm-up nor a window; processor time is all that there was.
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
