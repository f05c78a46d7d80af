package tunnel

import (
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// leastLook is the least time between two readings that look for what the device was asked to do.
const leastLook = 2 * time.Millisecond

// Handshake starts a fresh handshake as Redial does, waits until it is completed, and gives
// how long that took. It is the device that tells when it was, not how often Handshake looks:
// with many peers it does so less often. It ends with ctx, with the Engine, and when the
// peer is removed.
func (e *Engine) Handshake(ctx context.Context, k peer.PublicKey) (time.Duration, error) {
	before, _, err := e.shaken(k)
	if err != nil {
		return 0, fmt.Errorf("handshake with %s: %w", k, err)
	}
	start := time.Now()
	if err := e.Redial(k); err != nil {
		return 0, err
	}
	for {
		at, look, err := e.shaken(k)
		if err != nil {
			return 0, fmt.Errorf("handshake with %s: %w", k, err)
		}
		switch took := at.Sub(start.Round(0)); { // Handshakes are dated by the clock on the wall.
		case at.Equal(before):
		case took <= 0:
			before = at // It was completed just before, and given up by the dial.
		default:
			return min(took, time.Since(start)), nil
		}
		t := time.NewTimer(look)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, fmt.Errorf("no answer to the handshake: %w", context.Cause(ctx))
		case <-e.closing:
			t.Stop()
			return 0, fmt.Errorf("handshake with %s: %w", k, ErrClosed)
		}
	}
}

// shaken reads again when the last handshake with a peer was completed, zero if none was, and
// gives how long to wait before it is read again.
func (e *Engine) shaken(k peer.PublicKey) (at time.Time, look time.Duration, err error) {
	r, err := e.readings.now()
	if err != nil {
		return time.Time{}, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stillLocked(k); err != nil {
		return time.Time{}, 0, err
	}
	e.observeNew(time.Now(), r)
	return e.peers[k].machine.LastHandshake, nextLook(r), nil
}

// nextLook is how long to wait for the device to have done something, before it is read again.
func nextLook(r reading) time.Duration { return max(leastLook, serves(len(r.state.Peers))/20) }
