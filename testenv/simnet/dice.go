package simnet

import (
	"math/bits"
	"net/netip"
)

// flowCounters is the number of counters of a dice. If there are more flows, some share a
// counter: their random numbers then depend on each other, but memory stays bounded when a
// scanner sends from every port.
const flowCounters = 4096

// dice returns random numbers that depend on the seed, its owner's name, a key and the number of
// earlier draws of that key, but on no other key: see Determinism in the package comment. It is
// not safe for concurrent use.
type dice struct {
	seed  uint64
	count [flowCounters]uint32
}

func newDice(seed uint64, name string) *dice {
	h := mix(seed)
	for _, c := range []byte(name) {
		h = mix(h ^ uint64(c))
	}
	return &dice{seed: h}
}

// roll starts the next draw of a key.
func (d *dice) roll(key uint64) roll {
	n := &d.count[mix(key)%flowCounters]
	*n++
	return roll(mix(d.seed ^ mix(key^uint64(*n)<<32)))
}

// roll is a short sequence of random numbers (splitmix64).
type roll uint64

func (r *roll) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// float is uniform in [0, 1).
func (r *roll) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// below is uniform in [0, n).
func (r *roll) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}

// mix is the output function of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// endpointKey hashes an address and port, the same in every run.
func endpointKey(a netip.AddrPort) uint64 {
	b := a.Addr().As16()
	var h uint64
	for i := 0; i < 16; i += 8 {
		var w uint64
		for _, c := range b[i : i+8] {
			w = w<<8 | uint64(c)
		}
		h = mix(h ^ w + 0x9e3779b97f4a7c15)
	}
	return mix(h ^ uint64(a.Port()))
}

// flowKey hashes a flow; the two directions differ.
func flowKey(src, dst netip.AddrPort) uint64 { return mix(endpointKey(src)) ^ endpointKey(dst) }
