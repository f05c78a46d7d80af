package probe

// windowSize is how far a counter may be behind the newest, in requests. Requests leave at most
// every 50 ms, so it spans 51 s: more than the delays of any two paths differ. While the ports of
// a relay are probed (path/sweep.go) it spans 0.25 s; what arrives later than that is
// sent again.
const windowSize = 1024

// window stores which counters were seen: a ring of bits, as in RFC 6479.
type window struct {
	top  uint64 // the highest seen
	bits [windowSize / 64]uint64
}

// take records a counter. fresh is false if it was seen before or is too old to tell; newest is
// whether it is the highest so far.
func (w *window) take(n uint64) (fresh, newest bool) {
	switch {
	case n > w.top:
		for i := range min(n-w.top, windowSize) {
			w.set(n-i, false)
		}
		w.top = n
		newest = true
	case w.top-n >= windowSize || w.has(n):
		return false, false
	}
	w.set(n, true)
	return true, newest
}

func (w *window) has(n uint64) bool { return w.bits[n/64%uint64(len(w.bits))]&(1<<(n%64)) != 0 }

func (w *window) set(n uint64, to bool) {
	if to {
		w.bits[n/64%uint64(len(w.bits))] |= 1 << (n % 64)
	} else {
		w.bits[n/64%uint64(len(w.bits))] &^= 1 << (n % 64)
	}
}
