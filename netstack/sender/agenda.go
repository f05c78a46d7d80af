package sender

import (
	"container/heap"
	"slices"
	"time"
)

// agenda is a heap of flows, ordered by when their timers are due. Each flow stores its index, so a
// path with many flows costs little more than one with few.
type agenda struct{ flows []*Flow }

// first returns the flow that is due first, or nil.
func (a *agenda) first() *Flow {
	if len(a.flows) == 0 {
		return nil
	}
	return a.flows[0]
}

// due returns when the first flow is due.
func (a *agenda) due() time.Duration {
	if f := a.first(); f != nil {
		return f.due
	}
	return never
}

// put sets when a flow is due.
func (a *agenda) put(f *Flow, due time.Duration) {
	switch was := f.due; {
	case f.inBusy == 0:
		f.due = due
		heap.Push(a, f)
	case was != due:
		f.due = due
		heap.Fix(a, f.inBusy-1)
	}
}

func (a *agenda) remove(f *Flow) {
	if f.inBusy > 0 {
		heap.Remove(a, f.inBusy-1)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a *agenda) Len() int           { return len(a.flows) }
func (a *agenda) Less(i, j int) bool { return a.flows[i].due < a.flows[j].due }

func (a *agenda) Swap(i, j int) {
	a.flows[i], a.flows[j] = a.flows[j], a.flows[i]
	a.flows[i].inBusy, a.flows[j].inBusy = i+1, j+1
}

func (a *agenda) Push(x any) {
	f := x.(*Flow)
	a.flows = append(a.flows, f)
	f.inBusy = len(a.flows)
}

func (a *agenda) Pop() any {
	last := len(a.flows) - 1
	f := a.flows[last]
	a.flows = slices.Delete(a.flows, last, last+1)
	if last == 0 {
		a.flows = nil // An idle path keeps no memory.
	}
	f.inBusy = 0
	return f
}

// sparse holds flows that send little and have something to send. A full window does not hold them
// up, or they would wait for the flows that fill it.
type sparse struct{ flows []*Flow }

// first returns one of them, or nil.
func (s *sparse) first() *Flow {
	if len(s.flows) == 0 {
		return nil
	}
	return s.flows[0]
}

// set adds a flow or removes it.
func (s *sparse) set(f *Flow, is bool) {
	switch {
	case !is:
		s.remove(f)
	case f.inSparse == 0:
		s.flows = append(s.flows, f)
		f.inSparse = len(s.flows)
	}
}

func (s *sparse) remove(f *Flow) {
	if f.inSparse == 0 {
		return
	}
	last := len(s.flows) - 1
	other := s.flows[last]
	s.flows[f.inSparse-1], other.inSparse = other, f.inSparse
	s.flows = slices.Delete(s.flows, last, last+1)
	if last == 0 {
		s.flows = nil
	}
	f.inSparse = 0
}
