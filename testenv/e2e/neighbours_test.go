//go:build linux && e2e

package e2e

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// thirdInner is a second gateway's address behind the right side's NAT.
const thirdInner = "192.168.8.3"

// TestNeighboursMeetByTheirOwnAddresses lets two gateways with one port behind one NAT,
// which turns nothing round, find each other.
func TestNeighboursMeetByTheirOwnAddresses(t *testing.T) {
	t.Parallel()
	s := newSites(t, dial, portRestricted, ways{})
	third := s.newNeighbour(s.right, "third", thirdInner)
	s.right.start()
	third.start()
	start := time.Now()
	s.enrol(s.right, third)
	traffic := openStream(within(t, patience), t, third, s.right)
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
	if took := time.Since(start); took > directWithin {
		t.Errorf("neighbours met after %v, want at most %v", took, directWithin)
	}
	traffic.check(upgradeWithin)
}

// TestTwoGatewaysWithOnePortBehindOneNAT keeps both connected to a third: their NAT gives
// only one of them the port that both listen on.
func TestTwoGatewaysWithOnePortBehindOneNAT(t *testing.T) {
	t.Parallel()
	s := newSites(t, dial, portRestricted, ways{})
	third := s.newNeighbour(s.right, "third", thirdInner)
	s.start()
	third.start()
	s.enrol(s.left, s.right)
	s.enrol(s.left, third)
	var traffic []*stream
	for _, x := range []*site{s.right, third} {
		traffic = append(traffic, openStream(within(t, patience), t, x, s.left))
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
}

// TestHairpin lets neighbours use their NAT's outside address where nothing else passes.
func TestHairpin(t *testing.T) {
	t.Parallel()
	s := newSites(t, dial, portRestricted, ways{nat: hairpin, noTURN: true})
	third := s.newNeighbour(s.right, "third", thirdInner)
	port := uint16(gatewayPort + 1) // the NAT keeps both ports, so both can be found
	third.doc.Spec.Listen.Port = &port
	third.writeConfig()
	// The switch between them passes nothing from one to the other, as guest networks do.
	s.right.lan.Drop("ip saddr "+rightInner+" ip daddr "+thirdInner, "ip saddr "+thirdInner+" ip daddr "+rightInner)
	s.right.start()
	third.start()
	s.enrol(s.right, third)
	openStream(within(t, patience), t, third, s.right)
	p := third.awaitPath(within(t, patience), "right", api.PathDirect)
	t.Logf("third reaches right at %s (%s)", p.Path.Remote, p.Path.Source)
}
