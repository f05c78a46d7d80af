package netstack

import (
	"io"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// A peer decides how fast it connects, and whether it closes after us. However it does, the endpoints
// that stay are bounded, and another peer's are left alone.
func TestEndpointsOfClosedConnectionsAreBounded(t *testing.T) {
	const memory = minTCPMemory
	most := memory / lingerPart / lingerCost
	hostile := netip.MustParseAddr("fd00::bad")
	for name, closes := range map[string]bool{"the peer closes, too": true, "the peer never closes": false} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, Options{}, Options{TCPMemory: memory}, impairment{})
			state := func(c *Conn) tcp.EndpointState { return tcp.EndpointState(c.ep.State()) }
			once := func(at netip.Addr) (server *Conn) {
				client, server := p.connect(t, at)
				if _, err := client.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
				if _, err := server.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				_ = server.Close()
				if _, err := io.Copy(io.Discard, client); err != nil {
					t.Fatal(err)
				}
				want := tcp.StateFinWait2
				if closes {
					_ = client.Close()
					want = tcp.StateTimeWait
				}
				eventually(t, "it lingers", func() bool { return state(server) == want })
				return server
			}
			p.b.memory.mu.Lock()
			for range most { // of a peer that acknowledges nothing
				p.b.memory.lingering.add(&share{peer: hostile})
			}
			p.b.memory.mu.Unlock()
			other := once(b4) // IPv4 stands for another peer.
			for range 3 * most {
				once(b6)
			}
			lingers := 0
			for _, e := range p.b.gv.RegisteredEndpoints() {
				if e, is := e.(*tcp.Endpoint); is && tcp.EndpointState(e.State()) != tcp.StateListen {
					lingers++
				}
			}
			if lingers > most || lingers < most/4 {
				t.Errorf("%d endpoints are left of %d connections, want about a third of %d", lingers, 3*most, most)
			}
			if s := state(other); s != tcp.StateTimeWait && s != tcp.StateFinWait2 {
				t.Errorf("another peer's ended as well: %v", s)
			}
			p.b.memory.mu.Lock()
			defer p.b.memory.mu.Unlock()
			n := 0
			for peer, of := range p.b.memory.lingering.of {
				if peer != hostile {
					n += of.Len()
				}
			}
			if n != lingers {
				t.Errorf("%d are recorded, and there are %d", n, lingers)
			}
		})
	}
}
