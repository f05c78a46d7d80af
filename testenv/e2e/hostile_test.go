//go:build linux && e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// serviceRange is the Service range in the victim's configuration.
const serviceRange = "10.96.0.0/12"

// hostileAddrs are addresses that a peer may announce and to which nobody may be made to send:
// loopback, link-local including the clouds' metadata service, multicast, reserved and
// unspecified addresses, the victim's own Service range and its own address.
func hostileAddrs() []string {
	return []string{
		"127.0.0.1", "127.8.8.8", "169.254.169.254", "169.254.1.1", "224.0.0.251", "239.1.2.3", "255.255.255.255",
		"240.0.0.1", "0.0.0.0", "0.1.2.3", "10.96.0.1", "10.111.255.254", rightPublic,
		"::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
	}
}

// forbidden returns the nftables matches of these addresses.
func forbidden() []string {
	return []string{
		"ip daddr { 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 240.0.0.0/4, " + serviceRange + ", " + rightPublic + " }",
		"ip6 daddr { ::1, fe80::/10, ff00::/8 }",
	}
}

// TestHostileCandidates has a peer announce harmful addresses, and 10,000 of them, in-band and by
// configuration.
func TestHostileCandidates(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	s := newSites(t, dial, dial, ways{configure: func(spec *api.GatewaySpec) {
		spec.Discovery.Exclude = []string{serviceRange}
		spec.Peers = []api.Peer{{Name: "hostile", PublicKey: key.Public().String(), Endpoints: []string{leftPublic + ":51820"}}}
	}})
	wrong := s.right.host.MeterSent(forbidden()...)
	benign := s.right.host.MeterSent("ip daddr 203.0.113.99")
	s.right.start()
	r := hostilePeer(t, s, key)
	seq := uint64(0)
	tell := func(candidates []path.Candidate) {
		t.Helper()
		seq++
		code, answer, err := r.post(within(t, patience), "/v1/path", path.Message{Version: "1.0", Boot: 1, Seq: seq, Candidates: candidates})
		if len(candidates) > 200 && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
			return // refused while the rest was still being sent: the reset may arrive before the 413
		}
		if err != nil {
			t.Fatal(err)
		}
		if code != http.StatusOK && code != http.StatusRequestEntityTooLarge {
			t.Errorf("%d candidates: status %d %s, want 200, or 413 for too many", len(candidates), code, answer)
		}
	}
	for _, source := range []string{api.SourceHost, api.SourceSTUN, api.SourceAdvertised, api.SourceRelay, api.SourceLAN, api.SourcePeer} {
		tell(hostileCandidates(source))
	}
	tell(manyCandidates(10_000))
	for range 50 {
		tell(manyCandidates(200))
	}
	tell(append(hostileCandidates(api.SourceHost), candidate("203.0.113.99", 9, api.SourceHost)))
	// Something must be sent to the harmless one, or the test would prove nothing.
	eventually(within(t, patience), t, "the harmless candidate is tried", func() (bool, string) {
		_, sent, err := benign.Read(within(t, patience))
		return err == nil && sent.Packets > 0, fmt.Sprint(sent.Packets, err)
	})
	select {
	case <-time.After(observed): // every candidate's first probes are over by then
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	if _, sent, err := wrong.Read(within(t, patience)); err != nil || sent.Packets != 0 {
		t.Errorf("%d datagrams were sent where none may be, %v", sent.Packets, err)
	}
	p, found := s.right.peer("hostile")
	const most = 64
	if !found || len(p.Candidates) > most {
		t.Errorf("the peer is there: %v, with %d candidates, want at most %d", found, len(p.Candidates), most)
	}
}

// hostilePeer is a stock WireGuard tunnel to the right gateway, which takes it for a gateway.
func hostilePeer(t *testing.T, s *sites, key peer.PrivateKey) *rawPeer {
	t.Helper()
	gw := s.right.status().Gateway
	w := newStock(t, s.left.host, key, peer.OverlayAddr(key.Public()).String())
	w.listen(gatewayPort)
	w.connect(gw.PublicKey, fmt.Sprintf("%s:%d", rightPublic, gatewayPort), gw.Address+"/128")
	return &rawPeer{stock: w, gateway: gw.Address}
}

func candidate(addr string, port uint16, source string) path.Candidate {
	return path.Candidate{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), port), Source: source}
}

func hostileCandidates(source string) []path.Candidate {
	var out []path.Candidate
	for _, a := range hostileAddrs() {
		out = append(out, candidate(a, 53, source), candidate(a, gatewayPort, source))
	}
	return out
}

// manyCandidates returns n different candidates in an unused range, with a hostile one first.
func manyCandidates(n int) []path.Candidate {
	out := []path.Candidate{candidate("127.0.0.1", 1, api.SourceHost)}
	for i := 1; i < n; i++ {
		a := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i%100)})
		out = append(out, path.Candidate{Addr: netip.AddrPortFrom(a, uint16(1024+i)), Source: api.SourceHost})
	}
	return out
}

// TestPathNamesEveryCandidate compares the text with the status.
func TestPathNamesEveryCandidate(t *testing.T) {
	t.Parallel()
	s := started(t, dial, portRestricted, ways{})
	s.awaitPath(api.PathDirect, patience)
	for _, x := range s.both() {
		peerName := s.other(x).name
		// A candidate may appear or disappear between the two commands.
		eventually(within(t, patience), t, x.name+" names every candidate", func() (bool, string) {
			p, _ := x.peer(peerName)
			text := x.must("path", peerName)
			return len(p.Candidates) > 1 && missingCandidate(p, text) == "", missingCandidate(p, text) + "\n" + text
		})
		p, _ := x.peer(peerName)
		if p.Path.Reason == "" || p.Path.RTTSeconds <= 0 || p.Path.Source == "" || p.Path.Since == nil || p.Path.MTU < 1280 {
			t.Errorf("%s: the path lacks reason, round trip, source, time or MTU: %+v", x.name, p.Path)
		}
		t.Logf("%s\n%s", x.name, x.must("path", peerName))
	}
}

// missingCandidate says what the output of `path` lacks about a candidate; "" if nothing.
func missingCandidate(p api.PeerStatus, text string) string {
	for _, c := range p.Candidates {
		line := ""
		for l := range strings.Lines(text) {
			via := strings.Contains(l, " via ")
			if !strings.HasPrefix(l, "path to") && strings.Contains(l, c.Address) && strings.Contains(l, c.Source) && via == (c.Relay != "") && strings.Contains(l, c.Relay) {
				line = l
				break // what follows the table is history
			}
		}
		switch {
		case line == "":
			return fmt.Sprintf("no line names %s (%s)", c.Address, c.Source)
		case c.State == "" || !strings.Contains(line, c.State):
			return fmt.Sprintf("no state in %q, it is %q", line, c.State)
		case c.RTTSeconds <= 0 && c.Reason == "":
			return fmt.Sprintf("%s has neither a round trip nor a reason", c.Address)
		}
	}
	return ""
}
