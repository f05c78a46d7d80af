package relay_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// overPipes returns a server that accepts UDP and, by pipes, TCP; its host's UDP may be cut.
func overPipes(t *testing.T, udp bool) (*inet, *pipes, *socket) {
	in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
	in.server.Close()
	conn := in.listen(in.relay, turnserver.Port)
	stream := newPipes(netip.AddrPortFrom(relayAddr, turnserver.Port))
	server, err := turnserver.Serve(turnserver.Sockets{
		Packets: []net.PacketConn{conn}, Streams: []net.Listener{stream}, RelayAddr: relayAddr,
		ListenRelay: func(port int) (net.PacketConn, error) { return in.relay.ListenUDP(uint16(port)) },
	}, turnserver.Options{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	in.server = server
	edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
	edge.host.Link().SetDown(!udp)
	t.Cleanup(func() { edge.host.Link().SetDown(false) })
	return in, stream, newSocket(t, in.listen(edge.host, 51820))
}

func TestWithoutUDPItTakesTCPWithinFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stream, sock := overPipes(t, false)
		server := account
		server.Transport = relay.TransportAuto
		began := time.Now()
		g := start(t, relay.Options{Server: server, Socket: sock, Dial: stream.Dial})
		a := g.allocated(t, nil)
		if took := time.Since(began); a.Transport != "tcp" || took > 5*time.Second {
			t.Errorf("after %v there is an allocation over %s, want one over tcp within 5 s", took, a.Transport)
		}
		if why := g.Status().Fallback; !strings.Contains(why, "udp: no answer over UDP") {
			t.Errorf("the status gives %q as the reason for TCP", why)
		}
	})
}

func TestFromTCPItComesBackToUDPWithoutAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stream, sock := overPipes(t, false)
		server := account
		server.Transport = relay.TransportAuto
		g := start(t, relay.Options{Server: server, Socket: sock, Dial: stream.Dial})
		old := g.allocated(t, nil)
		peer, at := in.peerOn("192.0.2.9")
		g.Permit([]netip.Addr{at.Addr()})
		time.Sleep(2 * time.Minute) // virtual; one attempt at UDP has failed
		if a, _ := g.Allocation(); a != old {
			t.Fatalf("UDP is cut and the allocation is %+v, want still %+v", a, old)
		}
		setUDP(in, true)
		better := g.allocated(t, func(a relay.Allocation) bool { return a.ID != old.ID })
		if better.Transport != "udp" {
			t.Errorf("the new allocation is over %s", better.Transport)
		}
		for _, a := range []relay.Allocation{old, better} {
			exchange(t, func(s string) error { return g.trySend(a.ID, s, at) }, peer.others)
			if d := exchange(t, func(s string) error { return peer.WriteTo([]byte(s), a.Relayed) }, g.inbox); d.via != a.ID {
				t.Errorf("a datagram for %s came via %s", a.ID, d.via)
			}
		}
		time.Sleep(time.Minute) // virtual
		if err := g.trySend(old.ID, "late", at); !errors.Is(err, relay.ErrClosed) {
			t.Errorf("a minute later the old allocation still is there: %v", err)
		}
		if n := in.server.Allocations(); n != 1 {
			t.Errorf("the server has %d allocations, want 1", n)
		}
	})
}

func TestABrokenConnectionIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stream, _ := overPipes(t, true)
		server := account
		server.Transport = relay.TransportTCP
		g := start(t, relay.Options{Server: server, Dial: stream.Dial})
		first := g.allocated(t, nil)
		began := time.Now()
		in.server.Close()
		eventually(t, "the loss is known", func() bool { a, ok := g.Allocation(); return !ok || a.ID != first.ID })
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the loss was known after %v", took)
		}
		eventually(t, "a refusal", func() bool { return strings.Contains(g.Status().Err, "refuses TCP: is the server up") })
	})
}

// setUDP connects or cuts the edge's link.
func setUDP(in *inet, up bool) { in.edges[0].host.Link().SetDown(!up) }
