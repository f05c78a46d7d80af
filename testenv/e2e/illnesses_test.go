//go:build linux && e2e

package e2e

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Names of checks.
const (
	gatewayCheck   = "gateway"
	apiServerCheck = "apiServer"
)

func outbound(code, name string) diagnosis {
	return diagnosis{code: code, name: name, direction: api.DirectionOutbound}
}

func inbound(code, name string) diagnosis {
	return diagnosis{code: code, name: name, direction: api.DirectionInbound}
}

func own(code, name string) diagnosis {
	return diagnosis{code: code, name: name, direction: api.DirectionOwn}
}

// because and until add the words that cause and fix must contain.
func (d diagnosis) because(words ...string) diagnosis { d.cause = words; return d }
func (d diagnosis) until(words ...string) diagnosis   { d.fix = words; return d }

// withoutServers removes the STUN and TURN servers from both files.
func withoutServers(f *faultLab) {
	for _, w := range f.wards() {
		w.doc.Spec.Discovery.STUNServers, w.doc.Spec.Discovery.TURNServers = nil, nil
	}
}

// plain is a pair of public gateways without servers.
func plain(edit ...func(*faultLab)) setting {
	return setting{left: dial, right: dial, ways: ways{noTURN: true}, edit: func(f *faultLab) {
		withoutServers(f)
		for _, e := range edit {
			e(f)
		}
	}}
}

// oneWay makes right wait to be dialled.
func oneWay(f *faultLab) { f.right.other.Endpoints = nil }

const (
	leftEndpoint  = leftPublic + ":51820"
	rightEndpoint = rightPublic + ":51820"
	rightMoved    = "198.51.100.11"
	rightRouter   = "198.51.100.1"
)

func illnesses() []illness {
	var all []illness
	for _, some := range [][]illness{blockedIllnesses(), outwardIllnesses(), addressIllnesses(), keyIllnesses(), pathIllnesses(), serviceIllnesses(), certificateIllnesses()} {
		all = append(all, some...)
	}
	return all
}

// blockedIllnesses are firewalls.
func blockedIllnesses() []illness {
	return []illness{
		{
			name: "UDP is blocked from left to right", setting: plain(), sick: true,
			harm: func(f *faultLab) { f.right.firewall("ip saddr " + leftPublic + " udp dport 51820 drop") },
			left: []diagnosis{outbound("PST0106", gatewayCheck).because("right", rightEndpoint, "blocked").
				until("nft insert rule inet filter input ip saddr "+leftPublic+" udp dport 51820 accept", "right")},
			right: []diagnosis{outbound("PST0101", gatewayCheck).because("left", leftEndpoint, "cannot tell").until("postern check", "left")},
			fix: func(f *faultLab, left, _ []api.Check) {
				f.right.types(command(f.t, left[0].Fix, "nft insert rule inet filter input"))
			},
		},
		{
			name: "UDP is blocked from right to left", setting: plain(), sick: true,
			harm: func(f *faultLab) { f.left.firewall("ip saddr " + rightPublic + " udp dport 51820 drop") },
			left: []diagnosis{outbound("PST0101", gatewayCheck).because("right", rightEndpoint, "cannot tell").until("postern check", "right")},
			right: []diagnosis{outbound("PST0106", gatewayCheck).because("left", leftEndpoint, "blocked").
				until("nft insert rule inet filter input ip saddr "+rightPublic+" udp dport 51820 accept", "left")},
			fix: func(f *faultLab, _, right []api.Check) {
				f.left.types(command(f.t, right[0].Fix, "nft insert rule inet filter input"))
			},
		},
		{
			name: "UDP is blocked both ways", setting: plain(), sick: true,
			harm: func(f *faultLab) {
				f.left.firewall("udp dport 51820 drop")
				f.right.firewall("udp dport 51820 drop")
			},
			left:  []diagnosis{outbound("PST0101", gatewayCheck).because("right", rightEndpoint).until("nft insert rule")},
			right: []diagnosis{outbound("PST0101", gatewayCheck).because("left", leftEndpoint).until("nft insert rule")},
			fix: func(f *faultLab, left, right []api.Check) {
				f.left.types(command(f.t, left[0].Fix, "nft insert rule inet filter input"))
				f.right.types(command(f.t, right[0].Fix, "nft insert rule inet filter input"))
			},
		},
		{
			// Right has a second uplink, which its routes prefer. What it sends leaves by the first all the
			// same, for a rule marks it.
			name: "right's reverse path filter discards what left sends", setting: plain(),
			harm: func(f *faultLab) {
				f.right.types("ip link add second type veth peer name other; ip link set second up; ip link set other up; " +
					"ip route add " + leftPublic + " dev second src " + rightPublic + "; " +
					"ip route add default via " + rightRouter + " dev eth0 table 100; ip rule add fwmark 7 lookup 100; " +
					"sysctl -w net.ipv4.conf.eth0.rp_filter=1; nft add table ip uplinks; " +
					"nft add chain ip uplinks output '{ type route hook output priority -150; }'; nft add rule ip uplinks output udp sport 51820 meta mark set 7")
			},
			left:  []diagnosis{outbound("PST0106", gatewayCheck).because("right", rightEndpoint).until("see at right what it finds")},
			right: []diagnosis{outbound("PST0102", gatewayCheck).because("left", "this machine discarded", "rp_filter").until("ip route get " + leftPublic)},
			fix: func(f *faultLab, _, right []api.Check) {
				f.right.types(command(f.t, right[0].Fix, "sysctl -w net.ipv4.conf.all.rp_filter"))
			},
		},
	}
}

// outwardIllnesses are faults of left's own machine, which sends nothing.
func outwardIllnesses() []illness {
	return []illness{
		{
			name: "left's own firewall lets nothing out to right", setting: plain(),
			harm: func(f *faultLab) {
				f.left.types("nft add table inet filter; nft add chain inet filter output '{ type filter hook output priority 0; }'; " +
					"nft add rule inet filter output ip daddr " + rightPublic + " udp dport 51820 drop")
			},
			left: []diagnosis{outbound("PST0122", gatewayCheck).because("right", rightEndpoint, "this machine blocks what is sent").
				until("nft insert rule inet filter output ip daddr " + rightPublic + " udp dport 51820 accept")},
			right: []diagnosis{outbound("PST0102", gatewayCheck).because("left")},
			fix: func(f *faultLab, left, _ []api.Check) {
				f.left.types(command(f.t, left[0].Fix, "nft insert rule inet filter output"))
			},
		},
		{
			name: "left's own firewall limits what is sent to right", setting: plain(), lasts: 2 * time.Minute,
			harm: func(f *faultLab) {
				f.left.types("nft add table inet limits; nft add chain inet limits output '{ type filter hook output priority 0; }'; " +
					"nft add rule inet limits output ip daddr " + rightPublic + " udp dport 51820 limit rate over 30/second drop")
			},
			left: []diagnosis{own("PST0128", "resources-sending").because("refused at least", "administratively prohibited").
				until("net.netfilter.nf_conntrack_count", "find the rule of the firewall")},
			right: []diagnosis{outbound("PST0112", gatewayCheck).because("left", leftEndpoint, "%")},
			fix:   func(f *faultLab, _, _ []api.Check) { f.left.types("nft delete table inet limits") },
		},
		{
			name: "left has no route to right", setting: plain(),
			harm:  func(f *faultLab) { f.left.types("ip route add throw " + rightPublic) },
			left:  []diagnosis{outbound("PST0120", gatewayCheck).because("no route to right", rightEndpoint).until("ip route get " + rightPublic)},
			right: []diagnosis{outbound("PST0102", gatewayCheck).because("left")},
			fix:   func(f *faultLab, _, _ []api.Check) { f.left.types("ip route del throw " + rightPublic) },
		},
	}
}

// addressIllnesses are addresses that lead nowhere.
func addressIllnesses() []illness {
	return []illness{
		{
			name: "both behind NATs and no way in", sick: true,
			setting: setting{left: symmetric, right: symmetric, ways: ways{noTURN: true}, edit: func(f *faultLab) {
				f.left.other.Endpoints = []string{rightOuter + ":51820"}
				f.right.other.Endpoints = []string{leftOuter + ":51820"}
			}},
			left:  []diagnosis{outbound("PST0401", gatewayCheck).because("right", "symmetric").until("spec.discovery.turnServers", "spec.discovery.advertise")},
			right: []diagnosis{outbound("PST0401", gatewayCheck).because("left", "symmetric").until("spec.discovery.turnServers", "spec.discovery.advertise")},
			fix:   func(f *faultLab, _, _ []api.Check) { f.right.forward() },
		},
		{
			name: "the announced port is wrong", sick: true,
			setting: plain(oneWay, func(f *faultLab) { f.left.other.Endpoints = []string{rightPublic + ":40582"} }),
			left: []diagnosis{outbound("PST0402", gatewayCheck).because(rightPublic+":40582", "port unreachable").
				until("spec.peers[name=right].endpoints")},
			right: []diagnosis{outbound("PST0104", gatewayCheck).because("left", "no endpoint").until("spec.peers[name=left].endpoints")},
			fix: func(f *faultLab, _, _ []api.Check) {
				f.left.other.Endpoints = []string{rightEndpoint}
				f.left.reload()
			},
		},
		{
			name: "a private address is announced", sick: true,
			setting: plain(oneWay, func(f *faultLab) { f.left.other.Endpoints = []string{"10.20.30.40:51820"} }),
			left:    []diagnosis{outbound("PST0403", gatewayCheck).because("10.20.30.40:51820", "private").until("spec.discovery.advertise")},
			right:   []diagnosis{outbound("PST0104", gatewayCheck).because("left")},
			fix: func(f *faultLab, _, _ []api.Check) {
				f.left.other.Endpoints = []string{rightEndpoint}
				f.left.reload()
			},
		},
		{
			name: "the name does not resolve", sick: true,
			setting: plain(oneWay, func(f *faultLab) {
				f.left.resolves("gw.example.net", rightPublic)
				f.left.other.Endpoints = []string{"gx.example.net:51820"}
			}),
			left:  []diagnosis{outbound("PST0107", gatewayCheck).because("gx.example.net:51820").until("gx.example.net")},
			right: []diagnosis{outbound("PST0104", gatewayCheck)},
			fix: func(f *faultLab, _, _ []api.Check) {
				f.left.other.Endpoints = []string{"gw.example.net:51820"}
				f.left.reload()
			},
		},
		{
			// The provider gives right another address, and the record follows. But a firewall
			// there keeps left out.
			name: "the name leads elsewhere, where right is not let in",
			setting: plain(oneWay, func(f *faultLab) {
				f.left.resolves("gw.example.net", rightPublic)
				f.left.other.Endpoints = []string{"gw.example.net:51820"}
			}),
			harm: func(f *faultLab) {
				f.right.firewall("ip saddr " + leftPublic + " udp dport 51820 drop")
				f.right.host.ChangeAddress("eth0", netip.MustParseAddr(rightMoved))
				f.left.resolves("gw.example.net", rightMoved)
			},
			left: []diagnosis{outbound("PST0108", gatewayCheck).because("gw.example.net", rightPublic, rightMoved).
				until("dig +short gw.example.net", "nft insert rule inet filter input ip saddr "+leftPublic+" udp dport 51820 accept")},
			right: []diagnosis{outbound("PST0102", gatewayCheck).because("left")},
			fix: func(f *faultLab, left, _ []api.Check) {
				f.right.types(command(f.t, left[0].Fix, "nft insert rule inet filter input"))
			},
		},
	}
}
