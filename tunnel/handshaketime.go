package tunnel

import (
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// minPoll is the least time between two readings that wait for the device to act.
const minPoll = 2 * time.Millisecond

// Handshake starts a new handshake like Redial, waits for it to complete, and returns how long it
// took. The device's own timestamp decides, so the result does not depend on how often Handshake
// looks, which is rarer with many peers. It ends when ctx ends, the Engine closes or the peer is
// removed.
func (e *Engine) Handshake(ctx context.Context, k peer.PublicKey) (time.Duration, error) {
	before, _, err := e.readHandshake(k)
	if err != nil {
		return 0, fmt.Errorf("handshake with %s: %w", k, err)
	}
	start := time.Now()
	if err := e.Redial(k); err != nil {
		return 0, err
	}
	for {
		at, look, err := e.readHandshake(k)
		if err != nil {
			return 0, fmt.Errorf("handshake with %s: %w", k, err)
		}
		switch took := at.Sub(start.Round(0)); { // handshakes are dated by the wall clock
		case at.Equal(before):
		case took <= 0:
			before = at // completed just before, and discarded by the dial
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

// readHandshake reads again when the last handshake with a peer completed, zero if never, and
// returns how long to wait before the next reading.
func (e *Engine) readHandshake(k peer.PublicKey) (at time.Time, look time.Duration, err error) {
	r, err := e.readings.now()
	if err != nil {
		return time.Time{}, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkPeerLocked(k); err != nil {
		return time.Time{}, 0, err
	}
	e.observeNew(time.Now(), r)
	return e.peers[k].machine.LastHandshake, pollInterval(r), nil
}

// pollInterval is how long to wait for the device to act before reading it again.
func pollInterval(r reading) time.Duration { return max(minPoll, sharedFor(len(r.state.Peers))/20) }
