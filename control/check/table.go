package check

import (
	"fmt"
)

// The table of codes: what each means, and how its cause and its fix read. A fix is a
// command, a firewall rule or a setting that somebody can apply as it stands.

func gatewayEntries() []Entry {
	return []Entry{
		{PeerSilent, "the peer has never answered", func(p Params) string {
			if p.NoPath != "" {
				return fmt.Sprintf("%s has not answered%s in %s: %s", p.owner(), p.toClient(), seconds(p.Age), p.NoPath)
			}
			return fmt.Sprintf("%s has not answered any handshake%s sent by UDP to %s in %s",
				p.owner(), p.ofClient(), or(list(p.Endpoints), "its endpoints"), seconds(p.Age))
		}, peerSilentFix},
		{HandshakeStale, "the peer stopped answering", func(p Params) string {
			if p.NoPath != "" {
				return fmt.Sprintf("no path%s to %s has worked for %s: %s", p.fromClient(), p.owner(), seconds(p.Age), p.NoPath)
			}
			return fmt.Sprintf("%s answered%s last %s ago; handshakes to %s stay unanswered since",
				p.owner(), p.toClient(), seconds(p.Age), or(list(p.Endpoints), "its last address"))
		}, func(p Params) string {
			if p.NoPath != "" {
				return fmt.Sprintf("see that %s runs and has a network (`postern status` %s) and that no firewall "+
					"holds back UDP between the two; `postern path %s` says what became of each address", p.gateway(), p.there(), p.peer())
			}
			return fmt.Sprintf("see that %s runs and has a network (`postern status` %s); if its address changed, "+
				"%s", p.gateway(), p.there(), p.setEndpoint())
		}},
		{PingLost, "handshakes pass, packets inside the tunnel do not", func(p Params) string {
			return detail(fmt.Sprintf("%s completed a handshake%s %s ago, but %s inside the tunnel does not answer pings%s within %s",
				p.owner(), p.withClient(), seconds(p.Age), or(p.Address, "its overlay address"), p.ofClient(), seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("see with `postern peer show` on both sides that each has the other's present key; then lower spec.mtu to 1280 "+
				"on both gateways in case large datagrams are lost on the way to %s", p.owner())
		}},
		{PeerMustDial, "the peer has no endpoint here and has not dialled", func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("%s knows no endpoint of this gateway, which has not dialled it in %s", p.peer(), seconds(p.Age))
			}
			return fmt.Sprintf("no endpoint of %s is known here, and it has not dialled this gateway in %s", p.peer(), seconds(p.Age))
		}, func(p Params) string {
			return fmt.Sprintf("set spec.peers[name=%s].endpoints: [\"IP:PORT\"] here, or an endpoint of this gateway at %s", p.peer(), p.peer())
		}},
		{AwaitingApproval, "the peer waits for approval", func(p Params) string {
			return fmt.Sprintf("%s joined%s with a ticket made with --approve and is not approved yet", p.owner(), p.toClient())
		}, func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("tell the owner of %s this gateway's key (`postern key pub`), for `postern peer approve` there", p.peer())
			}
			return fmt.Sprintf("compare the key fingerprints (`postern peer show %s`), then run `postern peer approve %s`", p.peer(), p.peer())
		}},
	}
}

func peerSilentFix(p Params) string {
	to := or(list(p.Endpoints), "its endpoint")
	dial := fmt.Sprintf("let it dial: run `postern invite` %s and `postern join` %s", p.here(), p.there())
	if p.NoPath != "" {
		return fmt.Sprintf("see that %s runs, and let UDP to %s through its firewall and port forwarding; "+
			"`postern path %s` says what became of each address; if none can be reached from %s, %s", p.gateway(), to, p.peer(), p.here(), dial)
	}
	return fmt.Sprintf("let UDP to %s through the firewall and port forwarding of %s; if it cannot be reached from %s, %s; "+
		"compare keys with `postern peer show %s`", to, p.owner(), p.here(), dial, p.peer())
}

func resourceEntries() []Entry {
	return []Entry{
		{PeerFlowLimit, "a peer has too many open connections", func(p Params) string {
			return fmt.Sprintf("%s has %d connections open through this gateway, the most it may have; further ones are refused", p.Peer, p.Limit)
		}, func(p Params) string {
			return fmt.Sprintf("find what opens them: `postern status %s -o json` lists its flows; `postern peer remove %s` ends them all", p.Peer, p.Peer)
		}},
		{PeerHalfOpenLimit, "a peer has too many connections being opened", func(p Params) string {
			return fmt.Sprintf("%s has %d connections that are being opened, the most it may have; further ones are refused", p.Peer, p.Limit)
		}, func(p Params) string {
			return fmt.Sprintf("see whether the upstream of %s answers slowly (warnings PST0310 to PST0313 in the log), and with `postern status %s -o json` what %s has open",
				or(p.Service, "the service"), p.Peer, p.Peer)
		}},
		{TotalFlowLimit, "the gateway carries as many connections as it may", func(p Params) string {
			return fmt.Sprintf("%d connections are open through this gateway, the most it may carry; %s was refused another", p.Limit, p.Peer)
		}, func(Params) string {
			return "find who holds them: `postern status -o json` lists the flows of each peer"
		}},
	}
}
