//go:build linux && e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// hasHost reports whether an "ip" or "ip:port" has that IP address.
func hasHost(text, ip string) bool { return text == ip || strings.HasPrefix(text, ip+":") }

// TestNoUDPOnOneSide: a gateway whose network passes no UDP meets others on a relay that it
// reaches over TCP.
func TestNoUDPOnOneSide(t *testing.T) {
	t.Parallel()
	for _, left := range []access{dial, portRestricted, symmetric} {
		t.Run(left.name, func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := newSites(t, left, portRestricted, ways{})
				noUDP := s.right.nat.Drop(`iifname "l0" meta l4proto udp`)
				s.start()
				start := time.Now()
				s.enrol(s.left, s.right)
				traffic := openStream(within(t, patience), t, s.right, s.left)
				traffic.late = late
				s.awaitPath(api.PathRelay, patience)
				took := time.Since(start)
				t.Logf("relayed %v after the start of join", took.Round(100*time.Millisecond))
				late("until it was relayed", took, repairWithin)
				n, _, _ := s.right.netCheck()
				if len(n.TURNServers) != 1 || n.TURNServers[0].Transport != "tcp" {
					t.Errorf("netcheck has TURN servers %+v, want one reached over tcp", n.TURNServers)
				}
				if c, err := noUDP.Dropped(within(t, patience)); err != nil || c.Packets == 0 {
					t.Errorf("the filter saw %d datagrams, %v: want some, or it blocks nothing", c.Packets, err)
				}
				traffic.check(upgradeWithin)
			})
		})
	}
}

// hardened is a relay behind a one-to-one NAT whose operator denies peers in private ranges, as
// the manuals recommend.
func hardened(o *netlab.TURNOptions) { o.DeniedPeers = netlab.PrivateRanges() }

func TestHardenedRelay(t *testing.T) {
	t.Parallel()
	t.Run("private ranges denied", func(t *testing.T) {
		t.Parallel()
		onTime(t, func(late lateness) {
			s := started(t, symmetric, symmetric, ways{turn: hardened})
			traffic := openStream(within(t, patience), t, s.right, s.left)
			traffic.late = late
			s.awaitPath(api.PathRelay, patience)
			traffic.check(upgradeWithin)
		})
	})
	t.Run("behind a one-to-one NAT", func(t *testing.T) {
		t.Parallel()
		onTime(t, func(late lateness) {
			s := newSites(t, symmetric, symmetric, ways{turn: hardened})
			s.moveRelayBehindNAT()
			s.start()
			s.enrol(s.left, s.right)
			traffic := openStream(within(t, patience), t, s.right, s.left)
			traffic.late = late
			s.awaitPath(api.PathRelay, patience)
			traffic.check(upgradeWithin)
		})
	})
	// A relay that denies its own address cannot connect two of its users, which two symmetric
	// NATs need. Both ends must be told.
	t.Run("its own address denied", func(t *testing.T) {
		t.Parallel()
		s := newSites(t, symmetric, symmetric, ways{turn: func(o *netlab.TURNOptions) {
			o.DeniedPeers = append(netlab.PrivateRanges(), relayAddr+"-"+relayAlt)
		}})
		s.start()
		ticket := s.left.invite("--allow", streamService)
		r := s.right.postern(within(t, patience), "join", ticket, "--wait", "5s")
		if r.code != 1 {
			t.Errorf("join without a way: exit code %d, want 1\n%s", r.code, r.stderr)
		}
		refusal := func(n api.NetCheck) bool {
			texts := slices.Clone(n.Hints)
			for _, server := range n.TURNServers {
				texts = append(texts, server.Error)
			}
			return slices.ContainsFunc(texts, func(text string) bool {
				return strings.Contains(text, relayAddr) && (strings.Contains(text, "403") || strings.Contains(text, "denie") || strings.Contains(text, "refuse"))
			})
		}
		eventually(within(t, patience), t, "netcheck names the refusal", func() (bool, string) {
			n, _, stderr := s.right.netCheck()
			return refusal(n), strings.Join(n.Hints, "\n") + stderr
		})
	})
}

// moveRelayBehindNAT gives the relay a private address behind a one-to-one NAT, and restarts it
// with the public one as external address.
func (s *sites) moveRelayBehindNAT() {
	s.t.Helper()
	const inner, router = "10.0.0.3", "10.0.0.1"
	s.relay.Stop()
	dmz := s.lab.Network("dmz", netip.MustParsePrefix("10.0.0.0/24"))
	front := s.lab.Router("front")
	front.Attach("eth0", s.servers, netip.MustParseAddr("192.0.2.9"))
	front.Attach("eth1", dmz, netip.MustParseAddr(router))
	front.DefaultRoute(netip.MustParseAddr("192.0.2.1"))
	s.core.Route(netip.MustParsePrefix(relayAddr+"/32"), netip.MustParseAddr("192.0.2.9"))
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for _, rule := range []string{
		"add table ip onetoone",
		"add chain ip onetoone pre { type nat hook prerouting priority dstnat; }",
		"add chain ip onetoone post { type nat hook postrouting priority srcnat; }",
		"add rule ip onetoone pre ip daddr " + relayAddr + " dnat to " + inner,
		"add rule ip onetoone post ip saddr " + inner + " snat to " + relayAddr,
	} {
		if _, err := front.Run(ctx, "nft", rule); err != nil {
			s.t.Fatal(err)
		}
	}
	h := s.lab.Host("inner-relay")
	h.Attach("eth0", dmz, netip.MustParseAddr(inner))
	h.DefaultRoute(netip.MustParseAddr(router))
	o := netlab.TURNOptions{
		Listen: []netip.Addr{netip.MustParseAddr(inner)}, External: netip.MustParseAddr(relayAddr),
		Username: turnUser, Password: turnPassword,
	}
	hardened(&o)
	s.relay = h.StartTURN(o)
}

// TestTicketsHoldNoRelayCredential decodes a ticket with a relayed address.
func TestTicketsHoldNoRelayCredential(t *testing.T) {
	t.Parallel()
	s := newSites(t, symmetric, symmetric, ways{})
	s.left.start()
	eventually(within(t, patience), t, "a relayed candidate is known, before the ticket", func() (bool, string) {
		got := s.left.status().Gateway.Candidates
		return slices.ContainsFunc(got, func(c api.Candidate) bool { return c.Source == api.SourceRelay && hasHost(c.Address, relayAddr) }), fmt.Sprint(got)
	})
	text := s.left.invite()
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(strings.TrimPrefix(text, "postern1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{turnUser, turnPassword} {
		if bytes.Contains(raw, []byte(secret)) || strings.Contains(text, secret) {
			t.Errorf("the ticket holds %q", secret)
		}
	}
	if ip := netip.MustParseAddr(relayAddr).As4(); !bytes.Contains(raw, ip[:]) {
		t.Error("the ticket lacks the relay's address")
	}
}

// searchedWithin bounds how long a stream stalls after the only relay was restarted. Usually it
// is 5 to 10 s; a busy relay loses probes, and then the next round of the search finds the peer.
const searchedWithin = time.Minute

// TestTheOnlyRelayRestarts makes two symmetric NATs lose every allocation on their only relay.
// Each side allocates again, on another port, and cannot tell the other: they find each other by
// probing the relay's ports.
func TestTheOnlyRelayRestarts(t *testing.T) {
	t.Parallel()
	s := started(t, symmetric, symmetric, ways{})
	traffic := openStream(within(t, patience), t, s.right, s.left)
	s.awaitPath(api.PathRelay, patience)
	before := s.allocated()
	s.relay.Stop()
	s.relay.Start()
	traffic.mark()
	eventually(within(t, patience), t, "both have allocated again", func() (bool, string) {
		now := s.relayedAddresses()
		return now[0] != "" && now[1] != "" && now[0] != before[0] && now[1] != before[1], strings.Join(append(before[:], now[:]...), " ")
	})
	openStream(within(t, patience), t, s.right, s.left)
	traffic.watch(observed)
	t.Logf("the stream rested for %v", traffic.check(searchedWithin).Round(time.Millisecond))
	s.awaitPath(api.PathRelay, patience)
	s.report()
}

// allocated waits until both sides can be reached on a relay, and returns the addresses.
func (s *sites) allocated() (at [2]string) {
	s.t.Helper()
	eventually(within(s.t, patience), s.t, "both have allocated", func() (bool, string) {
		at = s.relayedAddresses()
		return !slices.Contains(at[:], ""), strings.Join(at[:], " ")
	})
	return at
}

// relayedAddresses returns the addresses of both sides on a relay.
func (s *sites) relayedAddresses() (out [2]string) {
	s.t.Helper()
	for i, x := range s.both() {
		for _, c := range x.status().Gateway.Candidates {
			if c.Source == api.SourceRelay {
				out[i] = c.Address
			}
		}
	}
	return out
}

// TestBothRestartAtOnce restarts both gateways of a pair at once, so that neither can tell the
// other its new address. They connect again because each adopts its allocation on the only relay.
func TestBothRestartAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		left, right access
		kind        string
		sig         syscall.Signal
	}{
		{"symmetric, SIGKILL", symmetric, symmetric, api.PathRelay, syscall.SIGKILL},
		{"symmetric, SIGTERM", symmetric, symmetric, api.PathRelay, syscall.SIGTERM},
		{"port-restricted, SIGKILL", portRestricted, portRestricted, api.PathDirect, syscall.SIGKILL},
		{"symmetric and port-restricted, SIGKILL", symmetric, portRestricted, api.PathRelay, syscall.SIGKILL},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := started(t, c.left, c.right, ways{})
				s.offerBack(s.left, s.right)
				s.awaitPath(c.kind, patience)
				openStream(within(t, patience), t, s.right, s.left)
				for round := range 2 {
					before := s.allocated()
					s.left.signal(c.sig)
					s.right.signal(c.sig)
					s.left.waitEnd()
					s.right.waitEnd()
					start := time.Now()
					s.left.launch()
					s.right.launch()
					openStream(within(t, patience), t, s.right, s.left)
					there := time.Since(start)
					openStream(within(t, patience), t, s.left, s.right)
					both := time.Since(start)
					t.Logf("round %d: a stream runs %v after the start of both, and one back after %v", round+1,
						there.Round(10*time.Millisecond), both.Round(10*time.Millisecond))
					late("until both directions work again", both, repairWithin)
					s.left.waitReady()
					s.right.waitReady()
					if after := s.allocated(); after != before {
						t.Errorf("relayed addresses are %v, want %v as before", after, before)
					}
					s.awaitPath(c.kind, patience)
					t.Logf("round %d: %s again after %v", round+1, c.kind, time.Since(start).Round(10*time.Millisecond))
				}
				s.report()
			})
		})
	}
}

// signal ends the gateway.
func (x *site) signal(sig syscall.Signal) {
	x.t.Helper()
	if err := x.proc.Signal(sig); err != nil {
		x.t.Fatal(err)
	}
}

// waitEnd waits for its end.
func (x *site) waitEnd() {
	x.t.Helper()
	if _, err := x.proc.Wait(within(x.t, patience)); err != nil {
		x.t.Fatal(err)
	}
}
