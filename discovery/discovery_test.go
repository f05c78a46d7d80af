package discovery

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

func TestClassifyFollowsRFC4787(t *testing.T) {
	ap := netip.MustParseAddrPort
	own := func(a netip.AddrPort) bool { return a == hostAt || a == ap("[2001:db8::5]:51820") }
	for _, c := range []struct {
		name string
		seen []observation
		want string
	}{
		{"no answer", nil, BehaviourUnknown},
		{"one answer", []observation{{server1, public1}}, BehaviourUnknown},
		{"two servers, one address", []observation{{server1, public1}, {server2, public1}}, MappingEndpointIndependent},
		{"two servers, other port", []observation{{server1, public1}, {server2, public2}}, MappingEndpointDependent},
		{"two servers, other address", []observation{{server1, public1}, {server2, ap("198.51.100.8:51820")}}, MappingEndpointDependent},
		{"two ports of one server, same", []observation{{server1, public1}, {ap("192.0.2.1:3479"), public1}}, BehaviourUnknown},
		{"two ports of one server, other", []observation{{server1, public1}, {ap("192.0.2.1:3479"), public2}}, MappingEndpointDependent},
		{"own address", []observation{{server1, hostAt}}, MappingNone},
		{"own address twice", []observation{{server1, hostAt}, {server2, hostAt}}, MappingNone},
		{"own address once", []observation{{server1, hostAt}, {server2, public1}}, MappingEndpointDependent},
		{"own address, other port", []observation{{server1, ap("10.1.2.3:999")}}, BehaviourUnknown},
		{"IPv6 is direct, IPv4 decides", []observation{{ap("[2001:db8::1]:3478"), ap("[2001:db8::5]:51820")}, {server1, public1}, {server2, public2}}, MappingEndpointDependent},
		{"IPv6 alone", []observation{{ap("[2001:db8::1]:3478"), ap("[2001:db8::5]:51820")}}, MappingNone},
	} {
		nat := classify(c.seen, own)
		if nat.Mapping != c.want || nat.Filtering != BehaviourUnknown {
			t.Errorf("%s: got %+v, want mapping %s", c.name, nat, c.want)
		}
	}
	nat := classify([]observation{{server1, public2}, {server2, public1}, {server2, ap("198.51.100.1:1")}}, own)
	want := []netip.Addr{netip.MustParseAddr("198.51.100.1"), public1.Addr()}
	if !slices.Equal(nat.PublicAddresses, want) {
		t.Errorf("public addresses: got %v, want %v", nat.PublicAddresses, want)
	}
}

// A single server is not believed against two that agree on an address, whatever ports they see.
func TestOneServerIsOutvoted(t *testing.T) {
	ap := netip.MustParseAddrPort
	elsewhere := ap("203.0.113.77:4711")
	server3 := ap("192.0.2.57:3478")
	for _, c := range []struct {
		name string
		seen []observation
		want []bool
	}{
		{"one against one", []observation{{server1, public1}, {server2, elsewhere}}, []bool{false, false}},
		{"one against two", []observation{{server1, public1}, {server2, elsewhere}, {server3, public1}}, []bool{false, true, false}},
		{"another port for each", []observation{{server1, public1}, {server2, elsewhere}, {server3, public2}}, []bool{false, true, false}},
		{"two ports of one server", []observation{{server1, public1}, {ap("192.0.2.1:3479"), public1}, {server2, elsewhere}}, []bool{false, false, false}},
		{"two against two", []observation{{server1, public1}, {server3, public1}, {server2, elsewhere}, {ap("192.0.2.58:3478"), elsewhere}}, []bool{false, false, false, false}},
		{"other families", []observation{{server1, public1}, {server3, public1}, {ap("[2001:db8::1]:3478"), ap("[2001:db8::5]:51820")}}, []bool{false, false, false}},
	} {
		var got []bool
		for _, o := range c.seen {
			_, is := o.outvoted(c.seen)
			got = append(got, is)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: outvoted %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCandidatesAreArranged(t *testing.T) {
	ap := netip.MustParseAddrPort
	want := []Candidate{
		{Addr: ap("203.0.113.9:2"), Source: SourceAdvertised}, // as written, not sorted
		{Addr: ap("203.0.113.1:1"), Source: SourceAdvertised},
		{Addr: ap("203.0.113.2:1"), Source: SourceService},
		{Addr: ap("203.0.113.3:1"), Source: SourcePortmap},
		{Addr: ap("192.168.1.5:1"), Source: SourceLAN},
		{Addr: ap("203.0.113.4:1"), Source: SourceDNS},
		{Addr: ap("203.0.113.5:1"), Source: SourceHost},
		{Addr: ap("[2001:db8::5]:1"), Source: SourceHost},
		{Addr: ap("10.0.0.5:1"), Source: SourceHost}, // private after global
		{Addr: ap("203.0.113.6:1"), Source: SourceSTUN},
		{Addr: ap("203.0.113.7:1"), Source: SourceRelay},
		{Addr: ap("203.0.113.8:1"), Source: SourcePeer}, // the least that can be known
	}
	mixed := []Candidate{
		want[11], want[8], want[7], want[0], want[10], want[1], want[9], want[3], want[2], want[5], want[4], want[6],
		{Addr: want[6].Addr, Source: SourceSTUN},       // a repeated address keeps its best source
		{Addr: want[0].Addr, Source: SourceRelay},      //
		{Addr: want[8].Addr, Source: SourceAdvertised}, // … which here is this one
	}
	want = slices.Insert(slices.Delete(want, 8, 9), 2, Candidate{Addr: ap("10.0.0.5:1"), Source: SourceAdvertised})
	want[0], want[1], want[2] = mixed[3], mixed[5], mixed[14]
	if got := arrange(mixed); !slices.Equal(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

func TestHostAddrsLeavesOutWhatCannotBeReached(t *testing.T) {
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, s := range texts {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	real := addrs("192.168.1.5", "2001:db8::5", "10.0.0.9")
	ifs := []Interface{
		{Name: "lo", Up: true, Addrs: addrs("127.0.0.1", "::1", "203.0.113.1")},
		{Name: "eth0", Up: true, Addrs: append(addrs("fe80::1%eth0", "169.254.3.4", "fd12:3456::1", "::ffff:192.168.1.5"), real[:2]...)},
		{Name: "br-lan", Up: true, Addrs: real[2:]},
		{Name: "eth1", Up: false, Addrs: addrs("192.168.7.7")},
	}
	for _, name := range []string{
		"cni0", "flannel.1", "cali12ab", "docker0", "br-0123456789ab", "veth1a2b", "kube-ipvs0", "nodelocaldns",
		"tun0", "tap1", "wg0", "tailscale0", "cilium_host", "virbr0", "podman0", "utun3", "weave",
	} {
		ifs = append(ifs, Interface{Name: name, Up: true, Addrs: addrs("10.42.0.1")})
	}
	if got := HostAddrs(ifs); !slices.Equal(got, real) {
		t.Errorf("got %v, want %v", got, real)
	}
	for _, name := range []string{"eth0", "enp3s0", "wlan0", "bond0", "br0", "br-lan", "ens5", "wlp2s0", "vlan7", "weaver", "en0"} {
		if ignoredInterface(name) {
			t.Errorf("interface %s is ignored", name)
		}
	}
}

func TestParseName(t *testing.T) {
	for text, want := range map[string]bool{
		"203.0.113.8:40582": true, "[2001:db8::1]:3478": true, "stun.example.net:3478": true, "localhost:1": true, "127.0.0.1:5": true,
		"": false, "203.0.113.8": false, ":51820": false, "203.0.113.8:0": false, "203.0.113.8:65536": false, "203.0.113.8:x": false,
		"0.0.0.0:1": false, "[::]:1": false, "224.0.0.1:1": false, "[fe80::1%eth0]:1": false, "2001:db8::1:3478": false, "h:-1": false, "h:+1": false,
	} {
		if n, err := parseName(text); (err == nil) != want {
			t.Errorf("%q: got %+v, %v, want accepted: %v", text, n, err, want)
		}
	}
}

func TestThisMachinesInterfacesCanBeListed(t *testing.T) {
	ifs, err := interfaces(func(net.Interface) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	loopback := slices.ContainsFunc(ifs, func(i Interface) bool {
		return slices.ContainsFunc(i.Addrs, netip.Addr.IsLoopback)
	})
	if len(ifs) > 0 && !loopback {
		t.Errorf("no loopback address among %v", ifs)
	}
	addrs, err := InterfaceAddrs()
	if err != nil || slices.ContainsFunc(addrs, netip.Addr.IsLoopback) {
		t.Errorf("got %v, %v, want no loopback address", addrs, err)
	}
}
