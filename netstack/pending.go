package netstack

import (
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// pending bounds undecided connection requests, in total and for each remote address. gVisor's
// forwarder has a single bound for all. Eight peers, each with as many requests as it may have,
// would use it up.
type pending struct {
	total, each int // immutable

	mu       sync.Mutex
	requests map[stack.TransportEndpointID]*Incoming // nil until onRequest runs
	bySource map[tcpip.Address]int
}

func newPending(total int) *pending {
	return &pending{
		total:    total,
		each:     max(total/pendingShare, 1),
		requests: make(map[stack.TransportEndpointID]*Incoming),
		bySource: make(map[tcpip.Address]int),
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.requests[id]; ok {
		return repeated
	}
	if len(p.requests) >= p.total || p.bySource[id.RemoteAddress] >= p.each {
		return overLimit
	}
	p.requests[id] = nil
	p.bySource[id.RemoteAddress]++
	return admitted
}

// started stores the request that is being decided.
func (p *pending) started(id stack.TransportEndpointID, in *Incoming) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[id] = in
}

// remove forgets a decided request.
func (p *pending) remove(id stack.TransportEndpointID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.requests[id]; !ok {
		return
	}
	delete(p.requests, id)
	if p.bySource[id.RemoteAddress]--; p.bySource[id.RemoteAddress] == 0 {
		delete(p.bySource, id.RemoteAddress)
	}
}

// from lists the requests from a remote address.
func (p *pending) from(source netip.Addr) []*Incoming {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*Incoming
	for _, in := range p.requests {
		if in != nil && in.remote.Addr() == source {
			list = append(list, in)
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
