package enrol

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// echoWait is how long to wait for each echo while a tunnel comes up. One may be lost during a
// handshake, so the next one follows after firstEchoPause, and others after pauses that double up
// to echoWait. With pauses of a second, two or three of 21 joins through NATs took a second longer.
const (
	firstEchoPause = 100 * time.Millisecond
	echoWait       = time.Second
	// echoPayload makes the packet as long as ping(8)'s.
	echoPayload = 56
)

// echoUntil sends echoes to a peer until one is answered, which needs a tunnel in both directions,
// or ctx ends. Its error says for how long, and why the last echo could not be sent.
func echoUntil(ctx context.Context, stack pinger, k peer.PublicKey) error {
	var echoes sync.WaitGroup
	defer echoes.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error)
	began := time.Now()
	var last error
	for pause := firstEchoPause; ; pause = min(2*pause, echoWait) {
		echoes.Go(func() {
			once, end := context.WithTimeout(ctx, echoWait)
			defer end()
			_, err := stack.Ping(once, peer.OverlayAddr(k), echoPayload)
			select {
			case answers <- err:
			case <-ctx.Done():
			}
		})
		for next := time.After(pause); next != nil; {
			select {
			case err := <-answers:
				if err == nil {
					return nil
				}
				last = err
			case <-next:
				next = nil
			case <-ctx.Done():
				err := fmt.Errorf("no echo was answered in %s", time.Since(began).Round(time.Second/10))
				if last == nil || errors.Is(last, context.DeadlineExceeded) {
					return err
				}
				return fmt.Errorf("%w: %w", err, last)
			}
		}
	}
}

// pinger sends an echo and waits for its answer, as a [netstack.Stack] does.
type pinger interface {
	Ping(ctx context.Context, to netip.Addr, payload int) (time.Duration, error)
}
