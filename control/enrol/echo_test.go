package enrol

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// lossyPinger answers after its round trip, except for the first echoes: some cannot be sent, and
// others are lost.
type lossyPinger struct {
	rtt          time.Duration
	failed, lost int32
	sent         atomic.Int32
}

var errNoRoute = errors.New("no route")

func (p *lossyPinger) Ping(ctx context.Context, _ netip.Addr, _ int) (time.Duration, error) {
	n := p.sent.Add(1)
	if n <= p.failed {
		return 0, errNoRoute
	}
	if n <= p.failed+p.lost {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	answered := time.NewTimer(p.rtt)
	defer answered.Stop()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-answered.C:
		return p.rtt, nil
	}
}

func TestALostEchoIsSoonFollowedByAnother(t *testing.T) {
	const rtt = 30 * time.Millisecond
	for _, c := range []struct {
		what string
		with *lossyPinger
		want time.Duration
	}{
		{"nothing is lost", &lossyPinger{rtt: rtt}, rtt},
		{"the first is lost", &lossyPinger{rtt: rtt, lost: 1}, 130 * time.Millisecond},
		{"two are lost", &lossyPinger{rtt: rtt, lost: 2}, 330 * time.Millisecond},
		{"two cannot be sent", &lossyPinger{rtt: rtt, failed: 2}, 330 * time.Millisecond},
		{"the way is long", &lossyPinger{rtt: 900 * time.Millisecond}, 900 * time.Millisecond},
		{"and the first is lost", &lossyPinger{rtt: 900 * time.Millisecond, lost: 1}, time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				if err := echoUntil(ctx, c.with, peer.PublicKey{}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != c.want {
					t.Errorf("it took %s with %d echoes, want %s", took, c.with.sent.Load(), c.want)
				}
			})
		})
	}
}

func TestEchoesEndWithTheTimeGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		p := &lossyPinger{failed: 100}
		err := echoUntil(ctx, p, peer.PublicKey{})
		if want := "no echo was answered in 5s: " + errNoRoute.Error(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if took := time.Since(start); took != 5*time.Second || p.sent.Load() != 8 {
			t.Errorf("it took %s and %d echoes, want 5s and 8", took, p.sent.Load())
		}
	})
}
