package simnet_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/simnet"
)

func TestTTL(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		nat := in.nat("nat", "198.51.100.7", nil, simnet.FullCone())
		a := in.listen(in.host("a", "10.0.0.1", nat.Inside(), simnet.Conditions{}), 1)
		b := in.listen(in.host("b", "192.0.2.1", nil, simnet.Conditions{Hops: 3}), 2)
		to := netip.MustParseAddrPort("192.0.2.1:2")
		for ttl := uint8(1); ttl <= 6; ttl++ { // NAT, internet, three routers
			if _, err := a.WriteToTTL([]byte{ttl}, to, ttl); err != nil {
				t.Fatal(err)
			}
		}
		in.receive(b, "\x06")
		in.nothing(b)
		for range 5 {
			if e := <-a.ICMP(); e.Kind != simnet.TimeExceeded || e.To != to {
				t.Errorf("got %+v, want time exceeded for %v", e, to)
			}
		}
	})
}

func TestMTU(t *testing.T) {
	for _, silent := range []bool{false, true} {
		virtually(t, 1, func(t *testing.T, in internet) {
			a := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{}), 1)
			b := in.listen(in.host("b", "192.0.2.2", nil, simnet.Conditions{MTU: 1400, SilentMTU: silent}), 2)
			text := strings.Repeat("x", 1400-28)
			in.send(a, text, "192.0.2.2:2")
			in.receive(b, text)
			in.send(a, text+"x", "192.0.2.2:2")
			in.nothing(b)
			select {
			case e := <-a.ICMP():
				if silent || e.Kind != simnet.PacketTooBig || e.MTU != 1400 {
					t.Errorf("got %+v, silent %v", e, silent)
				}
			default:
				if !silent {
					t.Error("no ICMP error came back")
				}
			}
			if _, err := a.WriteToUDPAddrPort(make([]byte, 1473), netip.MustParseAddrPort("192.0.2.2:2")); !errors.Is(err, syscall.EMSGSIZE) {
				t.Errorf("more than the MTU of its own link: got %v, want EMSGSIZE", err)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		ha, hb := in.host("a", "192.0.2.1", nil, simnet.Conditions{}), in.host("b", "192.0.2.2", nil, simnet.Conditions{})
		a, b := in.listen(ha, 1), in.listen(hb, 2)
		works := func(name string, want bool) {
			t.Helper()
			in.send(a, name, "192.0.2.2:2")
			if want {
				in.receive(b, name)
			} else {
				in.nothing(b)
			}
		}
		works("at first", true)
		hb.Link().SetDown(true)
		works("link down", false)
		hb.Link().SetDown(false)
		works("link up", true)
		if err := ha.Link().SetConditions(simnet.Up, simnet.Conditions{Loss: 1}); err != nil {
			t.Fatal(err)
		}
		works("all lost", false)
		if err := ha.Link().SetConditions(simnet.Up, simnet.Conditions{Delay: time.Second}); err != nil {
			t.Fatal(err)
		}
		works("slow", true)
		hb.Link().SetFirewall(simnet.Firewall{Stateful: true})
		works("firewall", false)
		in.send(b, "opens", "192.0.2.1:1")
		in.receive(a, "opens")
		works("firewall opened", true)
		if err := hb.SetAddrs(addrs("192.0.2.3")...); err != nil {
			t.Fatal(err)
		}
		works("moved", false)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		want := map[simnet.Reason]uint64{
			simnet.DropLinkDown: 1, simnet.DropLoss: 1, simnet.DropFirewall: 1, simnet.DropNoRoute: 1,
		}
		if got := in.Dropped(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("dropped: got %v, want %v", got, want)
		}
		c := ha.Link().Counters(simnet.Up)
		if c.Packets != 8 || c.Dropped[simnet.DropLoss] != 1 || c.Bytes == 0 {
			t.Errorf("counters of a's uplink: got %+v, want 8 packets, one lost", c)
		}
	})
}

func TestTaps(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		ha := in.host("a", "192.0.2.1", nil, simnet.Conditions{})
		a := in.listen(ha, 1)
		var seen []string
		remove := ha.Link().Tap(func(d simnet.Datagram, way simnet.Direction) {
			seen = append(seen, fmt.Sprintf("%v %v→%v %s", way, d.Src, d.Dst, d.Payload))
		})
		in.send(a, "one", "192.0.2.9:9")
		remove()
		in.send(a, "two", "192.0.2.9:9")
		if want := "[up 192.0.2.1:1→192.0.2.9:9 one]"; fmt.Sprint(seen) != want {
			t.Errorf("got %v, want %s", seen, want)
		}
	})
}
