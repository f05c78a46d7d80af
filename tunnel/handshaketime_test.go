package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A handshake takes one round trip, however old a shared reading of many peers may be.
func TestHandshakeTakesOneRoundTrip(t *testing.T) {
	for _, others := range []int{0, 19, 219} {
		t.Run(fmt.Sprint(others+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cloud, edge := pair(t)
				cloud.set(append(crowd(t, others), edge.managed("edge", edge.addr))...)
				edge.set(cloud.managed("cloud"))
				connect(cloud, edge)
				for range 5 {
					time.Sleep(777 * time.Millisecond) // virtual
					before := n.initiationsTo(cloud.addr, edge.addr)
					cloud.Snapshot() // serves for a while
					took, err := cloud.Handshake(t.Context(), edge.PublicKey())
					if err != nil || took != 2*oneWay {
						t.Errorf("a handshake took %v (%v), want %v", took, err, 2*oneWay)
					}
					if sent := n.initiationsTo(cloud.addr, edge.addr) - before; sent != 1 {
						t.Errorf("%d initiations were sent, want 1", sent)
					}
				}
			})
		})
	}
}

func TestHandshakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, cloud, edge := pair(t)
		others := crowd(t, 19)
		cloud.set(append(others, edge.as("edge", edge.addr))...)
		edge.set(cloud.as("cloud"))
		connect(cloud, edge)
		n.block(func(_, _ netip.AddrPort) bool { return true })

		if _, err := cloud.Handshake(t.Context(), newKey(t).Public()); !errors.Is(err, ErrUnknownPeer) {
			t.Errorf("with an unknown peer: got %v, want %v", err, ErrUnknownPeer)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := cloud.Handshake(ctx, edge.PublicKey()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: took %v, got %v, want %v", took, err, context.DeadlineExceeded)
		}
		for _, end := range []struct {
			by   func()
			want error
		}{
			{func() { cloud.set(others...) }, ErrUnknownPeer},
			{cloud.stop, ErrClosed},
		} {
			cloud.set(append(others, edge.as("edge", edge.addr))...)
			failed := make(chan error)
			go func() {
				_, err := cloud.Handshake(t.Context(), edge.PublicKey())
				failed <- err
			}()
			time.Sleep(time.Second) // virtual
			begin := time.Now()
			end.by()
			if err := <-failed; !errors.Is(err, end.want) || time.Since(begin) > minPoll {
				t.Errorf("got %v after %v, want %v at once", err, time.Since(begin), end.want)
			}
		}
	})
}
