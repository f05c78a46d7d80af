package tunnel

import (
	"context"
	"fmt"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Acknowledge sends a peer an empty packet, which tells it that what it sent last has arrived. The
// device does so by itself after 10 s (whitepaper §6.5): an engine that is closed before would be
// called for 90 s by a peer that takes it for mute. It waits until something was sent to the peer,
// which is that packet if there is a session and nothing else is on its way, and ends with ctx,
// with the Engine, and when the peer is removed.
func (e *Engine) Acknowledge(ctx context.Context, k peer.PublicKey) error {
	before, look, err := e.sent(k)
	if err != nil {
		return fmt.Errorf("acknowledge what %s sent: %w", k, err)
	}
	if p := e.dev.LookupPeer(device.NoisePublicKey(k)); p != nil {
		p.SendKeepalive()
	}
	for {
		now, _, err := e.sent(k)
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

// sent reads again how many bytes a peer was sent, and gives how long to wait before they are
// read again.
func (e *Engine) sent(k peer.PublicKey) (bytes uint64, look time.Duration, err error) {
	r, err := e.readings.now()
	if err != nil {
		return 0, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stillLocked(k); err != nil {
		return 0, 0, err
	}
	for _, p := range r.state.Peers {
		if p.PublicKey == k {
			bytes = p.TxBytes
		}
	}
	return bytes, nextLook(r), nil
}
