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
				return fmt.Sprintf("%s has not answered in %s: %s", p.Peer, seconds(p.Age), p.NoPath)
			}
			return fmt.Sprintf("%s has not answered any handshake sent by UDP to %s in %s",
				p.Peer, or(list(p.Endpoints), "its endpoints"), seconds(p.Age))
		}, func(p Params) string {
			if p.NoPath != "" {
				return fmt.Sprintf("see that the gateway of %s runs, and let UDP to %s through its firewall and port forwarding; "+
					"`postern path %s` says what became of each address; if none can be reached from here, let it dial: "+
					"run `postern invite` here and `postern join` there", p.Peer, or(list(p.Endpoints), "its endpoint"), p.Peer)
			}
			return fmt.Sprintf("let UDP to %s through %s's firewall and port forwarding; if %s cannot be reached from here, "+
				"let it dial: run `postern invite` here and `postern join` there; compare keys with `postern peer show %s`",
				or(list(p.Endpoints), "its endpoint"), p.Peer, p.Peer, p.Peer)
		}},
		{HandshakeStale, "the peer stopped answering", func(p Params) string {
			if p.NoPath != "" {
				return fmt.Sprintf("no path to %s has worked for %s: %s", p.Peer, seconds(p.Age), p.NoPath)
			}
			return fmt.Sprintf("%s answered last %s ago; handshakes to %s stay unanswered since",
				p.Peer, seconds(p.Age), or(list(p.Endpoints), "its last address"))
		}, func(p Params) string {
			if p.NoPath != "" {
				return fmt.Sprintf("see that the gateway of %s runs and has a network (`postern status` there) and that no firewall "+
					"holds back UDP between the two; `postern path %s` says what became of each address", p.Peer, p.Peer)
			}
			return fmt.Sprintf("see that the gateway of %s runs and has a network (`postern status` there); if its address changed, "+
				"set spec.peers[name=%s].endpoints", p.Peer, p.Peer)
		}},
		{PingLost, "handshakes pass, packets inside the tunnel do not", func(p Params) string {
			return detail(fmt.Sprintf("%s completed a handshake %s ago, but %s inside the tunnel does not answer pings within %s",
				p.Peer, seconds(p.Age), or(p.Address, "its overlay address"), seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("see with `postern peer show` on both sides that each has the other's present key; then lower spec.mtu to 1280 "+
				"on both gateways in case large datagrams are lost on the way to %s", p.Peer)
		}},
		{PeerMustDial, "the peer has no endpoint here and has not dialled", func(p Params) string {
			return fmt.Sprintf("no endpoint of %s is known here, and it has not dialled this gateway in %s", p.Peer, seconds(p.Age))
		}, func(p Params) string {
			return fmt.Sprintf("set spec.peers[name=%s].endpoints: [\"IP:PORT\"] here, or an endpoint of this gateway there", p.Peer)
		}},
		{AwaitingApproval, "the peer waits for approval", func(p Params) string {
			return fmt.Sprintf("%s joined with a ticket made with --approve and is not approved yet", p.Peer)
		}, func(p Params) string {
			return fmt.Sprintf("compare the key fingerprints (`postern peer show %s`), then run `postern peer approve %s`", p.Peer, p.Peer)
		}},
	}
}

func authEntries() []Entry {
	return []Entry{
		{AuthRefused, "the peer refuses connections to its auth service", func(p Params) string {
			return detail(fmt.Sprintf("%s refused TCP %s inside the tunnel", p.Peer, p.Address), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s run `postern status` and see that this gateway's key is among its peers; if it is, too many connections are open there (PST0801)", p.Peer)
		}},
		{AuthTimeout, "auth does not answer in time", func(p Params) string {
			return detail(fmt.Sprintf("auth of %s at %s inside the tunnel did not answer within %s", p.Peer, p.Address, seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("measure with `postern ping %s --layer overlay`; when that answers, restart the gateway of %s", p.Peer, p.Peer)
		}},
		{AuthHTTP, "auth answers with an HTTP error", func(p Params) string {
			return fmt.Sprintf("auth of %s answered %s with HTTP %d", p.Peer, or(p.Path, "the request"), p.Status)
		}, func(p Params) string {
			return fmt.Sprintf("read the log of the gateway of %s for the same moment", p.Peer)
		}},
		{AuthDenied, "auth knows this gateway but denies the request", func(p Params) string {
			return detail(fmt.Sprintf("auth of %s denied %s with HTTP 403", p.Peer, or(p.Path, "the request")), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s run `postern peer allow NAME auth,apiServer`, NAME being this gateway's name there", p.Peer)
		}},
		{AuthVersion, "the two gateways speak different major versions", func(p Params) string {
			return fmt.Sprintf("%s speaks protocol version %s, this gateway %s", p.Peer, or(p.Version, "unknown"), or(p.OwnVersion, "unknown"))
		}, func(p Params) string {
			return fmt.Sprintf("upgrade the older gateway so that both share a major version (`postern version` here and at %s)", p.Peer)
		}},
		{AuthOff, "the peer does not offer auth to this gateway", func(p Params) string {
			return fmt.Sprintf("%s does not offer auth to this gateway", p.Peer)
		}, func(p Params) string {
			return fmt.Sprintf("if it should, at %s run `postern peer allow NAME auth`, NAME being this gateway's name there", p.Peer)
		}},
		{AuthNotUnderstood, "auth's answer is not postern's", func(p Params) string {
			return detail(fmt.Sprintf("what answers at %s of %s is not postern's auth service", p.Address, p.Peer), p)
		}, func(p Params) string {
			return fmt.Sprintf("if %s is a plain WireGuard peer set spec.peers[name=%s].stock: true; else upgrade it", p.Peer, p.Peer)
		}},
		{AuthBroken, "the connection to auth breaks off", func(p Params) string {
			return detail(fmt.Sprintf("the connection to auth of %s at %s broke off before the answer was complete", p.Peer, p.Address), p)
		}, func(p Params) string {
			return fmt.Sprintf("read the log of the gateway of %s for the same moment; it may have restarted or removed this peer", p.Peer)
		}},
		{TicketAlarm, "a ticket was tried by a second key", func(p Params) string {
			return detail("a ticket that one gateway has redeemed was presented again with another key", p)
		}, func(p Params) string {
			return fmt.Sprintf("ask the owner of %s whether it joined; if it did not, run `postern peer remove %s`: somebody else had the ticket first", or(p.Peer, "the peer"), or(p.Peer, "NAME"))
		}},
	}
}

func apiServerEntries() []Entry {
	return []Entry{
		{APIServerRefused, "the peer refuses connections to its API server", func(p Params) string {
			return detail(fmt.Sprintf("%s refused TCP %s inside the tunnel although it offers apiServer: its gateway cannot reach its own API server", p.Peer, p.Address), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s set spec.services.apiServer.address to an address that answers; the log of its gateway has the cause (PST0310 to PST0313)", p.Peer)
		}},
		{APIServerTimeout, "the API server does not answer in time", func(p Params) string {
			return detail(fmt.Sprintf("the API server of %s at %s inside the tunnel did not answer within %s", p.Peer, p.Address, seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("at %s run `kubectl get --raw /livez`; if that answers, measure the tunnel with `postern ping %s --layer overlay`", p.Peer, p.Peer)
		}},
		{APIServerBroken, "the connection to the API server breaks off", func(p Params) string {
			return detail(fmt.Sprintf("the connection to the API server of %s at %s broke off before the answer was complete", p.Peer, p.Address), p)
		}, func(p Params) string {
			return fmt.Sprintf("see at %s whether its API server restarts (`kubectl get --raw /livez`) and whether spec.services.apiServer.address speaks HTTPS", p.Peer)
		}},
		{APIServerHTTP, "the API server answers with an HTTP error", func(p Params) string {
			return fmt.Sprintf("the API server of %s answered %s with HTTP %d", p.Peer, or(p.Path, "the request"), p.Status)
		}, func(p Params) string {
			return fmt.Sprintf("at %s run `kubectl get --raw '/livez?verbose'` and mend what it names", p.Peer)
		}},
		{APIServerUnauthorized, "the API server does not accept the identity", func(p Params) string {
			return fmt.Sprintf("the API server of %s answered %s with HTTP 401: it does not trust the issuer of this gateway's identity", p.Peer, or(p.Path, "the request"))
		}, func(p Params) string {
			return fmt.Sprintf("at %s give kube-apiserver the issuer's certificate (spec.services.auth.issuer.localCA.certFile) in --client-ca-file", p.Peer)
		}},
		{APIServerForbidden, "the identity is accepted but may do nothing", func(p Params) string {
			return fmt.Sprintf("the API server of %s accepted the identity but answered %s with HTTP 403", p.Peer, or(p.Path, "the request"))
		}, func(p Params) string {
			return fmt.Sprintf("at %s run `kubectl create clusterrolebinding postern-peer --clusterrole=view --user=postern:peer:NAME`, NAME being this gateway's name there", p.Peer)
		}},
		{APIServerOff, "the peer does not offer its API server to this gateway", func(p Params) string {
			return fmt.Sprintf("%s does not offer its API server to this gateway", p.Peer)
		}, func(p Params) string {
			return fmt.Sprintf("if it should, at %s set spec.services.apiServer and run `postern peer allow NAME auth,apiServer`, NAME being this gateway's name there", p.Peer)
		}},
	}
}

func upstreamEntries() []Entry {
	setting := func(p Params) string {
		switch p.Service {
		case "apiServer":
			return "spec.services.apiServer.address"
		case "auth":
			return "spec.services.auth"
		}
		return fmt.Sprintf("spec.services.named[name=%s].address", p.Service)
	}
	return []Entry{
		{UpstreamRefused, "the upstream of a service refuses connections", func(p Params) string {
			return detail(fmt.Sprintf("nothing listens at %s, the upstream of %s", p.Upstream, p.Service), p)
		}, func(p Params) string {
			return fmt.Sprintf("start the server at %s, or set %s to where it listens", p.Upstream, setting(p))
		}},
		{UpstreamTimeout, "the upstream of a service does not answer", func(p Params) string {
			return detail(fmt.Sprintf("%s, the upstream of %s, did not accept a connection within %s", p.Upstream, p.Service, seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("let TCP from this gateway to %s through (firewall, NetworkPolicy), or correct %s", p.Upstream, setting(p))
		}},
		{UpstreamName, "the upstream's name does not resolve", func(p Params) string {
			return detail(fmt.Sprintf("the name in %s, the upstream of %s, does not resolve here", p.Upstream, p.Service), p)
		}, func(p Params) string {
			return fmt.Sprintf("correct %s, or this machine's resolver (/etc/resolv.conf)", setting(p))
		}},
		{UpstreamUnreachable, "the upstream of a service cannot be reached", func(p Params) string {
			return detail(fmt.Sprintf("%s, the upstream of %s, cannot be reached", p.Upstream, p.Service), p)
		}, func(p Params) string {
			return fmt.Sprintf("see that this machine has a route to %s (`ip route get`), or correct %s", p.Upstream, setting(p))
		}},
		{PeerServiceDown, "a local connection could not be carried to the peer", func(p Params) string {
			return detail(fmt.Sprintf("the connection to %s of %s failed", p.Service, p.Peer), p)
		}, func(p Params) string {
			return fmt.Sprintf("run `postern status %s`: its verdicts name the cause", p.Peer)
		}},
	}
}

func configEntries() []Entry {
	return []Entry{
		{LocalListener, "a local listener could not be opened", func(p Params) string {
			return detail(fmt.Sprintf("the listener for %s of %s could not be opened on %s", p.Service, p.Peer, or(p.Address, "a loopback port")), p)
		}, func(p Params) string {
			return fmt.Sprintf("end what holds the port (`ss -ltnp`), or choose another: `postern peer local %s %s=127.0.0.1:PORT`", p.Peer, p.Service)
		}},
		{ConfigRefused, "the configuration was refused", func(p Params) string {
			place := p.File
			if p.Line > 0 {
				place = fmt.Sprintf("%s line %d", place, p.Line)
			}
			if p.Field != "" {
				place = fmt.Sprintf("%s, %s", place, p.Field)
			}
			return detail(or(place, "the configuration"), p)
		}, func(p Params) string {
			return fmt.Sprintf("correct it, test it with `postern config validate %s`, then send SIGHUP; until then the old configuration stays in force", or(p.File, "FILE"))
		}},
		{NotGranted, "a peer asks for what it is not granted", func(p Params) string {
			return fmt.Sprintf("%s dialled %s here and was refused: %s", or(p.Peer, "an unknown peer"), or(p.Service, "port "+p.Address), or(p.Detail, "it is not granted"))
		}, func(p Params) string {
			return fmt.Sprintf("if it may, run `postern peer allow %s %s` with its other services in the same list", or(p.Peer, "NAME"), or(p.Service, "SERVICES"))
		}},
		{StateDamaged, "a file of the state directory was damaged", func(p Params) string {
			return detail(or(p.File, "a file of the state directory")+" was damaged; the generation before takes its place, or it starts empty", p)
		}, func(Params) string {
			return "compare `postern peer list` with what you expect; look at the file named in keptAs, and at the disk"
		}},
		{StateExposed, "others may enter the state directory", func(p Params) string {
			return detail(or(p.File, "the state directory")+" was or is open to other users than the gateway's", p)
		}, func(Params) string {
			return "give the gateway a directory of its own in spec.stateDir; in Kubernetes see that no other pod mounts the volume"
		}},
		{NotStored, "what was taken away from a peer could not be stored", func(p Params) string {
			return detail(fmt.Sprintf("what %s has lost by command is not in %s yet and comes back when the gateway restarts", or(p.Peer, "a peer"), or(p.File, "the state directory")), p)
		}, func(Params) string {
			return "free space for spec.stateDir, then repeat the command or wait a minute"
		}},
	}
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
