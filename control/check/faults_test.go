package check

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

const (
	publicEdge  = "203.0.113.9:51820"
	publicCloud = "198.51.100.7:51820"
	aKey        = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// unreached returns the facts of a peer that has been tried for a minute without an answer.
func unreached() Facts {
	f := facts()
	f.LastHandshake, f.Since = time.Time{}, time.Now().Add(-time.Minute)
	f.Endpoints = []string{publicCloud}
	f.Candidates = []catalogue.Candidate{{Address: publicCloud, Source: api.SourceAdvertised, State: "failed", Reason: "no answer to 12 probes in 10 s"}}
	f.NoPath = "none of 1 address answers"
	f.Path = PathFacts{Kind: api.PathNone, LinkMTU: 1420}
	f.own = &Own{Name: "edge", Shown: catalogue.Shown{Port: 51820, NAT: catalogue.NAT{Mapping: "none", Filtering: "none"},
		Candidates: []catalogue.Candidate{{Address: publicEdge, Source: api.SourceHost}}},
		Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.10/24")}}
	return f
}

// behindNAT makes this gateway one that nobody can dial.
func behindNAT(f *Facts) {
	f.own.NAT = catalogue.NAT{Mapping: "address-and-port-dependent", Filtering: "address-and-port-dependent"}
	f.Path.NAT = f.own.NAT
	f.own.Candidates = []catalogue.Candidate{{Address: "192.168.1.10:51820", Source: api.SourceHost}, {Address: "203.0.113.9:4711", Source: api.SourceSTUN}}
}

func seen(from string) Sight { return Sight{From: from, At: time.Now().Add(-5 * time.Second)} }

// gatewayFaults has a row for each way in which a peer can be unreachable.
var gatewayFaults = []struct {
	name  string
	facts func(*Facts)
	code  catalogue.Code
	stage string
	cause []string
	fix   []string
}{
	{"UDP from us to the peer is blocked", func(f *Facts) { f.HeardUnanswered = seen(publicCloud) },
		catalogue.NotHeardByPeer, StageProbe,
		[]string{"packets from cloud arrive here from " + publicCloud, "UDP from here to cloud is blocked"},
		[]string{"at cloud, let it in, ", "`nft insert rule inet filter input ip saddr 203.0.113.9 udp dport 51820 accept`", "inbound UDP 51820 from 203.0.113.9/32",
			"let it out here (security group: outbound UDP 51820 to 198.51.100.7/32): `nft insert rule inet filter output ip daddr 198.51.100.7 udp dport 51820 accept`"}},
	{"the peer's firewall rejects what we send", func(f *Facts) {
		f.HeardUnanswered = seen(publicCloud)
		f.Unreachable = []Refusal{{To: publicCloud, Reason: "port unreachable", At: time.Now()}}
	}, catalogue.NotHeardByPeer, StageProbe, []string{"is answered but by ICMP port unreachable: a firewall"}, []string{"at cloud, let it in"}},
	{"UDP is blocked from the peer to us, or both ways, or the peer is off", nil, catalogue.PeerSilent, StageProbe,
		[]string{"nothing has come from cloud in 1m", publicCloud + " no answer to 12 probes", "cannot tell whether the gateway of cloud runs"},
		[]string{"at cloud, see whether the gateway runs, and start it if not: `postern status`", "see there what it finds, which may name the cause: `postern check`", "PST0106", "let its answers in here (security group: inbound UDP 51820 from 198.51.100.7/32): `nft insert rule inet filter input ip saddr 198.51.100.7 udp dport 51820 accept`",
			"let them in there (security group: inbound UDP 51820 from 203.0.113.9/32): `nft insert rule inet filter input ip saddr 203.0.113.9 udp dport 51820 accept`"}},
	{"both are behind one NAT that does no hairpinning", func(f *Facts) {
		f.own.NAT = catalogue.NAT{Mapping: "endpoint-independent", Filtering: "address-dependent"}
		f.Path.NAT = f.own.NAT
		f.Endpoints = []string{"203.0.113.9:51821"}
		f.Candidates = []catalogue.Candidate{{Address: "203.0.113.9:51821", Source: api.SourceAdvertised, State: "failed", Reason: "no answer to 12 probes"}}
	}, catalogue.PeerSilent, StageProbe,
		[]string{"203.0.113.9 is also the public address of this gateway: both are behind the same NAT, and many routers do not forward packets from inside to their own public address", "cannot tell whether the gateway of cloud runs"},
		[]string{"set spec.peers[name=cloud].endpoints here to its address there, not the public one; or have the router do hairpin NAT"}},
	{"the peer's name may lead to another host", func(f *Facts) {
		f.Named = []NameFact{{Name: "cloud.example.net:51820", Now: []string{"198.51.100.7"}}}
	}, catalogue.PeerSilent, StageProbe, []string{"nothing has come from cloud", "cloud.example.net:51820 resolves to 198.51.100.7"}, []string{"whether cloud.example.net:51820 resolves to the address of cloud", "`dig +short cloud.example.net`", "if that does not give 198.51.100.7, something here answers first: correct /etc/hosts, or end the name with a dot"}},
	{"a peer went silent", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Hour), time.Now().Add(-40*time.Second)
	},
		catalogue.HandshakeStale, StageProbe, []string{"no path to cloud has worked for 4"}, []string{"see there what it finds, which may name the cause: `postern check`"}},
	{"neither can be dialled", func(f *Facts) {
		behindNAT(f)
		f.Candidates = []catalogue.Candidate{{Address: "10.1.0.5:51820", Source: api.SourceHost}, {Address: "198.51.100.7:1025", Source: api.SourceSTUN, Reason: "waits to be punched"}}
		f.Path.PeerNAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
	}, catalogue.NoWayIn, StageProbe, []string{"neither cloud nor this gateway can be dialled", "symmetric", "no relay"},
		[]string{"spec.discovery.turnServers", "forward UDP 51820", "spec.discovery.advertise"}},
	{"this gateway cannot be dialled, and the peer's address has never answered", behindNAT, catalogue.NoWayIn, StageProbe,
		[]string{"nobody can dial this gateway", "symmetric", "no address of cloud answers: " + publicCloud, "cannot tell whether that port is forwarded"},
		[]string{"at cloud, see whether it can be dialled: `postern check`", "spec.discovery.turnServers", "spec.discovery.advertise"}},
	{"the advertised port is wrong", func(f *Facts) {
		f.Unreachable = []Refusal{{To: publicCloud, Reason: "port unreachable", At: time.Now().Add(-time.Second)}}
		f.HeardUnanswered = seen("198.51.100.7:40582")
	}, catalogue.NothingListens, StageProbe, []string{"something at " + publicCloud, "says that nothing listens", "come from 198.51.100.7:40582"},
		[]string{"spec.discovery.advertise", "spec.peers[name=cloud].endpoints here", `["198.51.100.7:40582"]`}},
	{"only a private address is advertised", func(f *Facts) {
		f.Candidates = []catalogue.Candidate{{Address: "10.0.0.5:51820", Source: api.SourceAdvertised}}
		f.Endpoints = []string{"10.0.0.5:51820"}
	}, catalogue.PrivateAdvertised, StageProbe, []string{"cloud announces only 10.0.0.5:51820 (private)", "in no network of this gateway"},
		[]string{"at cloud, set spec.discovery.advertise", "udp dport 51820 accept"}},
	{"only a private address is advertised, which a router refuses", func(f *Facts) {
		f.Candidates = []catalogue.Candidate{{Address: "10.0.0.6:51820", Source: api.SourceAdvertised}}
		f.Unreachable = []Refusal{{To: "10.0.0.6:51820", Reason: "network unreachable", By: "192.0.2.254", At: time.Now()}}
	}, catalogue.PrivateAdvertised, StageProbe, []string{"cloud announces only 10.0.0.6:51820 (private)"}, []string{"at cloud, set spec.discovery.advertise"}},
	{"the name does not resolve", func(f *Facts) {
		f.Unresolved = []NameFact{{Name: "gw.cloud.example:51820", Err: "no such host"}}
		f.Candidates, f.Endpoints = nil, []string{"gw.cloud.example:51820"}
	}, catalogue.NameUnknown, StageResolve, []string{"gw.cloud.example:51820", "does not resolve", "no such host"},
		[]string{"spec.peers[name=cloud].endpoints", "`dig +short gw.cloud.example`"}},
	{"the name leads elsewhere", func(f *Facts) {
		f.LastHandshake = time.Now().Add(-time.Minute)
		f.PathLost = time.Now().Add(-30 * time.Second)
		f.Moved = []NameFact{{Name: "gw.cloud.example:51820", Was: []string{"198.51.100.7"}, Now: []string{"198.51.100.99"}, At: time.Now().Add(-2 * time.Minute)}}
	}, catalogue.NameMoved, StageResolve, []string{"resolved to 198.51.100.7", "now resolves to 198.51.100.99"}, []string{"which must give 198.51.100.7: `dig +short gw.cloud.example`", "if that does not give 198.51.100.99, something here answers first"}},
	{"the preshared keys differ", func(f *Facts) { f.Unverified = seen(publicCloud) }, catalogue.PresharedKeyDiffers, StageHandshake,
		[]string{"answers handshakes from " + publicCloud, "do not verify with the preshared key"}, []string{"`sha256sum FILE`", "spec.peers[name=cloud].presharedKeyFile"}},
	{"we have a wrong key of the peer", func(f *Facts) { f.OtherKey = KeySight{seen(publicCloud), aKey} }, catalogue.WrongPeerKey, StageHandshake,
		[]string{"something at " + publicCloud, aKey, "configured"}, []string{"ask the owner of cloud for the key there: `postern key pub`", "spec.peers[name=cloud].publicKey here"}},
	{"the peer has a wrong key of us", func(f *Facts) { f.NotForUs = seen(publicCloud) }, catalogue.WrongPeerKey, StageHandshake,
		[]string{"something at " + publicCloud, "a public key that is not this gateway's", "if it is cloud"}, []string{"give this gateway's key to the owner of cloud: `postern key pub`", "publicKey"}},
	{"the peer's endpoint is ours", func(f *Facts) {
		f.NotForUs, f.CameBack = seen(publicCloud), seen(publicCloud)
		f.NotForUs.At = f.NotForUs.At.Add(-evidenceLife)
	}, catalogue.EndpointOfAnother, StageProbe,
		[]string{publicCloud + ", where cloud is dialled, leads back to this gateway"}, []string{"at cloud, see at which address it can be dialled: `postern netcheck`", "set spec.peers[name=cloud].endpoints here to that"}},
	{"the peer's endpoint is another peer's", func(f *Facts) {
		f.answersAt = func(a string) string { return map[string]string{publicCloud: "berlin"}[a] }
	}, catalogue.EndpointOfAnother, StageProbe,
		[]string{publicCloud + ", where cloud is dialled, is the address of berlin, which answers there"}, []string{"set spec.peers[name=cloud].endpoints here", "if cloud and berlin are behind the same router, set another spec.listen.port", "if berlin has replaced cloud, remove cloud from the peers here"}},
	{"the peer's addresses are another peer's and ours", func(f *Facts) {
		f.Candidates = []catalogue.Candidate{{Address: "198.51.100.8:51820", Source: api.SourceAdvertised}, {Address: publicCloud, Source: api.SourceAdvertised}}
		f.CameBack, f.Named = seen(publicCloud), []NameFact{{Name: "gw.cloud.example:51820", Now: []string{"198.51.100.7"}}}
		f.answersAt = func(a string) string { return map[string]string{"198.51.100.8:51820": "berlin"}[a] }
	}, catalogue.EndpointOfAnother, StageProbe,
		[]string{"198.51.100.8:51820, where cloud is dialled, is the address of berlin, which answers there"}, []string{"set spec.peers[name=cloud].endpoints here to that"}},
	{"the peer's name leads to us", func(f *Facts) {
		f.CameBack, f.Named = seen(publicCloud), []NameFact{{Name: "gw.cloud.example:51820", Now: []string{"198.51.100.7"}}}
	}, catalogue.EndpointOfAnother, StageProbe,
		[]string{"leads back to this gateway (gw.cloud.example:51820 resolves to it)"}, []string{"correct the record"}},
	{"the peer's clock went back", func(f *Facts) {
		f.StampInPast = StampSight{seen(publicCloud), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
		f.NoPath, f.Probed, f.Path.Kind = "", time.Now(), api.PathDirect
	}, catalogue.StampInPast, StageHandshake, []string{"2026-01-01 00:00:00 UTC", "2026-01-02 00:00:00 UTC", "clock went back by 24h"}, []string{"at cloud, ", "`timedatectl set-ntp true`"}},
	{"our clock went back", func(f *Facts) {
		f.NoPath, f.Probed, f.Path.Kind, f.Path.Remote = "", time.Now(), api.PathDirect, publicCloud
	}, catalogue.PeerSilent, StageHandshake, []string{"cloud answers probes from " + publicCloud, "no handshake"}, []string{"check at cloud: PST0111 there confirms that the clock went back, and says when handshakes are accepted again: `postern check`", "`timedatectl set-ntp true`"}},
	{"a peer that cannot be dialled begins handshakes", func(f *Facts) {
		behindNAT(f)
		f.Initiated, f.Candidates, f.Endpoints, f.NoPath = seen("198.51.100.7:1025"), nil, nil, "no candidate is known yet"
	}, catalogue.PeerSilent, StageHandshake, []string{"cloud begins handshakes from 198.51.100.7:1025", "either", "or the preshared keys differ", "cannot tell which"},
		[]string{"at cloud, see what it finds: `postern check`", "PST0109", "`sha256sum FILE`", "`nft insert rule inet filter output ip daddr 198.51.100.7 udp dport 1025 accept`"}},
	{"two gateways have the peer's key", func(f *Facts) {
		f.Boots, f.BootsAt = []uint64{7, 8, 7}, []time.Time{time.Now(), time.Now(), time.Now()}
	}, catalogue.DuplicateKey, StageHandshake, []string{"two gateways use the key of cloud"}, []string{"remove the copy's state directory"}},
	{"the only relay is gone", func(f *Facts) {
		behindNAT(f)
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
		f.Candidates = []catalogue.Candidate{{Address: "192.0.2.1:50000", Source: api.SourceRelay, Relay: "turn.example.net:3478", State: "failed", Reason: "no answer"},
			{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
		f.Path.PeerNAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
	}, catalogue.RelayLost, StageProbe, []string{"over the relay turn.example.net:3478", "no other address"}, []string{"`postern netcheck`", "spec.discovery.turnServers"}},
	{"the only relay answers, and carries nothing", func(f *Facts) {
		behindNAT(f)
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
		f.Candidates = []catalogue.Candidate{{Address: "192.0.2.1:50000", Source: api.SourceRelay, Relay: "turn.example.net:3478", State: "failed", Reason: "no answer"},
			{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
		f.Path.PeerNAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
		f.own.TURN = []Server{{Name: "turn.example.net:3478", Address: "192.0.2.1:3478"}}
	}, catalogue.RelayLost, StageProbe, []string{"over the relay turn.example.net:3478", "the TURN server of this gateway answers"},
		[]string{"`postern netcheck`", "if both answer, what is relayed is lost: let UDP to the server's relayed ports in there", "external-ip"}},
	{"the peer's address on a relay that answers carries nothing", func(f *Facts) {
		behindNAT(f)
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
		f.Candidates = []catalogue.Candidate{{Address: "192.0.2.1:50000", Source: api.SourceRelay, State: "failed", Reason: "no answer"},
			{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
		f.Path.PeerNAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
		f.own.TURN = []Server{{Name: "192.0.2.1:3478", Address: "192.0.2.1:3478"}}
	}, catalogue.RelayLost, StageProbe, []string{"over the relay 192.0.2.1:50000", "the TURN server of this gateway answers"}, []string{"if both answer, what is relayed is lost"}},
	{"this gateway's address changed when the peer fell silent", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Hour), time.Now().Add(-40*time.Second)
		f.own.Moved = Move{Was: []string{"203.0.113.8"}, Now: []string{"203.0.113.9"}, At: time.Now().Add(-45 * time.Second)}
	}, catalogue.HandshakeStale, StageProbe, []string{"the address of this gateway changed from 203.0.113.8 to 203.0.113.9 4", "let in only that"},
		[]string{"at cloud, see whether its firewall or its spec.peers[].endpoints has 203.0.113.8, and put 203.0.113.9 there"}},
	{"this gateway's address changed long before", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Hour), time.Now().Add(-50*time.Second)
		f.own.Moved = Move{Was: []string{"203.0.113.8"}, Now: []string{"203.0.113.9"}, At: time.Now().Add(-3 * time.Minute)}
	}, catalogue.HandshakeStale, StageProbe, []string{"none of 1 address answers; this side cannot tell"}, nil},
	{"this machine filters what arrives", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Hour), time.Now().Add(-45*time.Second)
		f.own.Filtered, f.own.FilteredIn = 45, time.Minute
	}, catalogue.HandshakeStale, StageProbe, []string{"this machine discarded 45 packets in the last 1m0s, perhaps those of cloud", "(rp_filter)"},
		[]string{"`ip route get 198.51.100.7`", "`sysctl -w net.ipv4.conf.all.rp_filter=2`"}},
	{"this machine filters IPv4, and the peer has IPv6 alone", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Hour), time.Now().Add(-45*time.Second)
		f.own.Filtered, f.own.FilteredIn = 45, time.Minute
		f.Candidates = []catalogue.Candidate{{Address: "[2001:db9::7]:51820", Source: api.SourceAdvertised, State: "failed"}}
	}, catalogue.HandshakeStale, StageProbe, []string{"none of 1 address answers; this side cannot tell"}, nil},
	{"the peer's gateway starts again and again", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-8*time.Second)
		f.Boots, f.BootsAt = []uint64{1, 2, 3, 4}, []time.Time{time.Now().Add(-time.Hour), time.Now().Add(-90 * time.Second), time.Now().Add(-60 * time.Second), time.Now().Add(-30 * time.Second)}
		f.Unreachable = []Refusal{{To: publicCloud, Reason: "port unreachable", At: time.Now()}}
	}, catalogue.PeerRestarts, StageProbe, []string{"the gateway of cloud has started 3 times in the last 1m33s"}, []string{"read in the log of the gateway of cloud what it says before each start", "`kubectl describe pod POD -n NAMESPACE`"}},
	{"the relay in use says that it is gone, and the path is not given up yet", func(f *Facts) {
		behindNAT(f)
		f.LastHandshake, f.NoPath, f.Path.Unanswered = time.Now().Add(-time.Minute), "", time.Now().Add(-5*time.Second)
		f.Probed = f.Path.Unanswered
		f.Candidates = []catalogue.Candidate{{Address: "192.0.2.1:50000", Source: api.SourceRelay, Relay: "turn.example.net:3478", State: "suspect"},
			{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
		f.Path.PeerNAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
		f.Unreachable = []Refusal{{To: "192.0.2.1:50000", Reason: "port unreachable", At: time.Now()}}
	}, catalogue.RelayLost, StageProbe, []string{"over the relay turn.example.net:3478", "no other address"}, []string{"`postern netcheck`"}},
	{"the relay in use is silent, and the path is not given up yet", func(f *Facts) {
		behindNAT(f)
		f.LastHandshake, f.NoPath, f.Path.Unanswered = time.Now().Add(-5*time.Second), "", time.Now().Add(-3*time.Second)
		f.Candidates = []catalogue.Candidate{{Address: "192.0.2.1:50000", Source: api.SourceRelay, Relay: "turn.example.net:3478", State: "suspect"},
			{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
		f.Path.PeerNAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
	}, catalogue.HandshakeStale, StageHandshake, []string{"cannot tell whether"},
		[]string{"wait 10 s, ", "whether the relay turn.example.net:3478 answers", "`postern netcheck`", "`postern check`", "see there whether the NAT still lets UDP 1025 through to it", "that NAT forgets it soon: set spec.discovery.keepalive there"}},
	{"no address is known", func(f *Facts) { f.Candidates, f.Endpoints, f.NoPath = nil, nil, "no candidate is known yet" },
		catalogue.PeerMustDial, StageProbe, []string{"no endpoint of cloud is known here"}, []string{"spec.peers[name=cloud].endpoints", publicEdge}},
	{"a young session without echoes, while probes are answered", func(f *Facts) {
		f.LastHandshake, f.NoPath, f.Probed = time.Now().Add(-time.Minute), "", time.Now().Add(2*time.Second)
	},
		catalogue.PingLost, StagePing, []string{"completed a handshake 1m", "fd12::1"}, []string{"`postern ping cloud --layer wg`"}},
	{"probes are answered and handshakes are not", func(f *Facts) {
		f.LastHandshake, f.NoPath, f.Probed, f.Attempts = time.Now().Add(-time.Minute), "", time.Now().Add(2*time.Second), 2
		f.Path.Remote = publicCloud
	}, catalogue.HandshakeStale, StageHandshake, []string{"cloud still answers probes from " + publicCloud, "no handshake"},
		[]string{"find what drops handshakes but not probes on the way"}},
	{"probes are answered after as long as a check takes", func(f *Facts) {
		f.LastHandshake, f.NoPath, f.Probed = time.Now().Add(-time.Minute), "", time.Now().Add(-time.Second)
		f.Path.Remote, f.Path.RTT, f.Path.Unanswered = publicCloud, 4*time.Second, time.Now().Add(-time.Second)
		f.HeardUnanswered = seen(publicCloud) // sent while our answer was on its way
	}, catalogue.PathSlow, StagePing, []string{"a round trip to cloud over " + publicCloud + " takes 4", "not answered within 4s"},
		[]string{"`mtr --report --udp --port 51820 198.51.100.7`"}},
	{"handshakes are given up before they are answered", func(f *Facts) {
		f.LastHandshake, f.NoPath, f.Probed, f.Attempts = time.Now().Add(-time.Minute), "", time.Now().Add(-time.Second), 8
		f.Path.Remote, f.Path.RTT = publicCloud, 6*time.Second
	}, catalogue.PathSlow, StagePing, []string{"a round trip to cloud over " + publicCloud + " takes 6"}, []string{"`mtr --report"}},
	{"this machine has no buffers", func(f *Facts) { f.Unreachable = []Refusal{here("no buffer space")} }, catalogue.SendFails, StageProbe,
		[]string{"this machine fails to send to cloud", publicCloud + " no buffer space"}, []string{"`ip -s link`"}},
	{"a young session without echoes", func(f *Facts) {
		f.LastHandshake, f.NoPath, f.Probed = time.Now().Add(-time.Minute), "", time.Now().Add(-2*time.Second)
		f.Path.Remote = publicCloud
	}, catalogue.Unanswered, StagePing, []string{"cloud does not answer at " + publicCloud, "last heard 5s ago", "too early to tell"}, []string{"wait 10 s", "`postern check cloud`"}},
	{"this machine has no route", func(f *Facts) { f.Unreachable = []Refusal{here("network unreachable")} }, catalogue.NoRoute, StageProbe,
		[]string{"no route to cloud", publicCloud + " network unreachable"}, []string{"`ip route get 198.51.100.7`"}},
	{"a firewall of this machine prohibits", func(f *Facts) {
		f.Unreachable = []Refusal{here("administratively prohibited")}
		f.HeardUnanswered = seen(publicCloud) // it may be heard all the same
	}, catalogue.SendProhibited, StageProbe, []string{"this machine blocks what is sent"}, []string{"`nft insert rule inet filter output ip daddr 198.51.100.7 udp dport 51820 accept`"}},
	{"the next hop is down", func(f *Facts) { f.Unreachable = []Refusal{here("host unreachable")} }, catalogue.NextHopSilent, StageProbe,
		[]string{"the next hop", "does not answer"}, []string{"`ip neighbour`"}},
	{"a router prohibits", func(f *Facts) {
		f.Unreachable = []Refusal{{To: publicCloud, Reason: "administratively prohibited", By: "192.0.2.254", At: time.Now()}}
	}, catalogue.RouterRefuses, StageProbe, []string{"a filter of 192.0.2.254 rejects what is sent to cloud at " + publicCloud}, []string{"on 192.0.2.254, let it through", "udp dport 51820"}},
	{"a router knows no such host", func(f *Facts) {
		f.Unreachable = []Refusal{{To: publicCloud, Reason: "host unreachable", By: "192.0.2.254", At: time.Now()}}
	}, catalogue.RouterRefuses, StageProbe, []string{"192.0.2.254 says", "ICMP host unreachable"}, []string{"whether the machine of cloud and its line are up", "`traceroute -n 198.51.100.7`"}},
	{"the peer's own host rejects", func(f *Facts) {
		f.Unreachable = []Refusal{{To: publicCloud, Reason: "administratively prohibited", By: "198.51.100.7", At: time.Now()}}
	}, catalogue.RouterRefuses, StageProbe, []string{"the host of cloud at " + publicCloud + " rejects"}, []string{"at cloud, let it in"}},
	{"the peer was installed again", func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
		f.OtherKey = KeySight{seen(publicCloud), aKey}
	}, catalogue.WrongPeerKey, StageHandshake, []string{"something at " + publicCloud, aKey, "have worked before"}, []string{"ask the owner of cloud"}},
	{"a peer that joined has another key", func(f *Facts) { f.OtherKey, f.Joined = KeySight{seen(publicCloud), aKey}, true }, catalogue.WrongPeerKey, StageHandshake,
		[]string{"with the public key " + aKey + "; the one known here"}, []string{"if that is not the key known here", "remove each gateway from the peers of the other"}},
	{"a peer that joined has a wrong key of us", func(f *Facts) { f.NotForUs, f.Joined = seen(publicCloud), true }, catalogue.WrongPeerKey, StageHandshake,
		[]string{"from before this gateway's last `postern key rotate`"}, []string{"if that gateway has another, remove each gateway from the peers of the other"}},
	{"the peer was restored from before its rotation", func(f *Facts) {
		f.OtherKey, f.Joined, f.Former = KeySight{seen(publicCloud), aKey}, true, []string{aKey}
	}, catalogue.WrongPeerKey, StageHandshake, []string{"with a former key of cloud (" + aKey + ")", "restored from a backup"},
		[]string{"restore a backup that has the current key", "remove each gateway from the peers of the other"}},
}

// here returns a refusal by this machine.
func here(reason string) Refusal {
	return Refusal{To: publicCloud, Reason: reason, Here: true, At: time.Now()}
}

func TestEachFaultOfTheWayHasOneRoot(t *testing.T) {
	texts := make(map[string]string)
	for _, c := range gatewayFaults {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := unreached()
				if c.facts != nil {
					c.facts(&f)
				}
				r := Gateway(t.Context(), newOverlay(t).Ping, f)
				checkVerdict(t, r, api.Error, c.code, c.stage)
				for _, want := range c.cause {
					if !strings.Contains(r.Verdict().Cause, want) {
						t.Errorf("the cause lacks %q: %s", want, r.Verdict().Cause)
					}
				}
				for _, want := range c.fix {
					if !strings.Contains(r.Verdict().Fix, want) {
						t.Errorf("the fix lacks %q: %s", want, r.Verdict().Fix)
					}
				}
				if other := texts[r.Verdict().Cause]; other != "" {
					t.Errorf("%q reads the same", other)
				}
				texts[r.Verdict().Cause] = c.name
			})
		})
	}
}

// While the peer works, observations explain nothing.
func TestEvidenceCountsForNothingWhileThePeerWorks(t *testing.T) {
	for _, c := range gatewayFaults {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := unreached()
				if c.facts != nil {
					c.facts(&f)
				}
				if c.code == catalogue.DuplicateKey {
					f.BootsAt[2] = time.Now().Add(-time.Hour) // the copy was stopped
				}
				o := newOverlay(t)
				o.pings(func() error { return nil })
				checkVerdict(t, Gateway(t.Context(), o.Ping, f), api.OK, "", "")
			})
		})
	}
}

// Observations from before the last handshake, or from long ago, do not explain a current silence.
func TestOldEvidenceIsNoCause(t *testing.T) {
	for name, at := range map[string]func(f *Facts) time.Time{
		"before the last handshake": func(f *Facts) time.Time {
			f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-20*time.Second)
			return time.Now().Add(-61 * time.Second)
		},
		"long ago": func(f *Facts) time.Time {
			f.Since = time.Now().Add(-time.Hour)
			return time.Now().Add(-evidenceLife - time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := unreached()
				s := Sight{publicCloud, at(&f)}
				f.HeardUnanswered, f.Unverified, f.NotForUs, f.CameBack = s, s, s, s
				f.OtherKey, f.StampInPast = KeySight{s, aKey}, StampSight{Sight: s}
				f.Unreachable = []Refusal{{To: publicCloud, Reason: "port unreachable", At: s.At}}
				if name == "long ago" {
					f.Unreachable[0].At = time.Now().Add(-refusalLife)
				}
				want := catalogue.PeerSilent
				if !f.LastHandshake.IsZero() {
					want = catalogue.HandshakeStale
				}
				checkVerdict(t, Gateway(t.Context(), newOverlay(t).Ping, f), api.Error, want, StageProbe)
			})
		})
	}
}

// Whether the peer has approved this gateway meanwhile is not known here.
func TestApprovalIsOnlyLikelyToBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unreached()
		f.Awaited = true
		r := Gateway(t.Context(), newOverlay(t).Ping, f)
		checkVerdict(t, r, api.Warning, catalogue.AwaitingApproval, StageHandshake)
		if v := r.Verdict(); v.Confidence != api.Likely || !strings.Contains(v.Fix, "if it is approved already, see there why the two do not reach each other: `postern check`") {
			t.Errorf("got %s, with the fix %q", v.Confidence, v.Fix)
		}
	})
}

// If there are several possible causes, the verdict claims none of them.
func TestWhatProvesNothingIsNotBlamed(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts func(*Facts)
		want  catalogue.Code
	}{
		{"a stranger behind the same NAT as a peer that worked", func(f *Facts) {
			f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
			f.OtherKey = KeySight{seen("198.51.100.7:1099"), aKey}
		}, catalogue.HandshakeStale},
		{"one of two addresses is ours", func(f *Facts) {
			f.CameBack = seen(publicCloud)
			f.Candidates = append(f.Candidates, catalogue.Candidate{Address: "198.51.100.8:51820", Source: api.SourceAdvertised})
		}, catalogue.PeerSilent},
		{"its address is ours, and it has a relay", func(f *Facts) {
			f.CameBack = seen(publicCloud)
			f.Candidates = append(f.Candidates, catalogue.Candidate{Address: "192.0.2.99:49152", Source: api.SourceRelay, Relay: "turn.example.net:3478"})
		}, catalogue.PeerSilent},
		{"another port of its host leads to us", func(f *Facts) { f.CameBack = seen("198.51.100.7:1025") }, catalogue.PeerSilent},
		{"a stranger elsewhere", func(f *Facts) { f.OtherKey = KeySight{seen("192.0.2.77:51820"), aKey} }, catalogue.PeerSilent},
		{"a NAT without a mapping for us", func(f *Facts) {
			f.Candidates = []catalogue.Candidate{{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
			f.Unreachable = []Refusal{{To: "198.51.100.7:1025", Reason: "port unreachable", At: time.Now()}}
		}, catalogue.PeerSilent},
		{"another host with the peer's private address", func(f *Facts) {
			f.Candidates = append(f.Candidates, catalogue.Candidate{Address: "192.168.1.77:51820", Source: api.SourceHost})
			f.Unreachable = []Refusal{{To: "192.168.1.77:51820", Reason: "port unreachable", At: time.Now()}}
		}, catalogue.PeerSilent},
		{"an address that is refused, beside one that is not", func(f *Facts) {
			f.Candidates = append(f.Candidates, catalogue.Candidate{Address: "[2001:db8::7]:51820", Source: api.SourceAdvertised})
			f.Unreachable = []Refusal{{To: "[2001:db8::7]:51820", Reason: "network unreachable", Here: true, At: time.Now()}}
		}, catalogue.PeerSilent},
		{"a private address that is refused, beside a public one", func(f *Facts) {
			f.Candidates = append(f.Candidates, catalogue.Candidate{Address: "10.0.0.5:51820", Source: api.SourceHost})
			f.Unreachable = []Refusal{{To: "10.0.0.5:51820", Reason: "host unreachable", By: "192.0.2.254", At: time.Now()}}
		}, catalogue.PeerSilent},
		{"a peer that worked, from behind our NAT", func(f *Facts) {
			behindNAT(f)
			f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
		}, catalogue.HandshakeStale},
		{"a private address that worked", func(f *Facts) {
			f.LastHandshake, f.PathLost = time.Now().Add(-time.Minute), time.Now().Add(-30*time.Second)
			f.Candidates = []catalogue.Candidate{{Address: "10.0.0.5:51820", Source: api.SourceAdvertised}}
		}, catalogue.HandshakeStale},
		{"a private address of a network of ours", func(f *Facts) {
			f.Candidates = []catalogue.Candidate{{Address: "192.168.1.20:51820", Source: api.SourceAdvertised}}
		}, catalogue.PeerSilent},
		{"a NAT that is not known", func(f *Facts) {
			behindNAT(f)
			f.own.NAT = catalogue.NAT{Mapping: "endpoint-independent", Filtering: "address-dependent"}
			f.Candidates = []catalogue.Candidate{{Address: "198.51.100.7:1025", Source: api.SourceSTUN}}
		}, catalogue.PeerSilent},
		{"a peer that was started again", func(f *Facts) {
			f.Boots, f.BootsAt = []uint64{7, 8, 9}, []time.Time{time.Now(), time.Now(), time.Now()}
		}, catalogue.PeerSilent},
		{"a name that leads to more addresses, and still to the one in use", func(f *Facts) {
			f.Path.Remote = "198.51.100.7:51820"
			f.Moved = []NameFact{{Name: "gw.cloud.example:51820", Was: []string{"198.51.100.7"}, Now: []string{"198.51.100.7", "198.51.100.99"}, At: time.Now()}}
		}, catalogue.PeerSilent},
		{"a name that moved long before", func(f *Facts) {
			f.Moved = []NameFact{{Name: "gw.cloud.example:51820", Was: []string{"192.0.2.1"}, Now: []string{"198.51.100.7"}, At: time.Now().Add(-time.Hour)}}
		}, catalogue.PeerSilent},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := unreached()
				c.facts(&f)
				r := Gateway(t.Context(), newOverlay(t).Ping, f)
				checkVerdict(t, r, api.Error, c.want, StageProbe)
				if !strings.Contains(r.Verdict().Cause, "cannot tell") {
					t.Errorf("the cause claims to know: %s", r.Verdict().Cause)
				}
			})
		})
	}
}

// Evidence that anyone can send yields to evidence that only the peer can send.
func TestWhatCanBeForgedDoesNotBeatWhatCannot(t *testing.T) {
	forged := func(f *Facts) { f.NotForUs, f.OtherKey = seen(publicCloud), KeySight{seen(publicCloud), aKey} }
	worked := func(f *Facts) {
		f.LastHandshake, f.PathLost = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	}
	for _, c := range []struct {
		name  string
		facts func(*Facts)
		want  catalogue.Code
		stage string
	}{
		{"other keys, while the peer's probes arrive", func(f *Facts) { forged(f); f.HeardUnanswered = seen(publicCloud) }, catalogue.NotHeardByPeer, StageProbe},
		{"other keys, while the peer's initiations arrive", func(f *Facts) { forged(f); f.Initiated = seen(publicCloud) }, catalogue.PeerSilent, StageHandshake},
		{"other keys of a peer that worked, while its initiations arrive", func(f *Facts) {
			worked(f)
			forged(f)
			f.Initiated = seen(publicCloud)
		}, catalogue.HandshakeStale, StageHandshake},
		{"a router's word, while responses arrive that do not verify", func(f *Facts) {
			f.Unreachable = []Refusal{{To: publicCloud, Reason: "administratively prohibited", By: "192.0.2.254", At: time.Now()}}
			f.Unverified = seen(publicCloud)
		}, catalogue.PresharedKeyDiffers, StageHandshake},
		{"an old initiation from elsewhere", func(f *Facts) {
			f.StampInPast = StampSight{seen("192.0.2.66:1"), time.Now().Add(-time.Hour), time.Now()}
		}, catalogue.PeerSilent, StageProbe},
		{"an old initiation from elsewhere, while the peer's probes arrive", func(f *Facts) {
			f.HeardUnanswered = seen(publicCloud)
			f.StampInPast = StampSight{seen("192.0.2.66:1"), time.Now().Add(-time.Hour), time.Now()}
		}, catalogue.NotHeardByPeer, StageProbe},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := unreached()
				c.facts(&f)
				checkVerdict(t, Gateway(t.Context(), newOverlay(t).Ping, f), api.Error, c.want, c.stage)
			})
		})
	}
}

// The wall clock, in which WireGuard reports the last handshake, may be set back.
func TestAClockThatWasSetBackHidesNoEvidence(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts func(*Facts)
		want  catalogue.Code
		stage string
	}{
		{"the peer is heard", func(f *Facts) { f.HeardUnanswered = seen(publicCloud) }, catalogue.NotHeardByPeer, StageProbe},
		{"the peer is silent", func(*Facts) {}, catalogue.HandshakeStale, StageProbe},
		{"no paths are sought", func(f *Facts) { f.NoPath, f.Path = "", PathFacts{} }, catalogue.HandshakeStale, StageHandshake},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := unreached()
				f.LastHandshake, f.PathLost = time.Now().Add(time.Hour).Round(0), time.Now().Add(-time.Minute)
				c.facts(&f)
				r := Gateway(t.Context(), newOverlay(t).Ping, f)
				checkVerdict(t, r, api.Error, c.want, c.stage)
				if strings.Contains(r.Verdict().Cause, "-") && strings.Contains(r.Verdict().Cause, " ago") {
					t.Errorf("the cause tells a time to come: %s", r.Verdict().Cause)
				}
			})
		})
	}
	f := Facts{Name: "printer", Stock: true, LastHandshake: time.Now().Add(time.Hour)}
	if r := Gateway(t.Context(), nil, f); r.Outcome != api.Unknown {
		t.Errorf("a handshake of a time to come makes a stock peer %s", r.Outcome)
	}
}

// A key that was seen on the wire is only shown for comparison if it is valid, and never offered to
// be pasted.
func TestOnlyAKeyIsShownAsAKey(t *testing.T) {
	for _, key := range []string{"`reboot`", "AAAA", aKey + "\n", ""} {
		p := catalogue.Params{Peer: "cloud"}
		p.Key = key
		cause, fix := catalogue.Render(catalogue.WrongPeerKey, p)
		if key != "" && strings.Contains(cause+fix.String(), key) {
			t.Errorf("%q is shown: %s, %s", key, cause, fix)
		}
	}
	p := catalogue.Params{Peer: "cloud"}
	p.Key = aKey
	if cause, fix := catalogue.Render(catalogue.WrongPeerKey, p); !strings.Contains(cause, aKey) || strings.Contains(fix.String(), aKey) {
		t.Errorf("a key that anybody may have sent is to be pasted: %s; %s", cause, fix)
	}
}

// A public address may be in a network of this gateway, too.
func TestWhatOurNetworkAnswersIsNotTold(t *testing.T) {
	for network, want := range map[string]catalogue.Code{"9.9.9.0/24": catalogue.PeerSilent, "192.0.2.0/24": catalogue.NothingListens} {
		const public = "9.9.9.9:51820"
		f := Facts{Name: "cloud", Since: time.Now().Add(-time.Minute), NoPath: "nothing answers", own: &Own{Networks: []netip.Prefix{netip.MustParsePrefix(network)}},
			Candidates: []catalogue.Candidate{{Address: public, Source: api.SourceAdvertised}},
			Evidence:   Evidence{Unreachable: []Refusal{{To: public, Reason: portUnreachable, At: time.Now()}}}}
		r := begin(api.ServiceGateway, api.ServiceGateway, f)
		res := r.unanswered()
		if res.Code != catalogue.NothingListens || res.ForPeer().Code != want {
			t.Errorf("in %s: the operator sees %s, the peer is told %s; want %s and %s", network, res.Code, res.ForPeer().Code, catalogue.NothingListens, want)
		}
	}
}

// A machine with two interfaces in one network discards broadcasts all the time. That explains no
// silence; more than that from the time of the silence on does.
func TestWhatIsFilteredAnywayExplainsNoSilence(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	twice := []netip.Prefix{netip.MustParsePrefix("192.168.9.2/24"), netip.MustParsePrefix("192.168.9.3/24")}
	for name, c := range map[string]struct {
		before   []Rate
		networks []netip.Prefix
		explains bool
	}{
		"nothing is known of before":                    {nil, nil, true},
		"nothing is known of before, and two addresses": {nil, twice, false},
		"two addresses, and none before":                {[]Rate{{0, ago(3 * time.Minute), ago(2 * time.Minute)}}, twice, true},
		"as many before":                                {[]Rate{{30, ago(3 * time.Minute), ago(2 * time.Minute)}, {5, ago(2 * time.Minute), ago(time.Minute)}}, nil, false},
		"fewer before, and as many since":               {[]Rate{{10, ago(3 * time.Minute), ago(2 * time.Minute)}, {40, ago(time.Minute), now}}, nil, true},
	} {
		f := Facts{Probed: ago(45 * time.Second), LastHandshake: ago(time.Hour), own: &Own{Networks: c.networks, Filtered: 45, FilteredIn: time.Minute, FilteredBefore: c.before}}
		var p catalogue.Params
		if evidenceOf(f, now, now).here(&p); (p.Filtered > 0) != c.explains {
			t.Errorf("%s: it explains the silence: %v", name, p.Filtered > 0)
		}
	}
}
