package netstack

import (
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// pending bounds undecided connection requests, in total and for each peer. gVisor's forwarder has
// a single bound for all.
type pending struct {
	total, each int                         // immutable
	owner       func(netip.Addr) netip.Addr // immutable

	mu       sync.Mutex
	requests map[stack.TransportEndpointID]*request
	byPeer   map[netip.Addr]int
}

// request is an undecided request of a peer.
type request struct {
	peer netip.Addr
	in   *Incoming // nil until onRequest runs
}

func newPending(o Options) *pending {
	return &pending{
		total:    o.MaxPendingTCP,
		each:     max(o.MaxPendingTCP/pendingShare, 1),
		owner:    o.Owner,
		requests: make(map[stack.TransportEndpointID]*request),
		byPeer:   make(map[netip.Addr]int),
	}
}

// admission is the decision on a SYN.
type admission int

const (
	admitted admission = iota
	repeated           // the request is undecided; the repeated SYN is ignored
	overLimit
)

// add admits a request.
func (p *pending) add(id stack.TransportEndpointID) admission {
	peer := p.owner(fromFull(tcpip.FullAddress{Addr: id.RemoteAddress}).Addr())
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.requests[id]; ok {
		return repeated
	}
	if len(p.requests) >= p.total || p.byPeer[peer] >= p.each {
		return overLimit
	}
	p.requests[id] = &request{peer: peer}
	p.byPeer[peer]++
	return admitted
}

// started stores the request that is being decided.
func (p *pending) started(id stack.TransportEndpointID, in *Incoming) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.requests[id]; r != nil {
		r.in = in
	}
}

// remove forgets a decided request.
func (p *pending) remove(id stack.TransportEndpointID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[id]
	if r == nil {
		return
	}
	delete(p.requests, id)
	if p.byPeer[r.peer]--; p.byPeer[r.peer] == 0 {
		delete(p.byPeer, r.peer)
	}
}

// from lists the requests from some remote addresses.
func (p *pending) from(which func(netip.Addr) bool) []*Incoming {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Incoming
	for _, r := range p.requests {
		if r.in != nil && which(r.in.remote.Addr()) {
			list = append(list, r.in)
		}
	}
	return list
}

// admit passes a TCP packet that no endpoint takes to gVisor's forwarder, unless it is a request
// beyond the limits.
func (s *Stack) admit(id stack.TransportEndpointID, pkt *stack.PacketBuffer, forward func(stack.TransportEndpointID, *stack.PacketBuffer) bool) bool {
	flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
	if flags&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return forward(id, pkt)
	}
	switch s.pending.add(id) {
	case repeated:
		return true
	case overLimit:
		s.drops.add(DropPending)
		return true
	}
	taken := forward(id, pkt)
	if !taken { // malformed
		s.pending.remove(id)
	}
	return taken
}
