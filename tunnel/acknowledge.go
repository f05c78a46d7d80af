package tunnel

import (
	"context"
	"fmt"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Acknowledge sends a peer an empty packet, which tells it that its last packet arrived. The device
// does so itself only after 10 s (whitepaper §6.5). If the engine closes before that, the peer
// keeps retrying for 90 s. Acknowledge returns once anything was sent to the peer: with a session
// and nothing else queued, that is the empty packet. It also returns when ctx ends, the Engine
// closes or the peer is removed.
func (e *Engine) Acknowledge(ctx context.Context, k peer.PublicKey) error {
	before, look, err := e.readSent(k)
	if err != nil {
		return fmt.Errorf("acknowledge what %s sent: %w", k, err)
	}
	if p := e.dev.LookupPeer(device.NoisePublicKey(k)); p != nil {
		p.SendKeepalive()
	}
	for {
		now, _, err := e.readSent(k)
		if err != nil {
			return fmt.Errorf("acknowledge what %s sent: %w", k, err)
		}
		if now != before {
			return nil
		}
		t := time.NewTimer(look)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("acknowledge what %s sent: %w", k, context.Cause(ctx))
		case <-e.closing:
			t.Stop()
			return fmt.Errorf("acknowledge what %s sent: %w", k, ErrClosed)
		}
	}
}

// readSent reads the number of bytes sent to a peer again, and returns how long to wait before the
// next reading.
func (e *Engine) readSent(k peer.PublicKey) (bytes uint64, look time.Duration, err error) {
	r, err := e.readings.now()
	if err != nil {
		return 0, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkPeerLocked(k); err != nil {
		return 0, 0, err
	}
	for _, p := range r.state.Peers {
		if p.PublicKey == k {
			bytes = p.TxBytes
		}
	}
	return bytes, pollInterval(r), nil
}
