package discovery

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// seenBy returns the snapshot of a gateway with two answering STUN servers.
func seenBy(mapping, filtering string, cs ...Candidate) Snapshot {
	s := Snapshot{NAT: NAT{Mapping: mapping, Filtering: filtering}, Candidates: cs}
	for _, at := range []netip.AddrPort{server1, server2} {
		s.Servers = append(s.Servers, Server{Name: at.String(), Addr: at, Mapped: public1})
	}
	return s
}

func TestHintsSayWhatANATMeans(t *testing.T) {
	ap := netip.MustParseAddrPort
	private := Candidate{Addr: hostAt, Source: SourceHost}
	public := Candidate{Addr: ap("203.0.113.5:51820"), Source: SourceHost}
	advertised := Candidate{Addr: ap("203.0.113.9:40582"), Source: SourceAdvertised}
	relayed := Candidate{Addr: ap("192.0.2.50:49160"), Source: SourceRelay}
	mapped := Candidate{Addr: public1, Source: SourceSTUN}
	silent := seenBy(BehaviourUnknown, BehaviourUnknown, private)
	for i := range silent.Servers {
		silent.Servers[i] = Server{Name: "stun", Addr: silent.Servers[i].Addr, Err: "no answer"}
	}
	silentRelayed := silent
	silentRelayed.Candidates = []Candidate{private, relayed}
	pod := seenBy(MappingAddressAndPort, FilteringAddressAndPort, mapped)
	pod.LeftOut = []LeftOut{{hostAt.Addr(), SourceHost, "a pod's"}}
	unresolved := seenBy(BehaviourUnknown, BehaviourUnknown, public)
	unresolved.Servers = []Server{{Name: "stun.nowhere.example:3478", Err: "resolve stun.nowhere.example: no such host"}}
	half := seenBy(BehaviourUnknown, BehaviourUnknown, public, mapped)
	half.Servers[1] = unresolved.Servers[0]
	pool := seenBy(MappingEndpointDependent, BehaviourUnknown, private)
	pool.NAT.PublicAddresses = []netip.Addr{public1.Addr(), netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("10.0.0.1")}
	for _, c := range []struct {
		name string
		s    Snapshot
		want []string // a part of each hint
	}{
		{"public", seenBy(MappingNone, FilteringEndpointIndependent, public), nil},
		{"public, firewall", seenBy(MappingNone, FilteringAddressAndPort, public), []string{"a firewall lets in only"}},
		{"full cone", seenBy(MappingEndpointIndependent, FilteringEndpointIndependent, private, mapped), nil},
		{"address-restricted", seenBy(MappingEndpointIndependent, FilteringAddress, private, mapped), []string{"(address-dependent filtering)"}},
		{"port-restricted", seenBy(MappingEndpointIndependent, FilteringAddressAndPort, private, mapped), []string{"need a relay to agree upon a direct path: set spec.discovery.turnServers"}},
		{"port-restricted, relay", seenBy(MappingEndpointIndependent, FilteringAddressAndPort, private, mapped, relayed), []string{"cannot dial it but over the relay"}},
		{"port-restricted, port forward", seenBy(MappingEndpointIndependent, FilteringAddressAndPort, private, mapped, advertised), nil},
		{"filtering unknown", seenBy(MappingEndpointIndependent, BehaviourUnknown, private, mapped), nil},
		{"symmetric", seenBy(MappingEndpointDependent, BehaviourUnknown, private, mapped), []string{"peers behind a port-restricted NAT or one like this are reached over a relay only: set spec.discovery.turnServers or give this gateway a reachable port"}},
		{"symmetric, relay", seenBy(MappingAddressAndPort, BehaviourUnknown, private, mapped, relayed), []string{"relay only: there is one"}},
		{"symmetric, port forward", seenBy(MappingAddress, BehaviourUnknown, private, mapped, advertised), nil},
		{"pod", pod, []string{"MASQUERADE --random-fully", "need a relay", "its pod's"}},
		{"several addresses", pool, []string{"another port", "from 2 public addresses (198.51.100.7, 198.51.100.8)"}},
		{"carrier-grade NAT", seenBy(MappingEndpointIndependent, BehaviourUnknown, Candidate{Addr: ap("100.64.3.4:51820"), Source: SourceHost}, mapped), []string{"100.64.3.4 is of the range of carrier-grade NAT"}},
		{"no servers", Snapshot{NAT: NAT{Mapping: BehaviourUnknown}, Candidates: []Candidate{private}}, []string{"no STUN server is configured", "all addresses of this host are private"}},
		{"silent servers", silent, []string{"by TCP or TLS only: set spec.discovery.turnServers", "all addresses of this host are private"}},
		{"silent servers, relay", silentRelayed, []string{"over the relay only"}},
		{"unresolved server", unresolved, []string{"cannot be resolved (stun.nowhere.example:3478)"}},
		{"one answer, one unresolved server", half, []string{"stun.nowhere.example:3478 cannot be resolved: correct it"}},
		{"one answer", seenBy(BehaviourUnknown, BehaviourUnknown, private, mapped), []string{"two different addresses"}},
		{"private address advertised", seenBy(MappingEndpointIndependent, FilteringEndpointIndependent, Candidate{Addr: ap("10.0.0.9:1"), Source: SourceAdvertised}, mapped), []string{"advertised but private: 10.0.0.9:1"}},
	} {
		got := Hints(c.s)
		if len(got) != len(c.want) {
			t.Errorf("%s: got %d hints, want %d:\n%s", c.name, len(got), len(c.want), strings.Join(got, "\n"))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: hint %d: got %q, want %q in it", c.name, i, got[i], want)
			}
		}
		if again := Hints(c.s); !slices.Equal(again, got) {
			t.Errorf("%s: the second time it hints %q", c.name, again)
		}
	}
}

func TestHintsDoNotAskForWhatIsConfigured(t *testing.T) {
	s := seenBy(MappingEndpointDependent, BehaviourUnknown, Candidate{Addr: hostAt, Source: SourceHost})
	failing := RelayState{Address: "turn.example.net:3478"}
	for _, c := range []struct {
		name   string
		relays []RelayState
		want   string
	}{
		{"none", nil, "set spec.discovery.turnServers"},
		{"one that fails", []RelayState{failing}, "fix the TURN server above (turn.example.net:3478)"},
		{"two that fail", []RelayState{failing, {Address: "turn2.example.net:3478"}}, "fix the TURN servers above (turn.example.net:3478, turn2.example.net:3478)"},
	} {
		got := strings.Join(Hints(s, c.relays...), "\n")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", c.name, got, c.want)
		}
		if len(c.relays) > 0 && strings.Contains(got, "set spec.discovery.turnServers") {
			t.Errorf("%s: asks for what is configured: %q", c.name, got)
		}
	}
}
