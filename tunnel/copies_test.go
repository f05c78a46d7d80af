package tunnel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Each handshake message arrives several times at once, as if over several paths. The device
// processes some of them concurrently and must still make only one session.
func TestCopiesMakeOneSession(t *testing.T) {
	const rounds, copies = 60, 3
	synctest.Test(t, func(t *testing.T) {
		n, a, b, begin := dialBoth(t, func(*memory, *node, *node) {})
		handshaken(a, b, begin)
		connect(a, b)
		n.delay(nil)
		n.repeat(func(m []byte) int {
			if m[0] == 1 || m[0] == 2 {
				return copies
			}
			return 1
		})
		for round := range rounds {
			time.Sleep(6 * time.Second) // virtual: the device sends initiations 5 s apart
			from, to := a, b
			if round%2 == 1 {
				from, to = b, a
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begin := time.Now()
			if _, err := from.Handshake(ctx, to.PublicKey()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			cancel()
			from.send(to, "hello")
			to.expect(from, "hello")
			to.send(from, "hello")
			from.expect(to, "hello")
			if took := time.Since(begin); took > 6*oneWay {
				t.Errorf("round %d: both ways work after %v, want three round trips of %v at most", round, took, 2*oneWay)
			}
		}
	})
}
