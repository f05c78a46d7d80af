package chart

import (
	"math"
	"time"
)

// Bins divides the window that ends at now into n columns and returns the mean of each, NaN if
// nothing was measured. Columns begin at multiples of their duration, so that a point stays in its
// column as time passes. The last one may be incomplete.
func Bins(points Points, now time.Time, window time.Duration, n int) []float64 {
	if n <= 0 {
		return nil
	}
	b := newBinner(now, window, n)
	if points != nil {
		points(b.add)
	}
	return b.finish()
}

// binner sorts points into columns.
type binner struct {
	start, step, now int64 // milliseconds
	sums             []float64
	counts           []int
	// The last point: its column and where that ends, its time and rate.
	column int
	ends   int64
	at     int64
	value  float64
	known  bool
}

func newBinner(now time.Time, window time.Duration, n int) *binner {
	b := &binner{now: now.UnixMilli(), sums: make([]float64, n), counts: make([]int, n), column: -1}
	b.step = max(1, window.Milliseconds()/int64(n))
	last := b.now - ((b.now%b.step)+b.step)%b.step
	b.start = last - int64(n-1)*b.step
	b.ends = b.start
	return b
}

// add adds the next point; it is a yield function.
func (b *binner) add(at int64, rate float64) bool {
	if at > b.now {
		return false
	}
	if at < b.at {
		return true // out of order
	}
	if at >= b.ends {
		column := int((at - b.start) / b.step)
		b.hold(column)
		b.column, b.ends = column, b.start+int64(column+1)*b.step
	}
	b.at = at
	b.value, b.known = measured(rate)
	if b.column >= 0 && b.known {
		b.sums[b.column] += b.value
		b.counts[b.column]++
	}
	return true
}

// hold fills the columns between the last point and the column before to.
func (b *binner) hold(to int) {
	for i := b.column + 1; i < to && b.known; i++ {
		if b.start+int64(i)*b.step-b.at >= Hold.Milliseconds() {
			return
		}
		b.sums[i], b.counts[i] = b.value, 1
	}
}

// finish returns the means.
func (b *binner) finish() []float64 {
	b.hold(len(b.sums))
	for i, n := range b.counts {
		b.sums[i] /= float64(n) // NaN where there is none
	}
	return b.sums
}

// Figures summarize a series over a window: the newest measurement, the mean and the maximum, in
// bytes per second. Each is NaN if nothing was measured. Now is also NaN if the newest measurement
// is older than Hold.
type Figures struct{ Now, Mean, Max float64 }

// FiguresOf computes the Figures of the window that ends at now.
func FiguresOf(points Points, now time.Time, window time.Duration) Figures {
	f := Figures{math.NaN(), math.NaN(), math.NaN()}
	if points == nil {
		return f
	}
	end := now.UnixMilli()
	count := 0.0
	for at, rate := range points {
		if at > end {
			break
		}
		v, ok := measured(rate)
		if !ok || at < end-window.Milliseconds() {
			continue
		}
		if count++; count == 1 {
			f.Mean, f.Max = v, v
		}
		f.Mean += (v - f.Mean) / count
		f.Max = max(f.Max, v)
		f.Now = math.NaN()
		if end-at <= Hold.Milliseconds() {
			f.Now = v
		}
	}
	return f
}
