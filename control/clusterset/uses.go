package clusterset

import "github.com/postern-dev/postern/control/forward"

// countUses starts counting what is announced to peers and imported from them, and records the
// number of ready backends. It is part of reconcile.
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

// Ready returns the number of ready backends of each exported service, by NAMESPACE/NAME. It must
// not be changed.
func (c *Clusterset) Ready() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}
