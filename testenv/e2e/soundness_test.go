//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// roundsVariable sets the number of rounds of TestHealthyPairHasNoFault, which is 20 by default.
const roundsVariable = "POSTERN_HEALTHY_ROUNDS"

// TestHealthyPairHasNoFault checks a healthy pair repeatedly, from both sides.
func TestHealthyPairHasNoFault(t *testing.T) {
	t.Parallel()
	rounds := 20
	if text := os.Getenv(roundsVariable); text != "" {
		rounds = atoi(t, text)
	}
	f := newFaultLab(t, plain())
	f.run(true)
	f.healed() // each has told the other what it found
	begin, starved := time.Now(), 0
	for n := 0; n < rounds; {
		sick := false
		for _, w := range f.wards() {
			r := w.check()
			if slices.ContainsFunc(r.Checks, func(c api.Check) bool { return c.Code == string(catalogue.ProcessStarved) }) {
				sick = true // caused by the machine, and reported
			} else if found := ailing(r); len(found) > 0 {
				t.Errorf("round %d: %s finds%s", n+1, w.name, describeChecks(found))
			}
		}
		if !sick {
			n++
		} else if starved++; starved > rounds {
			t.Fatalf("in %d rounds a gateway was starved: this shows nothing", starved)
		}
	}
	t.Logf("%d rounds at both sides, and %d with one of them starved, in %s", rounds, starved, time.Since(begin).Round(time.Second))
}

// addThird adds a third site, with its own API server, that is a peer of left. It is called
// before the gateways start.
func (f *faultLab) addThird() *ward {
	f.t.Helper()
	host := f.lab.Host("third")
	host.Attach("eth0", f.servers, netip.MustParseAddr(thirdSite))
	host.DefaultRoute(gatewayAddr(netip.MustParsePrefix("192.0.2.0/24")))
	at := netip.MustParseAddr(thirdSite)
	w := &ward{site: &site{access: dial, inner: at, outer: at, gateway: newGateway(f.t, host, "third")}, key: newKey(f.t)}
	f.furnish(w)
	w.other = f.right.other // the left side
	f.left.more = append(f.left.more, api.Peer{Name: "third", PublicKey: w.key.Public().String(),
		Endpoints: []string{netip.AddrPortFrom(at, gatewayPort).String()}, Allow: w.other.Allow})
	w.write()
	f.left.write()
	return w
}

const thirdSite = "192.0.2.50"

// TestTwoFaultsAtOnce causes two faults at a time: both are named, and neither is taken for the
// other's consequence.
func TestTwoFaultsAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("at one peer, its API server is down and packets are lost", func(t *testing.T) {
		t.Parallel()
		f := newFaultLab(t, plain())
		f.run(true)
		f.healed()
		f.right.api.stop()
		f.left.host.DropIncoming("eth0", 50)
		f.left.finds(outbound("PST0112", gatewayCheck).because("right", "%"), outbound("PST0301", apiServerCheck).because("right"))
		f.right.finds(own("PST0310", "upstream-apiServer").because(apiUpstream), outbound("PST0112", gatewayCheck).because("left", "%"))
	})
	t.Run("one peer is blocked and another's API server answers 401", func(t *testing.T) {
		t.Parallel()
		f := newFaultLab(t, plain())
		third := f.addThird()
		f.right.firewall("ip saddr " + leftPublic + " udp dport 51820 drop")
		third.api.trusts(third.clientCA(time.Hour).CertPEM())
		third.launch()
		f.run(false)
		third.waitReady()
		f.left.waitConnected("third")
		f.left.finds(outbound("PST0106", gatewayCheck).because("right", rightEndpoint, "blocked"),
			outbound("PST0305", apiServerCheck).because("third", "401"))
		f.right.finds(outbound("PST0101", gatewayCheck).because("left", "cannot tell"))
		third.finds(inbound("PST0305", "inbound-apiServer").because("left", "401"))
	})
	t.Run("one peer's name does not resolve and another's certificate has expired", func(t *testing.T) {
		t.Parallel()
		f := newFaultLab(t, plain(oneWay, func(f *faultLab) {
			f.left.resolves("gw.example.net", rightPublic)
			f.left.other.Endpoints = []string{"gx.example.net:51820"}
		}))
		third := f.addThird()
		third.launch()
		f.run(false)
		third.waitReady()
		f.left.waitConnected("third")
		pair, err := third.api.ca.ServerBetween(time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour), apiName)
		if err != nil {
			t.Fatal(err)
		}
		third.api.present(pair)
		f.left.finds(outbound("PST0107", gatewayCheck).because("gx.example.net"), outbound("PST0503", apiServerCheck).because("third"))
		third.finds(own("PST0503", "upstream-apiServer").because(apiUpstream))
	})
}

// TestInboundCellsTellWhatOnlyThePeerSees: right's API server refuses left, which right cannot
// see itself, since its own checks are ok.
func TestInboundCellsTellWhatOnlyThePeerSees(t *testing.T) {
	t.Parallel()
	f := newFaultLab(t, plain())
	f.run(true)
	f.healed()
	f.right.api.binds()
	f.left.finds(outbound("PST0306", apiServerCheck))
	f.right.finds(inbound("PST0306", "inbound-apiServer"))
	f.right.awaitReachability("left", func(r api.Reachability) bool {
		return r.Inbound.APIServer.Code == "PST0306" && allOK(r.Inbound.Gateway, r.Inbound.Auth, r.Outbound.Gateway, r.Outbound.Auth, r.Outbound.APIServer)
	})
	f.left.awaitReachability("right", func(r api.Reachability) bool { // right reaches it
		return r.Outbound.APIServer.Code == "PST0306" && allOK(r.Inbound.APIServer)
	})

	f.right.api.binds("postern:peer:left")
	f.healed()
	f.right.awaitReachability("left", func(r api.Reachability) bool { return r.Inbound.APIServer.Verdict == api.OK })

	// Once nothing comes from left any more, the cell is no longer ok.
	f.left.stop(syscall.SIGKILL)
	f.right.awaitReachability("left", func(r api.Reachability) bool {
		return r.Outbound.Gateway.Verdict == api.Error && r.Inbound.Gateway.Verdict == api.Unknown &&
			r.Inbound.Auth.Verdict == api.Unknown && r.Inbound.APIServer.Verdict == api.Unknown
	})
}

// awaitReachability waits until a side's cells of a peer satisfy ok.
func (w *ward) awaitReachability(peer string, ok func(api.Reachability) bool) {
	w.t.Helper()
	eventually(within(w.t, patience), w.t, "the cells of "+peer+" at "+w.name+" are as wanted", func() (bool, string) {
		p, _ := w.peer(peer)
		return ok(p.Reachability), fmt.Sprintf("%+v", p.Reachability)
	})
}

func allOK(verdicts ...api.Verdict) bool {
	return !slices.ContainsFunc(verdicts, func(v api.Verdict) bool { return v.Verdict != api.OK })
}
