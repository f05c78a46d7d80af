package clusterset

import "github.com/postern-dev/postern/control/forward"

// countUses has counted what peers are told and what is imported from them, and notes how many
// backends are ready. It is part of a turn.
func (c *Clusterset) countUses() {
	var list []forward.Use
	ready := map[string]int{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer, s := range c.peers {
		for _, name := range s.writer.Names() {
			list = append(list, forward.Use{Direction: forward.DirectionInbound, Peer: peer, Service: name})
		}
	}
	for name, e := range c.exported {
		ready[name] = e.ready
	}
	for n, i := range c.imports {
		for _, x := range i.Clusters {
			list = append(list, forward.Use{Direction: forward.DirectionOutbound, Peer: x.ID, Service: n.String()})
		}
	}
	c.o.Flows.SetUses(list)
	c.ready = ready
}

// Ready is how many backends of each exported service are ready, by NAMESPACE/NAME. It is not to be
// changed.
func (c *Clusterset) Ready() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}
