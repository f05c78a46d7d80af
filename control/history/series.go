package history

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// point is the state of a peer from a moment until the next point begins: 16 bytes.
type point struct {
	at uint32 // seconds since the history began
	// what is the words for it, each as its index in a list; see fields.
	what uint32
	// rtt is in µs, rx and tx are in bytes/s, all as floats; loss is lossScale and 1 more. 0 is
	// unknown.
	rtt, loss, rx, tx uint16
}

// The words that a point can have, from good to bad: of several the last one counts. The first of
// each means unknown.
var (
	states   = []string{"", string(api.StateConnected), string(api.StateUnconfirmed), string(api.StatePending), string(api.StateConnecting), string(api.StateFailed)}
	kinds    = []string{"", api.PathDirect, api.PathRelay, api.PathNone}
	outcomes = []string{"", string(api.OK), string(api.Off), string(api.Unknown), string(api.Warning), string(api.Error)}
	fields   = [...][]string{states, kinds, outcomes, outcomes, outcomes, outcomes, outcomes, outcomes, outcomes}
)

// fieldBits is the number of bits for the index of a word in any list.
const fieldBits = 3

// pack combines words, in the order of fields, into one number. An unknown word becomes the first.
func pack(words [len(fields)]string) (what uint32) {
	for i, w := range words {
		what |= uint32(max(0, slices.Index(fields[i], w))) << (i * fieldBits)
	}
	return what
}

func unpack(what uint32) (words [len(fields)]string) {
	for i := range words {
		words[i] = fields[i][min(int(what>>(i*fieldBits))&(1<<fieldBits-1), len(fields[i])-1)]
	}
	return words
}

// worse returns the worse of two for each field.
func worse(a, b uint32) (out uint32) {
	const mask = 1<<fieldBits - 1
	for shift := 0; shift < len(fields)*fieldBits; shift += fieldBits {
		out |= max(a>>shift&mask, b>>shift&mask) << shift
	}
	return out
}

// mantissa is how many bits of a number a float keeps: it is exact to 0.1 %, up to 4e12.
const mantissa = 11

// float converts a number to 16 bits, keeping the order of numbers.
func float(v float64) uint16 {
	if !(v >= 1) {
		return 0
	}
	n := uint64(min(v, math.MaxInt64))
	e := max(0, bits.Len64(n)-mantissa)
	if e > math.MaxUint16>>mantissa {
		return math.MaxUint16
	}
	return uint16(e<<mantissa) | uint16(n>>e)
}

func number(f uint16) float64 {
	return float64(uint64(f&(1<<mantissa-1)) << (f >> mantissa))
}

const lossScale = math.MaxUint16 - 1

// Sample is the state of a peer at one moment.
type Sample struct {
	// State is the state that is shown to people.
	State api.PeerState
	// Path is direct, relay or none.
	Path string
	RTT  time.Duration // 0 = unknown
	Loss float64       // a share; NaN = unknown
	// Rx and Tx are in bytes per second.
	Rx, Tx float64
}

// alike reports whether two points differ so little that one can represent both: in no word, and in
// no number by more than an eighth or an insignificant amount.
func (p point) alike(q point) bool {
	near := func(x, y, least float64) bool { return math.Abs(x-y) <= max(x/8, y/8, least) }
	const rtt, loss, rate = 500, lossScale / 1000, 1000 // µs, 0.1 %, B/s
	return p.what == q.what && (p.rtt == 0) == (q.rtt == 0) && (p.loss == 0) == (q.loss == 0) &&
		near(number(p.rtt), number(q.rtt), rtt) && near(float64(p.loss), float64(q.loss), loss) &&
		near(number(p.rx), number(q.rx), rate) && near(number(p.tx), number(q.tx), rate)
}

// steps returns the end of the step that contains a moment.
type steps func(at uint32) uint32

// every returns steps of the same width, in seconds.
func every(width uint32) steps { return func(at uint32) uint32 { return at - at%width + width } }

// fold combines the points that begin within a step into one, in place. A point that lasts beyond
// the step continues as a separate point. The last one ends at end.
func fold(points []point, end uint32, step steps) []point {
	out := points[:0]
	for i := 0; i < len(points); {
		edge := step(points[i].at)
		next := i + 1
		for next < len(points) && points[next].at < edge {
			next++
		}
		if next == i+1 {
			out, i = append(out, points[i]), next
			continue
		}
		until := max(end, points[next-1].at)
		if next < len(points) {
			until = points[next].at
		}
		sum := merge(points[i:next], min(until, edge))
		if until > edge {
			next--
			points[next].at = edge
		}
		out, i = append(out, sum), next
	}
	return out
}

// merge returns one point for several.
func merge(points []point, until uint32) point {
	out := points[0]
	var rx, tx, seconds float64
	for i, p := range points {
		next := until
		if i+1 < len(points) {
			next = points[i+1].at
		}
		lasted := float64(next - p.at)
		rx, tx, seconds = rx+lasted*number(p.rx), tx+lasted*number(p.tx), seconds+lasted
		out.what, out.rtt, out.loss = worse(out.what, p.what), max(out.rtt, p.rtt), max(out.loss, p.loss)
	}
	if seconds > 0 {
		out.rx, out.tx = float(rx/seconds), float(tx/seconds)
	}
	return out
}

// level is a resolution: steps of fine seconds in the last minutes, and of coarse seconds before.
type level struct{ fine, coarse uint32 }

// levels are tried in turn until the points fit: old points become coarser first.
var levels = []level{{1, 60}, {1, 120}, {1, 300}, {1, 900}, {2, 900}, {5, 900}, {10, 900}, {30, 900}, {60, 3600}}

// recent is how long, in seconds, points keep the fine resolution, and keep how long they are kept
// at all.
const (
	recent = uint32(10 * time.Minute / time.Second)
	keep   = uint32(24 * time.Hour / time.Second)
)

// steps returns the steps of a level at a moment.
func (l level) steps(now uint32) steps {
	return func(at uint32) uint32 {
		if old := now - min(now, recent); at < old {
			return min(every(l.coarse)(at), old)
		}
		return every(l.fine)(at)
	}
}

// series is the history of one peer.
type series struct {
	points []point
	seen   uint32 // when the last sample came
	found  [7]api.Outcome
	events []api.HistoryEvent
}

// gap is how long, in seconds, there may be no sample before the peer's state counts as unknown.
const gap = 10

// add adds a sample; limit is the maximum number of points.
func (s *series) add(p point, limit int) {
	for n := len(s.points); n > 0 && s.points[n-1].at > p.at; n-- { // the clock was put back
		s.points = s.points[:n-1]
	}
	n := len(s.points)
	if n > 0 && p.at > s.seen+gap {
		s.push(point{at: s.seen + 1}, limit)
		n = len(s.points)
	}
	s.seen = p.at
	switch {
	case n > 0 && s.points[n-1].at == p.at:
		s.points[n-1] = merge([]point{s.points[n-1], p}, p.at)
		s.points[n-1].rx, s.points[n-1].tx = p.rx, p.tx
	case n == 0 || !s.points[n-1].alike(p):
		s.push(p, limit)
	}
}

// growth is for how many points memory is allocated at a time.
const growth = 32

// push appends a point, and allocates memory for it.
func (s *series) push(p point, limit int) {
	if len(s.points) >= limit {
		s.shrink(p.at, limit)
	}
	if limit == 0 {
		return
	}
	if len(s.points) == cap(s.points) {
		s.points = roomy(s.points, min(limit-len(s.points), growth))
	}
	s.points = append(s.points, p)
}

// roomy returns a list with capacity for exactly so many more.
func roomy[T any](list []T, more int) []T {
	return append(make([]T, 0, len(list)+more), list...)
}

// shrink leaves an eighth of the limit free, and at least room for one point if there may be any.
func (s *series) shrink(now uint32, limit int) {
	s.points = after(s.points, now-min(now, keep))
	room := max(0, limit-max(1, limit/8))
	for _, l := range levels {
		if len(s.points) <= room {
			break
		}
		s.points = fold(s.points, now, l.steps(now))
	}
	if over := len(s.points) - room; over > 0 {
		s.points = slices.Delete(s.points, 0, over)
	}
	if cap(s.points) > limit {
		s.points = roomy(s.points, 0)
	}
}

// after returns the points from a moment on. The first may have begun before.
func after(points []point, from uint32) []point {
	n := 0
	for n+1 < len(points) && points[n+1].at <= from {
		n++
	}
	points = slices.Delete(points, 0, n)
	if len(points) > 0 {
		points[0].at = max(points[0].at, from)
	}
	return points
}
