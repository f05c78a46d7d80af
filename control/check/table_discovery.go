package check

import "fmt"

// dnsEntries are the codes of finding gateways in DNS.
func dnsEntries() []Entry {
	return []Entry{
		{KeyMoved, "a peer has another key in DNS", func(p Params) string {
			return fmt.Sprintf("%s has the key %s in DNS, and %s has %s here: this gateway keeps to the key that it knows, and dials nothing of what was found there",
				or(p.Record, "a record"), or(p.Found, "of somebody else"), keyed(p), or(p.Known, "another one"))
		}, func(p Params) string {
			return fmt.Sprintf("ask the operator of %s for the fingerprint (`postern key pub`): if the key there is still %s, have the TXT record corrected, since somebody else may have written it; if it is new, `postern peer remove %s`, then approve or join it again",
				keyed(p), or(p.Known, "the old one"), or(p.PeerName, "NAME"))
		}},
		{DomainUnanswered, "a domain is not answered", func(p Params) string {
			return detail(fmt.Sprintf("this gateway cannot look for gateways in %s: %s is not answered", domain(p), or(p.Record, "it")), p)
		}, func(p Params) string {
			return fmt.Sprintf("see what `dig +short PTR _postern._udp.%s` says on this machine; correct the servers in /etc/resolv.conf, or name those that know the domain in spec.discovery.dns.servers; they are asked by UDP and TCP at port 53", domain(p))
		}},
		{DomainEmpty, "a domain has no gateways", func(p Params) string {
			return fmt.Sprintf("this gateway looks for others in %s, where none is announced: there is no PTR record _postern._udp.%s", domain(p), domain(p))
		}, func(p Params) string {
			return fmt.Sprintf("run `postern dns-records --domain %s` at a gateway that is to be found there, and put the lines into the zone; or take the domain out of spec.discovery.dns.domains", domain(p))
		}},
		{RecordUnusable, "a gateway's records in DNS cannot be used", func(p Params) string {
			return detail(fmt.Sprintf("this gateway does not use all that %s says: %s is wrong", domain(p), or(p.Record, "a record")), p)
		}, func(p Params) string {
			return fmt.Sprintf("correct it in the zone: `postern dns-records --domain %s` at the gateway that it is about prints the right lines", domain(p))
		}},
		{RecordForged, "DNSSEC validation fails", func(p Params) string {
			return detail(fmt.Sprintf("the resolver of this gateway has found a signature in %s to be wrong, and gives no answer to %s", domain(p), or(p.Record, "a question")), p)
		}, func(p Params) string {
			return fmt.Sprintf("see `delv _postern._udp.%s PTR` on this machine: where signatures have expired, sign the zone again; else somebody on the way answers in its place", domain(p))
		}},
	}
}

func keyed(p Params) string { return or(p.PeerName, "the peer") }

func domain(p Params) string { return or(p.Domain, "DOMAIN") }

// mappingEntries are the codes of asking the router for a port.
func mappingEntries() []Entry {
	byHand := func(p Params) string {
		return fmt.Sprintf("on the router forward UDP %s to this gateway and set spec.discovery.advertise: [\"PUBLIC-IP:%s\"] here", p.ownPort(), p.ownPort())
	}
	return []Entry{
		{MappingStale, "the router's mapping is dead", func(p Params) string {
			return detail(fmt.Sprintf("the router %s lists %s for this gateway, and nothing from outside has come through it, though it was deleted and recreated", or(p.Router, "of this gateway"), or(p.Mapped, "a port")), p)
		}, func(p Params) string {
			return fmt.Sprintf("allow inbound UDP %s in the firewall of the router and of the provider; or %s", or(portOf(p.Mapped), p.ownPort()), byHand(p))
		}},
		{MappingRefused, "the router refuses to map a port", func(p Params) string {
			return detail(fmt.Sprintf("the router %s was asked to map a port to this gateway and refused", or(p.Router, "of this gateway")), p)
		}, func(p Params) string {
			return "allow UPnP, NAT-PMP or PCP for this host on the router; or " + byHand(p) + ", and set spec.discovery.portMapping: {mode: off}"
		}},
		{RouterSilent, "no router maps a port", func(p Params) string {
			return detail(fmt.Sprintf("this gateway is to ask its router%s for a port, and gets none by PCP, NAT-PMP or UPnP", before(" ", p.Router)), p)
		}, func(p Params) string {
			return "switch UPnP, NAT-PMP or PCP on in the router, or name the right one in spec.discovery.portMapping.router (`ip route get 1.1.1.1` shows the next hop); or " + byHand(p)
		}},
		{MappingInside, "the router is behind another NAT", func(p Params) string {
			return detail(fmt.Sprintf("the router %s maps %s to this gateway, which is no public address", or(p.Router, "of this gateway"), or(p.Mapped, "an address")), p)
		}, func(p Params) string {
			return fmt.Sprintf("have the NAT before it forward UDP %s to the router, ask the provider for a public address, or set spec.discovery.turnServers", or(portOf(p.Mapped), p.ownPort()))
		}},
		{MappingElsewhere, "the router names another address than others see", func(p Params) string {
			return detail(fmt.Sprintf("the router %s maps %s to this gateway, which is not where it is seen", or(p.Router, "of this gateway"), or(p.Mapped, "an address")), p)
		}, func(p Params) string {
			return "if there are two ways out, name the router of the right one in spec.discovery.portMapping.router; if the router is wrong about itself, " + byHand(p)
		}},
	}
}

func before(space, s string) string {
	if s == "" {
		return ""
	}
	return space + s
}
