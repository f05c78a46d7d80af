package forward

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Use is the use of a service of a cluster: of this cluster's by one peer, or of one peer's from
// here.
type Use struct {
	Direction, Peer string
	// Service is NAMESPACE/NAME. Empty means all of the peer's services that are not counted
	// separately.
	Service string
}

// Used contains the counters of a use since it is counted. Flows of datagrams count as connections.
type Used struct {
	Use
	// Open is the number of open connections, Connections that of all carried ones.
	Open        int
	Connections uint64
	// RxBytes came from the peer, TxBytes went to it.
	RxBytes, TxBytes uint64
	// Failures counts the connections that failed. It contains all reasons of the direction.
	Failures map[Reason]uint64
}

// FlowLimit represents all limits in the failures of a use.
const FlowLimit Reason = "flow_limit"

// failures returns the reasons for which a use can fail.
func failures(direction string) []Reason {
	if direction == DirectionInbound {
		return []Reason{NotGranted, UpstreamDown, NoneReady, HandshakeFailed, FlowLimit}
	}
	return []Reason{NotAdmitted, PeerDown, FlowLimit}
}

// maxUses bounds how many uses are counted separately, and maxPeerUses those of one peer in one
// direction.
const maxUses, maxPeerUses = 1000, 250

// tally counts a use. A nil one counts nothing.
type tally struct {
	open                atomic.Int64
	connections, rx, tx atomic.Uint64 // of connections that are open, the flow has the bytes
	failed              map[Reason]*atomic.Uint64
}

func newTally(direction string) *tally {
	t := &tally{failed: map[Reason]*atomic.Uint64{}}
	for _, r := range failures(direction) {
		t.failed[r] = new(atomic.Uint64)
	}
	return t
}

func (t *tally) opened() {
	if t != nil {
		t.open.Add(1)
		t.connections.Add(1)
	}
}

func (t *tally) closed() {
	if t != nil {
		t.open.Add(-1)
	}
}

func (t *tally) carried(rx, tx uint64) {
	if t != nil {
		t.rx.Add(rx)
		t.tx.Add(tx)
	}
}

func (t *tally) fail(r Reason) {
	if t == nil {
		return
	}
	switch r {
	case PeerFlowLimit, PeerHalfOpenLimit, TotalFlowLimit, ClientLimit:
		r = FlowLimit
	}
	if n := t.failed[r]; n != nil {
		n.Add(1)
	}
}

// uses are the tallies. It is safe for concurrent use.
type uses struct {
	mu sync.RWMutex
	of map[Use]*tally
	// left are the tallies of uses that are no longer counted but have open connections: a use that
	// is counted again gets its tally back.
	left map[Use]*tally
}

// known returns the tally of a use that is or was counted.
func (u *uses) known(k Use) *tally { return cmp.Or(u.of[k], u.left[k]) }

// tally returns the tally of a forwarded service; nil if it is not a counted service of a cluster.
func (u *uses) tally(direction, peer, service string) *tally {
	name, _, _ := strings.Cut(service, ":")
	if classOf(name) != workload {
		return nil
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	if t := u.of[Use{direction, peer, name}]; t != nil {
		return t
	}
	return u.of[Use{Direction: direction, Peer: peer}]
}

// refuse counts a failure, in total and for its use.
func (t *Flows) refuse(c *counters, direction, peer, service string, r Reason) {
	c.refuse(r)
	t.uses.tally(direction, peer, service).fail(r)
}

// SetUses makes exactly these uses be counted from now on. If there are too many, those that were
// counted separately still are, then the first by name. The others of a peer are counted together.
func (t *Flows) SetUses(list []Use) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Direction, b.Direction))
	})
	u := &t.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	next, all, of := map[Use]*tally{}, 0, map[Use]int{}
	for _, counted := range []bool{true, false} {
		for _, k := range list {
			was := u.known(k)
			if (was != nil) != counted || next[k] != nil {
				continue
			}
			together := Use{Direction: k.Direction, Peer: k.Peer}
			if rest := u.known(together); rest != nil {
				next[together] = rest // what it has counted does not become less
			}
			switch {
			case all < maxUses && of[together] < maxPeerUses:
				all++
				of[together]++
				if next[k] = was; was == nil {
					next[k] = newTally(k.Direction)
				}
			case next[together] == nil:
				next[together] = newTally(k.Direction)
			}
		}
	}
	left := map[Use]*tally{}
	for _, m := range []map[Use]*tally{u.left, u.of} {
		for k, was := range m {
			if next[k] == nil && was.open.Load() > 0 {
				left[k] = was
			}
		}
	}
	u.of, u.left = next, left
}

// Used returns the counters of each use. Those of uses from here are only included if there were
// connections, because a peer may export services under ever new names.
func (t *Flows) Used() []Used {
	t.uses.mu.RLock()
	of := maps.Clone(t.uses.of)
	t.uses.mu.RUnlock()
	type bytes struct{ rx, tx uint64 }
	open := map[*tally]bytes{}
	t.mu.Lock()
	defer t.mu.Unlock() // The bytes of a connection are in its flow while it is open, and then in the tally.
	for f := range t.open {
		if f.tally != nil {
			b := open[f.tally]
			open[f.tally] = bytes{b.rx + f.rx.Load(), b.tx + f.tx.Load()}
		}
	}
	out := make([]Used, 0, len(of))
	for k, n := range of {
		b := open[n]
		x := Used{Use: k, Open: int(n.open.Load()), Connections: n.connections.Load(),
			RxBytes: n.rx.Load() + b.rx, TxBytes: n.tx.Load() + b.tx, Failures: map[Reason]uint64{}}
		failed := uint64(0)
		for r, v := range n.failed {
			x.Failures[r] = v.Load()
			failed += x.Failures[r]
		}
		if k.Direction == DirectionInbound || x.Connections+failed > 0 {
			out = append(out, x)
		}
	}
	return out
}
