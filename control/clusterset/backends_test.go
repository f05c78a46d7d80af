package clusterset

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/mcs"
)

func addrs(n int) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range n {
		out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80))
	}
	return out
}

func TestConnectionsAreSpread(t *testing.T) {
	var b backends
	b.set(addrs(4), mcs.Affinity{})
	got := map[netip.AddrPort]int{}
	for range 400 {
		got[b.Pick("cloud", 0, nil).AddrPort]++
	}
	for _, a := range addrs(4) {
		if got[a] != 100 {
			t.Errorf("%s has %d of 400", a, got[a])
		}
	}
	if a := b.Pick("cloud", 0, addrs(3)); a.AddrPort != addrs(4)[3] {
		t.Errorf("after three were tried it is %s", a.AddrPort)
	}
	if a := b.Pick("cloud", 0, addrs(4)); a.IsValid() {
		t.Errorf("after all were tried it is %s", a.AddrPort)
	}
}

// A thousand clients keep their backends whatever comes and goes. Those of a removed backend are
// spread over the others.
func TestClientsKeepTheirBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := addrs(5)
		b := &backends{}
		affinity := mcs.Affinity{ClientIP: true, Timeout: time.Hour}
		b.set(all[:4], affinity)
		pick := func(b *backends) map[netip.Addr]netip.AddrPort {
			out := map[netip.Addr]netip.AddrPort{}
			for i := range 1000 {
				client := netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})
				out[client] = b.Pick("edge", nthOf(client, mcs.Spread), nil).AddrPort
			}
			return out
		}
		moved := func(before, now map[netip.Addr]netip.AddrPort) (n int) {
			for client, a := range before {
				if now[client] != a {
					n++
				}
			}
			return n
		}
		first := pick(b)
		load := map[netip.AddrPort]int{}
		for _, a := range first {
			load[a]++
		}
		if len(load) < 3 {
			t.Errorf("1000 clients are spread so: %v", load)
		}
		time.Sleep(affinity.Timeout / 2)
		b.set(all, affinity) // one more
		if n := moved(first, pick(b)); n != 0 {
			t.Errorf("%d clients moved when a backend came", n)
		}
		again := &backends{} // a restart
		again.set(all[:4], affinity)
		if n := moved(first, pick(again)); n != 0 {
			t.Errorf("%d clients moved with a restart", n)
		}
		gone := all[0]
		b.set(all[1:], affinity)
		second := pick(b)
		if n := moved(first, second); n != load[gone] {
			t.Errorf("%d clients moved when the backend of %d went", n, load[gone])
		}
		// Clients that pause for longer than the timeout may get any backend.
		b.set(all, affinity)
		time.Sleep(affinity.Timeout)
		if n := moved(first, pick(b)); n == 1000 {
			t.Error("all moved")
		}
		if other := b.Pick("another peer", 0, nil); !other.IsValid() {
			t.Error("another peer's client gets none")
		}
	})
}

// A picked backend is ready until the backends are set without it. If it returns, it is a new one.
func TestABackendThatIsGoneIsToldOf(t *testing.T) {
	for _, affinity := range []mcs.Affinity{{}, {ClientIP: true, Timeout: time.Hour}} {
		var b backends
		b.set(addrs(2)[:1], affinity)
		first := b.Pick("cloud", 0, nil)
		b.set(addrs(2), affinity)
		if first.Ready.Err() != nil {
			t.Error("it is gone when another comes")
		}
		b.set(addrs(2)[1:], affinity)
		second := b.Pick("cloud", 0, nil)
		b.set(addrs(2), affinity)
		if first.Ready.Err() == nil || second.Ready.Err() != nil || second.AddrPort == first.AddrPort {
			t.Errorf("the first ends with %v, the second with %v", first.Ready.Err(), second.Ready.Err())
		}
	}
}

// Nothing is kept of clients that are gone for longer than the time-out.
func TestClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backends{}
		affinity := mcs.Affinity{ClientIP: true, Timeout: time.Hour}
		b.set(addrs(2), affinity)
		b.Pick("gone", 1, nil)
		time.Sleep(affinity.Timeout / 2)
		b.Pick("edge", 1, nil)
		time.Sleep(affinity.Timeout / 2)
		b.set(addrs(2), affinity)
		if _, there := b.kept[client{"edge", 1}]; len(b.kept) != 1 || !there {
			t.Errorf("kept are %v", b.kept)
		}
	})
}

func TestOnlyPodsAreBackends(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	c := &Clusterset{o: Options{OwnAddrs: func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.244.0.9"), netip.MustParseAddr("fd12:3456::9"), netip.MustParseAddr("fe80::9%eth0")}, nil
	}}}
	c.learnOwn()
	for s, want := range map[string]bool{
		"10.244.1.7": true, "2001:db8::7": true, "fd12:3456::7": true,
		"127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "169.254.169.254": false, "fe80::1": false, "0.0.0.0": false,
		"224.0.0.1": false, "255.255.255.255": false, "fd12::5%eth0": false,
		"10.244.0.9": false, "::ffff:10.244.0.9": false, "fd12:3456::9": false, "10.96.0.1": false, // the gateway, the API server
		"fd00:ec2::23": false, "fd20:ce::254": false, "192.0.0.192": false, "64:ff9b::c000:c0": false, // credentials of clouds
		"fd00:ec2::254": false, "100.100.100.200": false, "168.63.129.16": false,
		"64:ff9b::a9fe:a9fe": false, "64:ff9b::a60:1": false, "2002:7f00:1::1": false, "64:ff9b:1::1": false, // what translators lead to
		"64:ff9b::af4:107": true,
	} {
		if got := mayBeBackend(netip.MustParseAddr(s), c.own); got != want {
			t.Errorf("%s may be a backend: %v", s, got)
		}
	}
	if mayBeBackend(netip.Addr{}, c.own) {
		t.Error("no address may be one")
	}
}

// A service may have thousands of backends at each of its ports. One that was never picked takes no more
// than its place, and one that was picked gets nothing new when it leaves.
func TestBackendsThatAreNotPickedTakeLittle(t *testing.T) {
	var ready []netip.AddrPort
	for i := range 1000 {
		ready = append(ready, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80))
	}
	var b backends
	if n := testing.AllocsPerRun(1, func() { b.set(ready, mcs.Affinity{}); b.set(nil, mcs.Affinity{}) }); n > 10 {
		t.Errorf("%.0f allocations for %d backends", n, len(ready))
	}
	b.set(ready, mcs.Affinity{})
	first, second := b.Pick("edge", 0, nil), b.Pick("edge", 0, nil)
	b.set(slices.DeleteFunc(slices.Clone(ready), func(a netip.AddrPort) bool { return a == first.AddrPort }), mcs.Affinity{})
	if first.Ready.Err() == nil || second.Ready.Err() != nil {
		t.Errorf("the one that left: %v, the other: %v", first.Ready.Err(), second.Ready.Err())
	}
	b.set(ready, mcs.Affinity{})
	for range ready {
		if to := b.Pick("edge", 0, nil); to.Ready.Err() != nil {
			t.Fatalf("%s gets nothing", to)
		}
	}
	if second.Ready.Err() != nil {
		t.Error("one that stayed gets nothing")
	}
}
