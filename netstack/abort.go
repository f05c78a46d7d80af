package netstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// Abort resets all TCP with some remote overlay addresses at once: open connections, closed ones
// with unacknowledged data, handshakes in progress, undecided requests, and connections that no
// listener has accepted yet. It is meant for addresses that are no longer the same peer's; call it
// while WireGuard still knows that peer, so that the resets arrive. Reads and writes on aborted
// connections fail with ECONNABORTED, and Accept of an aborted request fails. Whoever has the address
// may connect again.
func (s *Stack) Abort(with func(remote netip.Addr) bool) {
	for _, in := range s.pending.from(with) {
		in.Refuse()
	}
	for _, ep := range s.gv.RegisteredEndpoints() {
		t, ok := ep.(*tcp.Endpoint)
		if !ok {
			continue
		}
		if info, ok := t.Info().(*stack.TransportEndpointInfo); ok && with(fromFull(tcpip.FullAddress{Addr: info.ID.RemoteAddress}).Addr()) {
			t.Abort()
		}
	}
}
