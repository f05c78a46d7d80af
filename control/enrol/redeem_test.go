package enrol

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/auth"
)

// Another joiner with the same ticket has taken the session, so that nothing is answered until the
// next handshake.
func TestAnUnansweredRedemptionDialsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := make(chan struct{})
		began := time.Now()
		_, err := redeemOnce(t.Context(), func(ctx context.Context) (auth.Redemption, error) {
			select {
			case <-dialled:
				return auth.Redemption{}, nil
			case <-ctx.Done():
				return auth.Redemption{}, ctx.Err()
			}
		}, func() { close(dialled) })
		if took := time.Since(began); err != nil || took > redialAfter {
			t.Errorf("after %s: %v; want an answer within %s", took, err, redialAfter)
		}
	})
}
