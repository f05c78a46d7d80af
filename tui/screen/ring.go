package screen

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// keep is how long samples are kept, and capacity their number: one a second.
const (
	keep     = time.Hour
	capacity = int(keep / time.Second)
)

// sample is a peer's traffic at one moment, in 16 bytes: 1,000 peers for an hour take 58 MB.
type sample struct {
	unixMilli int64
	// Bytes per second since the sample before.
	rx, tx float32
}

// ring holds the samples of one peer, the oldest first. It grows to twice its capacity and then
// drops the older half, so that samples stay contiguous.
type ring struct {
	samples []sample
	// The counters of the last sample.
	rxBytes, txBytes uint64
}

// add records a peer's counters. The rates are averages since the last sample, so that a pause
// loses nothing. For the first sample, and for a counter that decreased (a restarted peer), they
// are the gateway's.
func (r *ring) add(at time.Time, p *api.PeerStatus) {
	s := sample{at.UnixMilli(), rate(p.RxBytesPerSecond), rate(p.TxBytesPerSecond)}
	if n := len(r.samples); n > 0 {
		seconds := float32(s.unixMilli-r.samples[n-1].unixMilli) / 1000
		if seconds <= 0 {
			return
		}
		if p.RxBytes >= r.rxBytes && p.TxBytes >= r.txBytes {
			s.rx, s.tx = float32(p.RxBytes-r.rxBytes)/seconds, float32(p.TxBytes-r.txBytes)/seconds
		}
	}
	r.rxBytes, r.txBytes = p.RxBytes, p.TxBytes
	if len(r.samples) >= 2*capacity {
		r.samples = append(r.samples[:0], r.samples[capacity:]...)
	}
	r.samples = append(r.samples, s)
}

// rate bounds a gateway's rate between 0 and more than any link has, so that sums stay finite.
func rate(told float64) float32 {
	if told > 0 { // false for NaN
		return float32(min(told, 1e18))
	}
	return 0
}

// together sums the samples of several peers, at each moment those that exist. The samples of one
// snapshot have the same time.
func together(peers [][]sample) []sample {
	var sums []sample
	for _, samples := range peers {
		i, known := 0, len(sums)
		for _, s := range samples {
			for i < known && sums[i].unixMilli < s.unixMilli {
				i++
			}
			if i < known && sums[i].unixMilli == s.unixMilli {
				sums[i].rx, sums[i].tx = sums[i].rx+s.rx, sums[i].tx+s.tx
			} else {
				sums = append(sums, s)
			}
		}
		if len(sums) > known {
			slices.SortFunc(sums, func(a, b sample) int { return cmp.Compare(a.unixMilli, b.unixMilli) })
		}
	}
	return sums
}

// since returns the samples after a time, at most an hour of them.
func (r *ring) since(t time.Time) []sample {
	from := max(0, len(r.samples)-capacity)
	i := sort.Search(len(r.samples)-from, func(i int) bool { return r.samples[from+i].unixMilli > t.UnixMilli() })
	return r.samples[from+i:]
}
