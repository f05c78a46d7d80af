package forward

import (
	"sync"
	"time"
)

const (
	// logEvery is the shortest time between two log records of one kind. A peer that is
	// refused a thousand times a second shows as one line, with the number left out.
	logEvery = 10 * time.Second
	// logKinds bounds the memory of the sampler: peers times services times reasons, all
	// of them named by the configuration, stay far below in practice.
	logKinds = 4096
)

// sampler lets one log record of a kind through at a time.
type sampler struct {
	mu   sync.Mutex
	seen map[string]*sample
}

type sample struct {
	last       time.Time
	suppressed uint64
}

func newSampler() *sampler { return &sampler{seen: make(map[string]*sample)} }

// allow reports whether a record of this kind may be written now, and how many were
// left out since the last.
func (s *sampler) allow(kind string) (suppressed uint64, ok bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.seen[kind]
	if e == nil {
		if len(s.seen) >= logKinds {
			clear(s.seen)
		}
		s.seen[kind] = &sample{last: now}
		return 0, true
	}
	if now.Sub(e.last) < logEvery {
		e.suppressed++
		return 0, false
	}
	suppressed, e.suppressed, e.last = e.suppressed, 0, now
	return suppressed, true
}
