package gateway

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel"
	"github.com/postern-dev/postern/tunnel/peer"
)

// rateWindow is the averaging window of the throughput: long enough to smooth TCP's bursts, short
// enough that a screen refreshed every second shows when a transfer ends.
const rateWindow = 3 * time.Second

// rates turns byte counters into bytes per second. It is safe for concurrent use.
type rates struct {
	mu      sync.Mutex
	samples map[peer.PublicKey][]sample
}

type sample struct {
	at     time.Time
	rx, tx uint64
}

func newRates() *rates { return &rates{samples: make(map[peer.PublicKey][]sample)} }

// observe records the counters at now and forgets removed peers.
func (r *rates) observe(now time.Time, stats map[peer.PublicKey]tunnel.PeerStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.samples {
		if _, ok := stats[k]; !ok {
			delete(r.samples, k)
		}
	}
	for k, s := range stats {
		list := r.samples[k]
		if n := len(list); n > 0 && (s.RxBytes < list[n-1].rx || s.TxBytes < list[n-1].tx) {
			list = nil // the peer was removed and added again: its counters restarted
		}
		past := 0
		for len(list) > past+1 && now.Sub(list[past+1].at) >= rateWindow {
			past++
		}
		list = slices.Delete(list, 0, past)
		r.samples[k] = append(list, sample{at: now, rx: s.RxBytes, tx: s.TxBytes})
	}
}

// of returns the peer's throughput over the window in bytes per second; 0 before the second sample.
func (r *rates) of(k peer.PublicKey) (rx, tx float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.samples[k]
	if len(list) < 2 {
		return 0, 0
	}
	first, last := list[0], list[len(list)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	return float64(last.rx-first.rx) / seconds, float64(last.tx-first.tx) / seconds
}
