package netstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// AbortPeer resets all TCP with a remote overlay address at once: open connections, closed ones
// with unacknowledged data, handshakes in progress, undecided requests, and connections that no
// listener has accepted yet. It is meant for the removal of a peer; call it while WireGuard still
// knows the peer, so that the resets arrive. Reads and writes on aborted connections fail with
// ECONNABORTED, and Accept of an aborted request fails. The peer may connect again.
func (s *Stack) AbortPeer(addr netip.Addr) {
	for _, in := range s.pending.from(addr) {
		in.Refuse()
	}
	remote := toAddress(addr)
	for _, ep := range s.gv.RegisteredEndpoints() {
		t, ok := ep.(*tcp.Endpoint)
		if !ok {
			continue
		}
		if info, ok := t.Info().(*stack.TransportEndpointInfo); ok && info.ID.RemoteAddress == remote {
			t.Abort()
		}
	}
}
