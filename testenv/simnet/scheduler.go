package simnet

import (
	"sync"
	"time"
)

// scheduler delivers delayed packets in the order of arrival. Its heap is guarded by the
// Internet's lock.
type scheduler struct {
	in   *Internet
	heap []arrival // a binary heap by (at, seq)
	seq  uint64

	wake     chan struct{} // signals that the first arrival has changed
	done     chan struct{}
	stopOnce sync.Once
	running  sync.WaitGroup
}

type arrival struct {
	at  time.Time
	seq uint64 // keeps packets with the same arrival in the order of sending
	d   *direction
	p   *packet
}

func (a arrival) before(b arrival) bool {
	if a.at.Equal(b.at) {
		return a.seq < b.seq
	}
	return a.at.Before(b.at)
}

// maxBatch bounds the deliveries before the lock is released for writers.
const maxBatch = 256

func startScheduler(in *Internet) *scheduler {
	s := &scheduler{in: in, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.running.Go(s.run)
	return s
}

func (s *scheduler) stop() {
	s.stopOnce.Do(func() { close(s.done) })
	s.running.Wait()
}

// push adds a packet that arrives later. The Internet must be locked.
func (s *scheduler) push(at time.Time, d *direction, p *packet) {
	s.seq++
	s.heap = append(s.heap, arrival{at, s.seq, d, p})
	i := len(s.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !s.heap[i].before(s.heap[parent]) {
			break
		}
		s.heap[i], s.heap[parent] = s.heap[parent], s.heap[i]
		i = parent
	}
	if i == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// pop removes the first arrival from the heap, which must not be empty.
func (s *scheduler) pop() arrival {
	first := s.heap[0]
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap[last] = arrival{}
	s.heap = s.heap[:last]
	for i := 0; ; {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < last && s.heap[child].before(s.heap[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		s.heap[i], s.heap[least] = s.heap[least], s.heap[i]
		i = least
	}
}

func (s *scheduler) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, any := s.deliver(); any {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.done:
			s.discard()
			return
		}
	}
}

// deliver delivers what is due and returns the time until the next arrival, if any.
func (s *scheduler) deliver() (wait time.Duration, any bool) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	now := time.Now()
	for range maxBatch {
		if len(s.heap) == 0 {
			return 0, false
		}
		if wait := s.heap[0].at.Sub(now); wait > 0 {
			return wait, true
		}
		a := s.pop()
		a.d.pending--
		// Use the time of arrival, not the current time: a late timer must not delay the rest of
		// the path.
		a.d.to.receive(a.at, a.p)
	}
	return 0, true
}

// discard drops everything that has not arrived.
func (s *scheduler) discard() {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	now := time.Now()
	for len(s.heap) > 0 {
		a := s.pop()
		a.d.pending--
		s.in.drop(now, a.d.name, a.p, DropInternetClosed)
	}
}
