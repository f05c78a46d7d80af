package lab

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// names is the lab's DNS: gateways do not use the system's. The zero value has no records. It is
// safe for concurrent use.
type names struct {
	mu      sync.Mutex
	records map[string]netip.Addr
	silent  bool // no query is answered
}

// set creates or changes a record.
func (n *names) set(host string, a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.records == nil {
		n.records = make(map[string]netip.Addr)
	}
	n.records[host] = a
}

// silence makes the DNS stop answering.
func (n *names) silence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = true
}

func (n *names) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent {
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, Server: "the lab", IsTimeout: true, IsTemporary: true}
	}
	if a, ok := n.records[host]; ok {
		return []netip.Addr{a}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, Server: "the lab", IsNotFound: true}
}
