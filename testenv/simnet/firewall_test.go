package simnet

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestFirewall(t *testing.T) {
	type step struct {
		at   time.Duration
		out  bool
		pass bool
	}
	const s = time.Second
	d := Datagram{Src: inside1, Dst: remote1}
	back := Datagram{Src: remote1, Dst: inside1}
	for _, c := range []struct {
		name  string
		rules Firewall
		steps []step
	}{
		{"none", Firewall{}, []step{{0, false, true}, {0, true, true}}},
		{"drop in", Firewall{DropIn: true}, []step{{0, true, true}, {0, false, false}}},
		{"drop out", Firewall{DropOut: true}, []step{{0, true, false}, {0, false, true}}},
		{"stateful", Firewall{Stateful: true}, []step{{0, false, false}, {0, true, true}, {119 * s, false, true}, {238 * s, false, true}, {358 * s, false, false}}},
		{"stateful, own timeout", Firewall{Stateful: true, Timeout: s}, []step{{0, true, true}, {s, false, false}}},
		{"open port", Firewall{Stateful: true, DropIn: true, AllowPorts: []uint16{51820}}, []step{{0, false, true}}},
		{"other port open", Firewall{DropIn: true, AllowPorts: []uint16{51821}}, []step{{0, false, false}}},
		{"rule", Firewall{Drop: func(_ Datagram, out bool) bool { return out }}, []step{{0, true, false}, {0, false, true}}},
	} {
		f := newFirewall(c.rules)
		for i, st := range c.steps {
			x := back
			if st.out {
				x = d
			}
			if got := f.passes(epoch.Add(st.at), x, st.out); got != st.pass {
				t.Errorf("%s, step %d: passes %v, want %v", c.name, i, got, st.pass)
			}
		}
	}
	f := newFirewall(Firewall{Stateful: true})
	f.passes(epoch, d, true)
	if f.passes(epoch, Datagram{Src: otherPort, Dst: inside1}, false) {
		t.Error("a stateful firewall lets another port of the same address in")
	}
}

func TestAFirewallThatRejectsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := New(Options{})
		defer in.Close()
		router, to := netip.MustParseAddr("192.0.2.254"), netip.MustParseAddrPort("192.0.2.2:7")
		a, err := in.AddHost(HostOptions{Name: "a", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			Link: LinkOptions{Firewall: Firewall{DropOut: true, Reject: &Rejection{Prohibited, router}}}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.ListenUDP(5)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WriteToUDPAddrPort([]byte("x"), to); err != nil {
			t.Fatal(err)
		}
		if got, want := <-c.ICMP(), (ICMP{Kind: Prohibited, To: to, By: router}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}
