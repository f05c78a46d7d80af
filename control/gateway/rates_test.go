package gateway

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestRatesCoverTheLastSecondsOnly(t *testing.T) {
	k := peer.PublicKey{1}
	r := newRates()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(second int, rx, tx uint64) {
		r.observe(start.Add(time.Duration(second)*time.Second), map[peer.PublicKey]tunnel.PeerStats{k: {Stats: peer.Stats{RxBytes: rx, TxBytes: tx}}})
	}
	want := func(when string, rx, tx float64) {
		t.Helper()
		if gotRx, gotTx := r.of(k); gotRx != rx || gotTx != tx {
			t.Errorf("%s: got %v/%v bytes/s, want %v/%v", when, gotRx, gotTx, rx, tx)
		}
	}
	at(0, 0, 0)
	want("after one sample", 0, 0)
	at(1, 1000, 10)
	want("after one second", 1000, 10)
	for s := 2; s <= 10; s++ {
		at(s, 1000, 10) // idle since
	}
	want("after nine idle seconds", 0, 0)
	at(11, 4000, 10)
	want("with a burst inside the window", 1000, 0)
	at(12, 0, 0) // the peer was removed and joined again
	want("after the counters began again", 0, 0)
	r.observe(start.Add(13*time.Second), nil)
	if len(r.samples) != 0 {
		t.Errorf("%d removed peers are remembered", len(r.samples))
	}
}
