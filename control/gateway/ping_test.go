package gateway_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// A hub with more than 16 peers shares readings of its tunnel. A ping of WireGuard must not
// take an older handshake for its own, nor the age of a reading for a round trip.
func TestPingOfWireGuardAmongManyPeersIsARoundTrip(t *testing.T) {
	w := newWorld(t)
	w.peer()
	for i := range 20 {
		stock := api.Peer{Name: fmt.Sprintf("router-%d", i), PublicKey: newKey(t).Public().String(), Stock: true,
			AllowedIPs: []string{fmt.Sprintf("10.9.0.%d/32", i)}}
		if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: stock}); err != nil {
			t.Fatal(err)
		}
	}
	const roundTrip = 20 * time.Millisecond // of the lab's lines
	for seq, timed := 0, false; !timed; seq++ {
		begin := time.Now()
		r, err := w.Cloud.Gateway.Ping(w.ctx, "edge", api.PingRequest{Layer: "wg", Seq: seq})
		if err != nil {
			t.Fatal(err)
		}
		if r.Error != "" { // On a busy machine one may take too long, or cross with one of edge's.
			t.Logf("ping %d: %s", seq, r.Error)
			continue
		}
		rtt := time.Duration(r.RTTSeconds * float64(time.Second))
		if rtt > time.Since(begin) {
			t.Errorf("ping %d: the handshake took %v, longer than the %v that were waited", seq, rtt, time.Since(begin))
		}
		timed = rtt >= roundTrip // less is a handshake that edge had begun
	}
}
