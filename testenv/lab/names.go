package lab

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// names is the lab's DNS: no gateway asks the system's. The zero value has no records. It
// is safe for concurrent use.
type names struct {
	mu      sync.Mutex
	records map[string]netip.Addr
}

// set makes or changes a record.
func (n *names) set(host string, a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.records == nil {
		n.records = make(map[string]netip.Addr)
	}
	n.records[host] = a
}

func (n *names) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.records[host]; ok {
		return []netip.Addr{a}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, Server: "the lab", IsNotFound: true}
}
