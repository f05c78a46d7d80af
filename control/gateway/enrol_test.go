package gateway

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// lossyPinger answers after its round trip, but for the first echoes, which are lost.
type lossyPinger struct {
	rtt        time.Duration
	lost, sent int
}

func (p *lossyPinger) Ping(ctx context.Context, _ netip.Addr, _ int) (time.Duration, error) {
	p.sent++
	answered := time.NewTimer(p.rtt)
	defer answered.Stop()
	if p.sent <= p.lost {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-answered.C:
		return p.rtt, nil
	}
}

func TestALostEchoIsSoonFollowedByAnother(t *testing.T) {
	for _, c := range []struct {
		what string
		with lossyPinger
		want time.Duration
	}{
		{"nothing is lost", lossyPinger{rtt: 30 * time.Millisecond}, 30 * time.Millisecond},
		{"the first is lost", lossyPinger{rtt: 30 * time.Millisecond, lost: 1}, 130 * time.Millisecond},
		{"two are lost", lossyPinger{rtt: 30 * time.Millisecond, lost: 2}, 330 * time.Millisecond},
		{"the way is long", lossyPinger{rtt: 900 * time.Millisecond}, 2400 * time.Millisecond},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				if err := echoUntil(t.Context(), &c.with, peer.PublicKey{}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != c.want {
					t.Errorf("it took %s with %d echoes, want %s", took, c.with.sent, c.want)
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
		p := &lossyPinger{lost: 100}
		if err := echoUntil(ctx, p, peer.PublicKey{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		if took := time.Since(start); took != 5*time.Second || p.sent != 8 {
			t.Errorf("it took %s and %d echoes, want 5s and 8", took, p.sent)
		}
	})
}
