package lan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestGatewaysFindEachOther(t *testing.T) {
	inTime(t, func(t *testing.T) {
		_, hosts := segment(t, "a", "b", "c")
		for _, h := range hosts {
			h.run()
		}
		pass(3 * time.Second)
		hosts[0].want("b@eth1", "c@eth1")
		hosts[1].want("a@eth1", "c@eth1")
		hosts[2].want("a@eth1", "b@eth1")
		got := hosts[0].Found()[0]
		want := []netip.AddrPort{netip.MustParseAddrPort(v4(2) + ":51820"), netip.MustParseAddrPort("[" + v6(2) + "]:51820")}
		if got.PublicKey != keyOfTest(2) || got.Overlay != peer.OverlayAddr(keyOfTest(2)) || !slices.Equal(got.Addresses, want) || !got.Err.IsZero() || got.Member {
			t.Errorf("got %+v, want the key of b at %v", got, want)
		}
		if left := time.Until(got.Expires); left < 100*time.Second || left > DefaultTTL {
			t.Errorf("it expires in %v, want about %v", left, DefaultTTL)
		}
		if s := hosts[0].Status(); !s.Announced || s.Name != "a" || len(s.Links) != 1 || !s.Links[0].IPv4 || !s.Links[0].IPv6 || s.Links[0].Heard.IsZero() {
			t.Errorf("status %+v", s)
		}
		// An hour later they still know each other, and the wire has been quiet.
		pass(time.Hour)
		hosts[0].want("b@eth1", "c@eth1")
		if n := hosts[0].changes; n > 3 {
			t.Errorf("it told of %d changes, want one for each gateway", n)
		}
	})
}

// The traffic of three gateways in an hour, once they know each other.
func TestTheWireIsQuiet(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "a", "b", "c")
		for _, h := range hosts {
			h.run()
		}
		pass(time.Minute)
		from := time.Now()
		pass(time.Hour)
		bytes := 0
		all := w.since(netip.Addr{}, from)
		for _, s := range all {
			bytes += len(s.data)
		}
		t.Logf("%d messages, %d bytes in an hour", len(all), bytes)
		// Each record is refreshed every 96 s, by a question and an answer in both families.
		if most := 3 * 3600 / 96 * 2 * 2 * 3 / 2; len(all) > most {
			t.Errorf("%d messages, want at most %d", len(all), most)
		}
	})
}

func TestNothingIsSentBeforeRun(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "a")
		pass(time.Hour)
		if n := len(w.since(netip.Addr{}, time.Time{})); n != 0 || len(hosts[0].Found()) != 0 || !hosts[0].Status().Since.IsZero() {
			t.Errorf("%d messages were sent", n)
		}
	})
}

func TestAStoppedGatewayIsForgottenAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		_, hosts := segment(t, "a", "b")
		hosts[0].run()
		hosts[1].run()
		pass(3 * time.Second)
		hosts[0].want("b@eth1")
		hosts[1].stop()
		pass(flushWait + 10*time.Millisecond)
		hosts[0].want()
	})
}

func TestAKilledGatewayIsAskedForAndForgotten(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w, hosts := segment(t, "a", "b")
		for _, h := range hosts {
			h.run()
		}
		pass(20 * time.Second)
		killed := time.Now()
		heard := hosts[0].Found()[0].LastSeen
		w.kill(netip.MustParseAddr(v4(2)), netip.MustParseAddr(v6(2)))
		pass(DefaultTTL - time.Since(heard) - time.Second)
		hosts[0].want("b@eth1")
		var points []string
		for _, s := range w.since(netip.MustParseAddr(v4(1)), killed) {
			for _, q := range s.msg(t).Question {
				if fold(q.Name) == instanceName("b") && q.Qtype == dns.TypeSRV {
					points = append(points, fmt.Sprint(int(s.at.Sub(heard)*100/DefaultTTL)/5*5))
				}
			}
		}
		if got := strings.Join(points, " "); got != "80 85 90 95" {
			t.Errorf("asked for at %s %% of its life, want 80 85 90 95", got)
		}
		pass(2 * time.Second)
		hosts[0].want()
	})
}

func TestTheTTLIsAnOption(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := &wireNet{}
		a, b := newHost(t, "a", 1), newHost(t, "b", 2, func(o *Options) { o.TTL = 6 * time.Second })
		a.plug(1, w, v4(1)+"/24")
		b.plug(1, w, v4(2)+"/24")
		a.run()
		b.run()
		pass(time.Minute)
		a.want("b@eth1")
		w.kill(netip.MustParseAddr(v4(2)))
		pass(7 * time.Second)
		a.want()
	})
	for _, ttl := range []time.Duration{time.Second, 2 * time.Hour} {
		if _, err := New(Options{Name: "a", PublicKey: keyOfTest(1), Port: func() uint16 { return 1 }, TTL: ttl}); err == nil {
			t.Errorf("a TTL of %v was taken", ttl)
		}
	}
}

func TestInterfacesComeAndGo(t *testing.T) {
	inTime(t, func(t *testing.T) {
		left, right := &wireNet{}, &wireNet{}
		a, b, c := newHost(t, "a", 1), newHost(t, "b", 2), newHost(t, "c", 3)
		a.plug(1, left, "192.168.1.1/24")
		b.plug(1, left, "192.168.1.2/24")
		c.plug(1, right, "192.168.2.3/24")
		for _, h := range []*host{a, b, c} {
			h.run()
		}
		pass(3 * time.Second)
		a.want("b@eth1")
		a.plug(2, right, "192.168.2.1/24")
		pass(lookEvery + 3*time.Second)
		a.want("b@eth1", "c@eth2")
		// On each link the addresses of that link are announced.
		if got := c.Found()[0].Addresses; !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("192.168.2.1:51820")}) {
			t.Errorf("c has a at %v, want at its address there", got)
		}
		a.plug(1, nil)
		pass(lookEvery + time.Second)
		a.want("c@eth2")
		// Another address on the same interface replaces the old one.
		a.plug(2, right, "192.168.2.77/24")
		pass(lookEvery + 3*time.Second)
		if got := c.Found()[0].Addresses; !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("192.168.2.77:51820")}) {
			t.Errorf("c has a at %v, want at its new address", got)
		}
	})
}

func TestThePortIsAnnouncedWhenItIsThere(t *testing.T) {
	inTime(t, func(t *testing.T) {
		_, hosts := segment(t, "a", "b")
		b := hosts[1]
		b.port = 0
		hosts[0].run()
		b.run()
		pass(10 * time.Second)
		hosts[0].want()
		b.want("a@eth1")
		for _, port := range []uint16{4000, 5000} {
			b.setPort(port)
			pass(3 * time.Second)
			hosts[0].want("b@eth1")
			if got := hosts[0].Found()[0].Addresses[0].Port(); got != port {
				t.Errorf("the port found is %d, want %d", got, port)
			}
		}
	})
}

// One family is enough.
func TestANetworkOfIPv6Alone(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := &wireNet{}
		a, b := newHost(t, "a", 1), newHost(t, "b", 2)
		a.plug(1, w, linkLocal(1)+"/64", v6(1)+"/64")
		b.plug(1, w, linkLocal(2)+"/64", v6(2)+"/64")
		a.run()
		b.run()
		pass(3 * time.Second)
		a.want("b@eth1")
		if got := a.Found()[0].Addresses; !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("[" + v6(2) + "]:51820")}) {
			t.Errorf("b is found at %v, want its address that is not link-local", got)
		}
		b.want("a@eth1")
	})
}

// Two gateways on one host share an address and the multicast DNS port.
func TestTwoGatewaysOfOneHost(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := &wireNet{}
		a, b := newHost(t, "a", 1), newHost(t, "b", 2)
		a.plug(1, w, v4(1)+"/24")
		b.plug(1, w, v4(1)+"/24")
		a.run()
		b.run()
		pass(3 * time.Second)
		a.want("b@eth1")
		b.want("a@eth1")
	})
}

// Two interfaces of one host may be on one wire.
func TestOneWireTwice(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := &wireNet{}
		a, b := newHost(t, "a", 1), newHost(t, "b", 2)
		a.plug(1, w, "192.168.1.1/24")
		a.plug(2, w, "192.168.1.2/24")
		b.plug(1, w, "192.168.1.3/24")
		a.run()
		b.run()
		pass(10 * time.Second)
		b.want("a@eth1")
		a.want("b@eth1", "b@eth2")
		if s := a.Status(); s.Name != "a" {
			t.Errorf("it has a quarrel with itself: %+v", s)
		}
	})
}

func TestMembersAreRecognised(t *testing.T) {
	inTime(t, func(t *testing.T) {
		secret, other := peer.PresharedKeyFromBytes([32]byte{1}), peer.PresharedKeyFromBytes([32]byte{2})
		with := func(s peer.PresharedKey) func(*Options) { return func(o *Options) { o.Secret = s } }
		w := &wireNet{}
		hosts := []*host{
			newHost(t, "a", 1, with(secret)), newHost(t, "b", 2, with(secret)), newHost(t, "c", 3, with(other)), newHost(t, "d", 4),
			newHost(t, "b", 5, with(secret)), // becomes b (2), with a proof for that name
		}
		for n, h := range hosts {
			h.plug(1, w, v4(n+1)+"/24")
			h.run()
			pass(time.Second)
		}
		pass(5 * time.Second)
		got := map[string]bool{}
		for _, i := range hosts[0].Found() {
			got[i.Name.String()] = i.Member
		}
		want := map[string]bool{"b": true, "b (2)": true, "c": false, "d": false}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("members: got %v, want %v", got, want)
		}
		for _, s := range w.since(netip.Addr{}, time.Time{}) {
			if strings.Contains(string(s.data), secret.Base64()) {
				t.Fatal("the secret is on the wire")
			}
		}
	})
}

// An announcement repeated under another name, or with another key, proves nothing.
func TestAProofIsForOneKeyAndOneName(t *testing.T) {
	secret := peer.PresharedKeyFromBytes([32]byte{1})
	honest := text{key: keyOfTest(1), proof: Proof(secret, keyOfTest(1), "edge")}
	if !honest.proves(secret, "edge") {
		t.Fatal("a member is not recognised")
	}
	stolen := text{key: keyOfTest(2), proof: honest.proof}
	if stolen.proves(secret, "edge") || honest.proves(secret, "cloud") || honest.proves(peer.PresharedKey{}, "edge") {
		t.Error("a proof counts for another key, another name or without a secret")
	}
	want := "fcab6cab" // computed independently
	if got := fmt.Sprintf("%x", Proof(secret, keyOfTest(1), "edge")[:4]); got != want {
		t.Errorf("the proof begins with %s, want %s: others compute it too", got, want)
	}
}

func TestASecondRunIsRefused(t *testing.T) {
	inTime(t, func(t *testing.T) {
		_, hosts := segment(t, "a")
		hosts[0].run()
		pass(time.Second)
		if err := hosts[0].Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("got %v, want %v", err, ErrRunning)
		}
	})
}
