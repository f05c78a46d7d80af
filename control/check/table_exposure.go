package check

import (
	"fmt"
	"strings"
)

// exposureEntries are the codes of addresses, NATs and relays.
func exposureEntries() []Entry {
	return []Entry{
		{NoWayIn, "there is no way in from outside", noWayCause, noWayFix},
		{NothingListens, "nothing listens at the announced address", func(p Params) string {
			cause := fmt.Sprintf("something at %s, where %s is dialled, says that nothing listens on that UDP port (ICMP %s)",
				or(p.Address, "the address of "+p.owner()), p.owner(), or(p.Detail, portUnreachable))
			if p.From != "" {
				cause += "; packets of " + p.owner() + " come from " + p.From
			}
			return cause
		}, func(p Params) string {
			return listenFix(p)
		}},
		{PrivateAdvertised, "a private address is announced to the outside", privateCause, privateFix},
		{StunUnreachable, "a STUN server does not answer", func(p Params) string {
			return detail(fmt.Sprintf("the STUN server %s%s does not answer%s, so that this gateway may not know its address as others see it", or(p.Server, "of the configuration"), at(p), more(p)), p)
		}, func(p Params) string {
			return fmt.Sprintf("let UDP to it out: %s; or name another in spec.discovery.stunServers; `postern netcheck` asks them all", or(letOut(p.Address), outWithout(p.Server, "3478")))
		}},
		{TurnUnreachable, "a relay cannot be used", func(p Params) string {
			return detail(fmt.Sprintf("the TURN server %s%s gives this gateway no allocation%s: peers that need a relay cannot be reached", or(p.Server, "of the configuration"), at(p), more(p)), p)
		}, func(p Params) string {
			return fmt.Sprintf("if it refuses, correct username and passwordFile in spec.discovery.turnServers; if it does not answer, let UDP and TCP to it out: %s; `postern netcheck` asks it again",
				or(letOut(p.Address), outWithout(p.Server, "3478")))
		}},
		{RelayInUse, "the peer is reached over a relay only", relayCause, relayFix},
		{RelayLost, "the relay was the only way and is gone", func(p Params) string {
			return joined(fmt.Sprintf("%s was reached over the relay %s, which carries nothing any more%s, and no other address of it can be dialled", p.owner(), or(p.Relay, "of one of the two"), p.lasting("for")), " (", p.accounts(), ")")
		}, func(p Params) string {
			return fmt.Sprintf("see with `postern netcheck` here and at %s that each reaches its TURN server and start the server that does not answer; "+
				"so that one relay is not the only way, add a second to spec.discovery.turnServers", p.peer())
		}},
	}
}

func listenFix(p Params) string {
	port, from := or(portOf(p.Address), "51820"), p.ownAddress(p.Address)
	if p.Inbound { // where everybody comes from is not known here
		port, from = p.ownPort(), ""
	}
	right := "IP:PORT"
	if a, ok := hostOf(p.From); ok && a.IsValid() {
		right = p.From
	}
	return fmt.Sprintf("%sstart the gateway (`systemctl start postern`), or correct the port: spec.listen.port and the router's forwarding must fit "+
		"spec.discovery.advertise; if it is %s that is wrong, set it to [\"%s\"]; if a firewall there rejects, %s",
		p.at(), p.endpointSetting(), right, letIn(port, from))
}

// natWords says what a NAT does, for a sentence.
func natWords(n NAT) string {
	switch n.Mapping {
	case "", "unknown":
		return "a NAT that is not known"
	case "none":
		return "no NAT"
	case "endpoint-independent":
		if unknownNAT(n.Filtering) {
			return "a NAT with one mapping for all"
		}
		return "a NAT with " + n.Filtering + " filtering"
	}
	return "a NAT with " + n.Mapping + " mapping (symmetric)"
}

func noWayCause(p Params) string {
	if p.Inbound && p.Peer == "" {
		return joined(fmt.Sprintf("nobody outside can dial this gateway, which is behind %s with neither a forwarded port nor a relay, and %s would have to: no endpoint of it is known here",
			natWords(p.NAT), or(list(p.Names), "a peer")), "; it announces ", addresses(p.Candidates), "")
	}
	if !p.Inbound && !p.PeerShut {
		return joined(fmt.Sprintf("there is no way in here, behind %s without a forwarded port or a relay, and none at %s that answers",
			natWords(p.NAT), p.peer()), ": ", p.accounts(), fmt.Sprintf("; from here it cannot be told whether that port is forwarded and %s runs", p.gateway()))
	}
	return joined(fmt.Sprintf("neither %s nor this gateway can be dialled by the other: %s is behind %s, this gateway behind %s, and there is no relay",
		p.peer(), p.peer(), natWords(p.PeerNAT), natWords(p.NAT)), " (", p.accounts(), ")")
}

func noWayFix(p Params) string {
	first := ""
	if p.Peer != "" && !p.Inbound && !p.PeerShut {
		to := p.target()
		first = fmt.Sprintf("run `postern check` at %s; if it does not show PST0401 as well, let UDP in there: %s; else ", p.peer(), letIn(or(portOf(to), "51820"), p.ownAddress(to)))
	}
	relay := "set spec.discovery.turnServers to a TURN server that both reach"
	forward := fmt.Sprintf("on the router forward UDP %s to this gateway and set spec.discovery.advertise: [\"PUBLIC-IP:%s\"] here", p.ownPort(), p.ownPort())
	return first + relay + " (on one side is enough), or " + forward
}

func addresses(candidates []Candidate) string {
	var out []string
	for _, c := range candidates {
		out = append(out, c.Address)
	}
	return list(out)
}

func privateCause(p Params) string {
	var kinds []string
	for _, c := range p.Candidates {
		kinds = append(kinds, c.Address+" ("+or(scope(c.Address), "private")+")")
	}
	if p.Inbound && p.Peer == "" {
		return fmt.Sprintf("this gateway announces %s to peers, which nobody outside of that network can dial", or(list(kinds), "a private address"))
	}
	return fmt.Sprintf("%s announces only %s, which is in no network of %s and does not answer: it can be dialled only from its own network",
		p.owner(), or(list(kinds), "private addresses"), p.client())
}

func privateFix(p Params) string {
	port := p.ownPort()
	place := "here "
	if !p.Inbound {
		place, port = "at "+p.peer()+" ", "51820"
		if len(p.Candidates) > 0 {
			port = or(portOf(p.Candidates[0].Address), port)
		}
	}
	right := "PUBLIC-IP:" + port
	if p.Inbound && len(p.Own) > 0 {
		right = p.Own[0]
	}
	return fmt.Sprintf("%sset spec.discovery.advertise: [\"%s\"], the public address that leads there (`postern netcheck` tells it; in Kubernetes service.type: LoadBalancer), and %s",
		place, right, letIn(port, ""))
}

func relayCause(p Params) string {
	age := ""
	if p.Age > 0 {
		age = " for " + seconds(p.Age)
	}
	cause := fmt.Sprintf("data between %s and this gateway goes over the relay %s%s: %s is behind %s, this gateway behind %s",
		p.peer(), or(or(p.Relay, p.Address), "of one of them"), age, p.peer(), natWords(p.PeerNAT), natWords(p.NAT))
	if p.Inbound {
		return cause
	}
	return joined(cause, "; of its direct addresses ", p.accounts(), "")
}

// relayFix: one of the two must be given a port that the other can dial.
func relayFix(p Params) string {
	port := p.ownPort()
	return fmt.Sprintf("if the relay's delay and cost are not wanted, forward UDP %s on the router of either side to its gateway and set there "+
		"spec.discovery.advertise: [\"PUBLIC-IP:%s\"]; on a host with a public address %s", port, port, letIn(port, ""))
}

func at(p Params) string {
	if p.Address == "" || p.Address == p.Server {
		return ""
	}
	return " (" + p.Address + ")"
}

func more(p Params) string {
	if len(p.Names) < 2 {
		return ""
	}
	return ", nor do " + strings.Join(p.Names[1:min(len(p.Names), 4)], ", ")
}

// outWithout is the rule that lets UDP to a server out whose address is not known.
func outWithout(server, port string) string {
	port = or(portOf(server), port)
	return fmt.Sprintf("`nft insert rule inet filter output udp dport %s accept` (in a cloud allow outbound UDP %s)", port, port)
}

func lossCause(p Params) string {
	where := ""
	switch {
	case p.Relay != "":
		where = " over the relay " + p.Relay
	case p.Address != "":
		where = " over " + p.Address
	}
	if p.Sent == 0 {
		return fmt.Sprintf("packets between %s and this gateway%s are lost", p.peer(), where)
	}
	return fmt.Sprintf("%d of %d pings inside the tunnel to %s%s were lost (%.1f %%), with a jitter of %s",
		p.Lost, p.Sent, p.owner(), where, 100*float64(p.Lost)/float64(p.Sent), precise(p.Jitter))
}

// lossFix: a lossy link is found hop by hop, and a full one by what it carries.
func lossFix(p Params) string {
	host := "ADDRESS"
	port := p.ownPort()
	if a, ok := hostOf(p.Address); ok {
		host, port = a.String(), or(portOf(p.Address), port)
	}
	return fmt.Sprintf("find the hop that loses them with `mtr --report --udp --port %s %s` and fix that link; if the line is full, limit what fills it (`postern tui`, view 3); "+
		"if `postern check` shows PST0810 or PST0812, fix that first", port, host)
}

func skewCause(p Params) string {
	ahead := "ahead of"
	if p.Skew < 0 {
		ahead = "behind"
	}
	if len(p.Names) > 1 {
		return fmt.Sprintf("the clocks of %s agree with each other, and that of %s is %s %s this gateway's: it is this gateway's clock that is wrong",
			list(p.Names), p.peer(), seconds(p.Skew.Abs()), ahead)
	}
	if p.Skew == 0 {
		return fmt.Sprintf("the clocks of %s and this gateway differ by more than %s", p.peer(), seconds(skewLimit))
	}
	return fmt.Sprintf("the clock of %s is %s %s this gateway's; which of the two is wrong cannot be told from them alone", p.peer(), seconds(p.Skew.Abs()), ahead)
}

func skewFix(p Params) string {
	if len(p.Names) > 1 {
		return "here run `timedatectl set-ntp true`, then compare `date -u` with a good clock"
	}
	return fmt.Sprintf("compare `date -u` here and at %s with a good clock, and on the one that is wrong run `timedatectl set-ntp true`", p.peer())
}
