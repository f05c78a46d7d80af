package relay_test

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// The path finder sends as soon as there is an allocation. That must not be lost.
func TestWantedAddressesArePendingWhenTheAllocationIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		peer, at := in.peerOn("192.0.2.9")
		const first = "\x01\x00\x00\x00 as an initiation begins"
		var g *gateway
		ready, sent := make(chan struct{}), make(chan error, 1)
		told := func() {
			<-ready
			if a, ok := g.Allocation(); ok {
				sent <- g.trySend(a.ID, first, at)
			}
		}
		g = start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820)), OnChange: told})
		g.Permit([]netip.Addr{at.Addr()})
		close(ready)
		if err := <-sent; err != nil {
			t.Errorf("sending from inside OnChange: %v", err)
		}
		if d := <-peer.others; string(d.b) != first {
			t.Errorf("the peer got %q", d.b)
		}
		if n := g.Status().Traffic.PermissionDrops; n != 0 {
			t.Errorf("%d datagrams are counted as dropped for want of a permission, want none", n)
		}
	})
}

func TestPermitHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInet(t, turnserver.Options{}, simnet.LinkOptions{})
		edge := in.behind("home", "198.51.100.1", simnet.PortRestricted())
		g := start(t, relay.Options{Server: account, Socket: newSocket(t, in.listen(edge.host, 51820))})
		a := g.allocated(t, nil)
		addr := netip.MustParseAddr("192.0.2.1")
		var wanted []netip.Addr
		for range 100 { // while requests for the earlier ones are in progress
			wanted = append(wanted, addr)
			g.Permit(slices.Clone(wanted))
			for _, to := range wanted {
				if err := g.trySend(a.ID, "probe", netip.AddrPortFrom(to, 51820)); err != nil {
					t.Fatalf("sending to %v right after Permit of %d addresses: %v", to, len(wanted), err)
				}
			}
			addr = addr.Next()
		}
		time.Sleep(time.Minute) // in virtual time
		peer, at := in.peerOn("192.0.2.100")
		g.send(t, a.ID, "the last", at)
		if d := <-peer.others; string(d.b) != "the last" {
			t.Errorf("the peer got %q", d.b)
		}
	})
}
