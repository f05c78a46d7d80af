package check

import (
	"fmt"
	"net/netip"
)

// upstreamEntries are the codes of connections that leave a gateway: to the upstream of a
// service of its own, and from its local listeners to a peer.
func upstreamEntries() []Entry {
	return []Entry{
		{UpstreamRefused, "the upstream of a service refuses connections", func(p Params) string {
			return detail(fmt.Sprintf("nothing listens at %s, the upstream of %s", p.Upstream, p.Service), p)
		}, func(p Params) string {
			return fmt.Sprintf("start the server at %s, or set %s to where it listens", p.Upstream, p.setting("address"))
		}},
		{UpstreamTimeout, "the upstream of a service does not answer", func(p Params) string {
			return detail(fmt.Sprintf("%s, the upstream of %s, did not accept a connection within %s", p.Upstream, p.Service, seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("let TCP from this gateway to %s through firewalls%s and NetworkPolicies, or correct %s",
				p.Upstream, letTCP(or(p.Remote, p.Upstream)), p.setting("address"))
		}},
		{UpstreamName, "the upstream's name does not resolve", func(p Params) string {
			return detail(fmt.Sprintf("the name in %s, the upstream of %s, does not resolve here", p.Upstream, p.Service), p)
		}, func(p Params) string {
			return fmt.Sprintf("correct %s, or this machine's resolver (/etc/resolv.conf)", p.setting("address"))
		}},
		{UpstreamUnreachable, "the upstream of a service cannot be reached", func(p Params) string {
			return detail(fmt.Sprintf("%s, the upstream of %s, cannot be reached", p.Upstream, p.Service), p)
		}, func(p Params) string {
			return fmt.Sprintf("see that this machine has a route to %s%s, or correct %s", p.Upstream, p.routeTo(), p.setting("address"))
		}},
		{PeerServiceDown, "a local connection could not be carried to the peer", func(p Params) string {
			return detail(fmt.Sprintf("the connection to %s of %s failed", p.Service, p.Peer), p)
		}, func(p Params) string {
			return fmt.Sprintf("run `postern status %s`: its verdicts name the cause", p.Peer)
		}},
		{APIServerURLUnreachable, "the API server's URL cannot be reached", func(p Params) string {
			return p.of("apiServer").urlCause()
		}, func(p Params) string {
			return p.of("apiServer").urlFix()
		}},
	}
}

// routeTo is the command that shows the route to an upstream, if its address is known.
func (p Params) routeTo() string {
	a, err := netip.ParseAddrPort(or(p.Remote, p.Upstream))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (`ip route get %s`)", a.Addr().Unmap())
}
