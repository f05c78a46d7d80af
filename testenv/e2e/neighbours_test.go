//go:build linux && e2e

package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// thirdInner is a second gateway's address behind the right side's NAT.
const thirdInner = "192.168.8.3"

// TestNeighboursMeetByTheirOwnAddresses connects two gateways with the same port behind one NAT
// without hairpinning.
func TestNeighboursMeetByTheirOwnAddresses(t *testing.T) {
	t.Parallel()
	onTime(t, func(late lateness) {
		s := newSites(t, dial, portRestricted, ways{})
		third := s.newNeighbour(s.right, "third", thirdInner)
		s.right.start()
		third.start()
		start := time.Now()
		s.enrol(s.right, third)
		traffic := openStream(within(t, patience), t, third, s.right)
		traffic.late = late
		for _, x := range []struct {
			here *site
			peer string
		}{{s.right, "third"}, {third, "right"}} {
			p := x.here.awaitPath(within(t, patience), x.peer, api.PathDirect)
			t.Logf("%s is connected to %s at %s (%s) after %v", x.here.name, x.peer, p.Path.Remote, p.Path.Source, time.Since(start).Round(100*time.Millisecond))
			if p.Path.Source != api.SourceHost && p.Path.Source != api.SourcePeer {
				t.Errorf("%s meets %s by a candidate of source %s, want the host's own address", x.here.name, x.peer, p.Path.Source)
			}
		}
		late("until neighbours met", time.Since(start), directWithin)
		traffic.check(upgradeWithin)
	})
}

// TestTwoGatewaysWithOnePortBehindOneNAT keeps both connected to a third: their NAT gives only
// one of them the port that both listen on.
func TestTwoGatewaysWithOnePortBehindOneNAT(t *testing.T) {
	t.Parallel()
	onTime(t, func(late lateness) {
		s := newSites(t, dial, portRestricted, ways{})
		third := s.newNeighbour(s.right, "third", thirdInner)
		s.start()
		third.start()
		s.enrol(s.left, s.right)
		s.enrol(s.left, third)
		var traffic []*stream
		for _, x := range []*site{s.right, third} {
			here := openStream(within(t, patience), t, x, s.left)
			here.late = late
			traffic = append(traffic, here)
		}
		remotes := map[string]bool{}
		for _, x := range []*site{s.right, third} {
			x.awaitPath(within(t, patience), "left", api.PathDirect)
			remotes[s.left.awaitPath(within(t, patience), x.name, api.PathDirect).Path.Remote] = true
		}
		if len(remotes) != 2 {
			t.Errorf("left reaches both at %v, want two addresses", remotes)
		}
		for _, x := range traffic {
			x.mark()
		}
		traffic[0].watch(observed)
		for _, x := range traffic {
			x.check(upgradeWithin)
		}
		for _, x := range []*site{s.right, third} {
			x.awaitPath(within(t, patience), "left", api.PathDirect)
		}
	})
}

// TestASecondAddressOfOneSubnet reaches a gateway at an address from which its system does not
// send by default, such as a floating one. The first address leads nowhere.
func TestASecondAddressOfOneSubnet(t *testing.T) {
	t.Parallel()
	const second = "203.0.113.11"
	onTime(t, func(late lateness) {
		s := newSites(t, dial, portRestricted, ways{noTURN: true})
		s.left.host.AddAddress("eth0", netip.PrefixFrom(netip.MustParseAddr(second), 24))
		dead := s.core.Drop("ip daddr "+leftPublic, "ip saddr "+leftPublic)
		s.start()
		start := time.Now()
		s.enrol(s.left, s.right)
		traffic := openStream(within(t, patience), t, s.right, s.left)
		traffic.late = late
		s.awaitPath(api.PathDirect, patience)
		t.Logf("connected %v after the start of join", time.Since(start).Round(100*time.Millisecond))
		want := netip.AddrPortFrom(netip.MustParseAddr(second), gatewayPort).String()
		if p := s.right.awaitPath(within(t, patience), s.left.name, api.PathDirect); p.Path.Remote != want {
			t.Errorf("right reaches left at %s, want %s", p.Path.Remote, want)
		}
		s.left.waitPeer(s.right.name, "left's own probes are answered", func(p api.PeerStatus) bool { return p.Path.RTTSeconds > 0 })
		traffic.mark()
		traffic.watch(observed)
		traffic.check(upgradeWithin)
		if n, err := dead.Dropped(within(t, patience)); err != nil || n.Packets == 0 {
			t.Errorf("the filter dropped %d packets, %v: want some, or the first address was never tried", n.Packets, err)
		}
	})
}

// TestHairpin has neighbours use their NAT's outside address where nothing else passes.
func TestHairpin(t *testing.T) {
	t.Parallel()
	s := newSites(t, dial, portRestricted, ways{nat: hairpin, noTURN: true})
	third := s.newNeighbour(s.right, "third", thirdInner)
	port := uint16(gatewayPort + 1) // the NAT keeps both ports, so both can be found
	third.doc.Spec.Listen.Port = &port
	third.writeConfig()
	// The switch passes nothing between them, as in guest networks.
	s.right.lan.Drop("ip saddr "+rightInner+" ip daddr "+thirdInner, "ip saddr "+thirdInner+" ip daddr "+rightInner)
	s.right.start()
	third.start()
	s.enrol(s.right, third)
	openStream(within(t, patience), t, third, s.right)
	p := third.awaitPath(within(t, patience), "right", api.PathDirect)
	t.Logf("third reaches right at %s (%s)", p.Path.Remote, p.Path.Source)
}
