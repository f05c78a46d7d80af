package netstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// AbortPeer ends everything over TCP with a remote overlay address, at once and with
// resets: open connections, those that were closed but whose data the peer hasn't
// acknowledged, handshakes in progress, undecided requests and what no listener has
// accepted yet. It is for a peer that is removed; call it while WireGuard still knows the
// peer and it hears of it. Reads and writes on aborted connections fail with
// ECONNABORTED, and Accept of an aborted request fails. It does not keep the peer from
// connecting again.
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
