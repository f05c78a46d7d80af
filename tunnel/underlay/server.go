package underlay

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"
)

// servers are the TURN servers at which we hold allocations over the shared socket.
type servers struct {
	byAddr atomic.Pointer[map[netip.AddrPort][]*server] // replaced as a whole, under Bind.mu
}

type server struct{ handle func([]byte) bool }

// AddServer names a TURN server that is spoken to from the shared socket: STUN messages
// and ChannelData from exactly this address are offered to handle first, in the receiving
// goroutine. It must neither block nor keep the packet, and says whether the packet was
// its. STUN that was not goes to OnSTUN as any other; ChannelData is dropped. More than
// one allocation at a server is possible.
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
