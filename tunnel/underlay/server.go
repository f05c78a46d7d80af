package underlay

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"
)

// servers are the TURN servers with allocations over the shared socket.
type servers struct {
	byAddr atomic.Pointer[map[netip.AddrPort][]*server] // replaced as a whole, under Bind.mu
}

type server struct{ handle func([]byte) bool }

// AddServer registers a TURN server that shares the socket. STUN messages and ChannelData from
// exactly this address are offered to handle first, in the receiving goroutine. handle must neither
// block nor keep the packet, and reports whether the packet was its own. Other STUN goes to OnSTUN
// as usual; other ChannelData is dropped. A server may have several allocations.
func (b *Bind) AddServer(addr netip.AddrPort, handle func(packet []byte) bool) (remove func()) {
	addr = unmapped(addr)
	s := &server{handle}
	change := func(f func([]*server) []*server) {
		b.mu.Lock()
		defer b.mu.Unlock()
		all := maps.Clone(*b.servers.byAddr.Load())
		if all[addr] = f(slices.Clone(all[addr])); len(all[addr]) == 0 {
			delete(all, addr)
		}
		b.servers.byAddr.Store(&all)
	}
	change(func(at []*server) []*server { return append(at, s) })
	return func() {
		change(func(at []*server) []*server { return slices.DeleteFunc(at, func(o *server) bool { return o == s }) })
	}
}

func (s *servers) init() { s.byAddr.Store(&map[netip.AddrPort][]*server{}) }

// take offers a packet to the servers at its source.
func (s *servers) take(packet []byte, from conn.Endpoint) bool {
	all := *s.byAddr.Load()
	if len(all) == 0 {
		return false
	}
	for _, s := range all[addrOf(from)] {
		if s.handle(packet) {
			return true
		}
	}
	return false
}
