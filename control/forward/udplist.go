package forward

import (
	"slices"

	"github.com/postern-dev/postern/control/api"
)

// maxListed is how many flows of a peer are listed, in each direction.
const maxListed = 256

// list returns the most recently used flows of a peer, in each direction.
func (t *udpFlows) list(peer string) []api.Flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []api.Flow
	for _, direction := range []string{DirectionInbound, DirectionOutbound} {
		o := t.owners[shareOfUDP(direction, peer)]
		if o == nil {
			continue
		}
		var last []*udpFlow
		for _, l := range o.lists[asked:] {
			for f, n := l.last, 0; f != nil && n < maxListed; f, n = f.prev, n+1 {
				last = append(last, f)
			}
		}
		slices.SortFunc(last, func(a, b *udpFlow) int { return b.used.Compare(a.used) })
		for _, f := range last[:min(len(last), maxListed)] {
			out = append(out, api.Flow{Direction: direction, Protocol: api.UDP, Service: f.service, Remote: f.remote(),
				RxBytes: f.rx, TxBytes: f.tx, StartedAt: f.startedAt})
		}
	}
	return out
}

// UDPFlows returns how many flows of datagrams a peer has.
func (t *Flows) UDPFlows(peer string) int {
	t.udp.mu.Lock()
	defer t.udp.mu.Unlock()
	n := 0
	for k, o := range t.udp.owners {
		if k.peer == peer {
			n += o.flows
		}
	}
	return n
}

// carried returns how much the flows of each peer have carried.
func (t *udpFlows) carried() map[string]Carried {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]Carried)
	for k, o := range t.owners {
		if n := o.flows - o.halfOpen; n > 0 {
			c := out[k.peer]
			out[k.peer] = Carried{c.Flows + n, c.Bytes + o.bytes}
		}
	}
	return out
}

// UDPCount returns the number of flows of datagrams, by direction.
func (t *Flows) UDPCount() map[string]int {
	n := map[string]int{DirectionInbound: 0, DirectionOutbound: 0}
	t.udp.mu.Lock()
	defer t.udp.mu.Unlock()
	for k, o := range t.udp.owners {
		n[k.direction] += o.flows
	}
	return n
}

// Dropped returns the number of datagrams that were dropped since the start, by reason.
func (t *Flows) Dropped() map[Dropped]uint64 {
	out := make(map[Dropped]uint64, len(t.udp.dropped))
	for why, n := range t.udp.dropped {
		out[why] = n.Load()
	}
	return out
}
