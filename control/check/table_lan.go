package check

import "fmt"

// lanEntries are the codes of finding gateways on the local network.
func lanEntries() []Entry {
	return []Entry{
		{LANNoInterface, "no interface to find gateways on", func(p Params) string {
			return joined("this gateway looks for others on the local network and has no interface for that", ": ", list(p.Names), "")
		}, func(Params) string {
			return "name one that is up, in a network and does multicast in spec.discovery.lan.interfaces (`ip -brief address` lists them); in a pod that needs `hostNetwork: true`"
		}},
		{LANNotJoined, "multicast DNS cannot be spoken", func(p Params) string {
			return detail(joined("this gateway cannot exchange messages of multicast DNS", " on ", list(p.Names), ""), p)
		}, func(Params) string {
			return "if the port is in use, see who has it without sharing it: `ss -ulpn 'sport = :5353'`; if it is not permitted, allow UDP 5353 and the groups 224.0.0.251 and ff02::fb in this host's firewall and security policy"
		}},
		{LANSilent, "nothing is heard on the local network", func(p Params) string {
			return fmt.Sprintf("this gateway has heard no message of multicast DNS of anybody on %s%s: either nobody else speaks it there, or it is filtered", or(list(p.Names), "the local network"), p.lasting("for"))
		}, func(Params) string {
			return "see what arrives with `tcpdump -ni any udp port 5353`; let UDP 5353 in and out in the hosts' firewalls; on switches and access points switch off client isolation and multicast filtering (IGMP snooping without a querier); the gateways must be in one network, as routers do not pass it on"
		}},
		{LANPod, "a pod network leads to no local network", func(p Params) string {
			return fmt.Sprintf("this gateway runs in a pod whose network (%s) is that of the cluster: multicast DNS of the nodes' network does not reach it", or(list(p.Names), "eth0"))
		}, func(Params) string {
			return "give the pod the node's network (`hostNetwork: true`), or find gateways by ticket or DNS and set spec.discovery.lan: {enabled: false}"
		}},
		{LANOtherKey, "a peer's name is announced with another key", func(p Params) string {
			return fmt.Sprintf("somebody on the local network (%s) announces the name of %s with the key %s, and %s has %s here: this gateway keeps to the key that it knows, and dials nothing of what was found there",
				or(list(p.Endpoints), "without an address"), p.peer(), or(p.Found, "of somebody else"), p.peer(), or(p.Known, "another one"))
		}, func(p Params) string {
			return fmt.Sprintf("ask the operator of %s for the fingerprint, which `postern discover` shows there: if it is still %s, find out who has that address; if it is new, `postern peer remove %s`, then `postern peer approve`; if they are two gateways, `postern peer approve NAME --as OTHER`",
				p.peer(), or(p.Known, "the old one"), or(p.Peer, "NAME"))
		}},
		{LANRecord, "what a gateway announces cannot be used", func(p Params) string {
			return detail(fmt.Sprintf("this gateway cannot use what %s announces on the local network", or(list(p.Names), "somebody")), p)
		}, func(Params) string {
			return "`postern discover` shows it; if it is a gateway, upgrade the older of the two; if another program announces _postern._udp, correct its records"
		}},
	}
}
