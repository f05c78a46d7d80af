package check

import (
	"fmt"
	"strings"
	"time"
)

// gatewayEntries are the codes of the tunnel itself: names, probes, handshakes and pings.
// Each names what was seen; where several things would look the same from here, it says so
// and what the other side must be asked.
func gatewayEntries() []Entry {
	return []Entry{
		{PeerSilent, "the peer has never answered", silentCause, silentFix},
		{HandshakeStale, "the peer stopped answering", staleCause, silentFix},
		{PingLost, "handshakes pass, packets inside the tunnel do not", func(p Params) string {
			return detail(fmt.Sprintf("%s completed a handshake%s %s ago, but %s inside the tunnel does not answer pings%s within %s",
				p.owner(), p.withClient(), seconds(p.Age), or(p.Address, "its overlay address"), p.ofClient(), seconds(p.Timeout)), p)
		}, func(p Params) string {
			return fmt.Sprintf("run `postern check` %s as well: a code there names the cause; if there is none, make a new session with `postern ping %s --layer wg`, "+
				"and see with `postern peer show` on both sides that each has the other's present key", p.there(), p.peer())
		}},
		{PeerMustDial, "the peer has no endpoint here and has not dialled", func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("%s knows no endpoint of this gateway, which has not dialled it in %s", p.peer(), seconds(p.Age))
			}
			return fmt.Sprintf("no endpoint of %s is known here, and it has not dialled this gateway in %s", p.peer(), seconds(p.Age))
		}, func(p Params) string {
			own := or(list(p.Own), "IP:PORT of this gateway")
			return fmt.Sprintf("set spec.peers[name=%s].endpoints: [\"IP:PORT\"] here, or at %s an endpoint of this gateway (%s); "+
				"if it has one, run `postern check` there: PST0101 there means that its packets do not arrive here: %s", p.peer(), p.peer(), own, letIn(p.ownPort(), ""))
		}},
		{AwaitingApproval, "the peer waits for approval", func(p Params) string {
			return fmt.Sprintf("%s joined%s with a ticket made with --approve and is not approved yet", p.owner(), p.toClient())
		}, func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("tell the owner of %s this gateway's key (`postern key pub`), for `postern peer approve` there", p.peer())
			}
			return fmt.Sprintf("compare the key fingerprints (`postern peer show %s`), then run `postern peer approve %s`", p.peer(), p.peer())
		}},
		{NotHeardByPeer, "the peer is heard and does not hear", notHeardCause, notHeardFix},
		{NameUnknown, "the name of an endpoint does not resolve", func(p Params) string {
			names := or(list(p.Names), "a name among its endpoints")
			return joined(detail(fmt.Sprintf("%s, where %s dials %s, does not resolve", names, p.client(), p.owner()), p), "; of its other addresses ", p.accounts(), " either")
		}, func(p Params) string {
			return fmt.Sprintf("correct the name in %s, or the record: `dig +short %s` must give the address of %s; "+
				"if it does elsewhere, fix the resolver in /etc/resolv.conf", p.endpointSetting(), hostName(p.Names), p.owner())
		}},
		{NameMoved, "an endpoint's name leads elsewhere than before", func(p Params) string {
			return fmt.Sprintf("%s led to %s%s and leads to %s now, where %s does not answer", or(list(p.Names), "the name of an endpoint"),
				or(list(p.Was), "another address"), p.until(), or(list(p.Now), "another"), p.owner())
		}, func(p Params) string {
			if p.Inbound {
				return fmt.Sprintf("correct the record of that name, so that it gives an address of this gateway (%s), or have the name corrected in %s; and let UDP in here: %s",
					or(list(p.Own), "`postern netcheck` tells it"), p.endpointSetting(), letIn(p.ownPort(), ""))
			}
			host := hostName(p.Names)
			return fmt.Sprintf("if %s did not move, correct the record so that `dig +short %s` gives %s; if it did, see that it runs at %s "+
				"and let UDP in there: %s", p.owner(), host, or(list(p.Was), "the address before"), or(list(p.Now), "the new address"), letIn(or(portOf(first(p.Names)), "51820"), p.ownAddress(first(p.Now))))
		}},
		{PresharedKeyDiffers, "the preshared keys differ", func(p Params) string {
			return fmt.Sprintf("%s answers handshakes%s from %s, but its answers do not verify with the preshared key: the two sides do not have the same",
				p.owner(), p.ofClient(), or(p.From, "its address"))
		}, func(p Params) string {
			return fmt.Sprintf("compare `sha256sum FILE` of spec.peers[name=%s].presharedKeyFile here with the one that %s has for this gateway, "+
				"and copy one to the other; between gateways that joined by ticket run `postern invite` and `postern join` again", p.peer(), p.peer())
		}},
		{WrongPeerKey, "a side has a wrong public key of the other", wrongKeyCause, wrongKeyFix},
		{StampInPast, "a gateway's clock went back", func(p Params) string {
			sentence := fmt.Sprintf("handshakes of %s from %s are refused as replays: a later one was accepted before, so its clock went back", p.owner(), or(p.From, "its address"))
			if p.Stamp.IsZero() {
				return sentence
			}
			return fmt.Sprintf("%s%s (their timestamp is %s, the newest was %s)", sentence, back(p.Newest.Sub(p.Stamp)), day(p.Stamp), day(p.Newest))
		}, func(p Params) string {
			until := "the newest that was accepted"
			if !p.Newest.IsZero() {
				until = day(p.Newest)
			}
			return fmt.Sprintf("%scompare `date -u` with a good clock and run `timedatectl set-ntp true`; its handshakes are accepted again when its clock has passed %s",
				p.at(), until)
		}},
		{PacketsLost, "packets are lost on the way", lossCause, lossFix},
		{DuplicateKey, "two gateways use the same key", func(p Params) string {
			return fmt.Sprintf("two gateways use the key of %s and take turns: the same key came back under an earlier start%s%s", p.owner(), p.lastSeen(), fromWhere(p))
		}, func(p Params) string {
			return fmt.Sprintf("stop the gateway that was copied (a restored backup or a cloned disk; `postern status` there shows this key), "+
				"remove its state directory (`rm -r /var/lib/postern`, or what spec.stateDir says), so that it starts with a key of its own, and let it join with `postern invite` and `postern join`; %s stays as it is", p.owner())
		}},
		{ClockSkew, "the clocks differ", skewCause, skewFix},
	}
}

// silentCause says what became of each address and what cannot be known from one side.
func silentCause(p Params) string {
	switch {
	case !p.Seen.IsZero():
		return fmt.Sprintf("%s answers probes%s from %s, so the way is open, but no handshake%s", p.owner(), p.ofClient(), or(p.From, "its address"), p.lasting("in"))
	case p.From != "":
		return initiatedCause(p)
	case p.Inbound:
		return p.cannotKnow(fmt.Sprintf("%s has heard nothing of this gateway%s, nor an answer to what it sent here", p.peer(), p.lasting("in")))
	}
	return p.cannotKnow(fmt.Sprintf("nothing has come from %s%s, nor an answer to what was sent to it", p.owner(), p.lasting("in")))
}

func staleCause(p Params) string {
	if !p.Seen.IsZero() {
		return fmt.Sprintf("%s still answers probes%s from %s, but no handshake%s", p.owner(), p.ofClient(), or(p.From, "its address"), p.lasting("for"))
	}
	if p.From != "" {
		return initiatedCause(p)
	}
	if p.NoPath != "" || p.Inbound {
		return p.cannotKnow(fmt.Sprintf("no path%s to %s has worked%s", p.fromClient(), p.owner(), p.lasting("for")))
	}
	if p.Age <= 0 { // our clock was set back since
		return p.cannotKnow(p.owner() + " answers no more")
	}
	return p.cannotKnow(fmt.Sprintf("%s answered last %s ago", p.owner(), seconds(p.Age)))
}

// initiatedCause: the one thing that arrives shows neither whether our responses do, nor
// the preshared key.
func initiatedCause(p Params) string {
	return joined(fmt.Sprintf("%s begins handshakes from %s and does not complete them%s: either what is sent to it does not arrive there, or the preshared keys differ, which cannot be told from here",
		p.owner(), p.From, p.lasting("for")), " (", p.accounts(), ")")
}

// initiatedFix: only whoever began a handshake sees whether there is an answer.
func initiatedFix(p Params) string {
	if p.Inbound {
		return fmt.Sprintf("let UDP in here: %s; if that changes nothing, the preshared keys differ: compare `sha256sum FILE` of spec.peers[name=%s].presharedKeyFile here with the one there",
			letIn(p.ownPort(), ""), p.peer())
	}
	out := or(letOut(p.From), "`nft insert rule inet filter output meta l4proto udp accept`")
	return fmt.Sprintf("run `postern check` %s. If it shows PST0109, the preshared keys differ: compare `sha256sum FILE` of spec.peers[name=%s].presharedKeyFile here with the one there. "+
		"If it shows PST0101 or PST0102, our packets do not arrive: let them out here: %s, and in there: %s", p.there(), p.peer(), out, letIn(or(portOf(p.From), "51820"), p.ownAddress(p.From)))
}

// cannotKnow adds to a sentence why, each address, and what nobody can tell from here.
func (p Params) cannotKnow(sentence string) string {
	if p.NoPath != "" {
		sentence += ": " + p.NoPath
	}
	if a := p.accounts(); a != "" {
		sentence += " (" + a + ")"
	} else if len(p.Endpoints) > 0 {
		sentence += " (UDP was sent to " + list(p.Endpoints) + ")"
	}
	if p.Inbound {
		return sentence
	}
	return sentence + fmt.Sprintf("; from here it cannot be told whether %s runs, or which of the two directions is blocked", p.gateway())
}

// silentFix has the rules for both directions, and which line at the other side tells
// which is needed.
func silentFix(p Params) string {
	if !p.Seen.IsZero() {
		between := "something between the two lets probes through and holds handshakes back"
		if p.Inbound {
			return fmt.Sprintf("run `postern check` here: PST0111 means that the clock of %s went back, which is fixed there; otherwise %s", p.peer(), between)
		}
		return fmt.Sprintf("run `postern check` there: PST0111 there means that this gateway's clock went back (`date -u` here, then `timedatectl set-ntp true`); "+
			"if it shows the same as here, %s", between)
	}
	if p.From != "" {
		return initiatedFix(p)
	}
	if p.Inbound {
		return fmt.Sprintf("let UDP %s in here: %s; `postern path %s` says what became of each address", p.ownPort(), letIn(p.ownPort(), ""), p.peer())
	}
	to := p.target()
	there := letIn(or(portOf(to), "51820"), p.ownAddress(to))
	return fmt.Sprintf("run `postern check` at %s. If it shows PST0106, our packets arrive and its answers do not; let them in here: %s. If it shows PST0101 or PST0102, "+
		"ours do not arrive either; let them in there: %s. Any other code names the cause; without an answer start its gateway (`systemctl start postern`)",
		p.peer(), letIn(p.ownPort(), to), there)
}

func notHeardCause(p Params) string {
	if p.Inbound {
		return fmt.Sprintf("%s hears this gateway but gets no answer from it: its packets do not arrive here", p.peer())
	}
	to := or(list(p.dialled()), "it")
	return joined(fmt.Sprintf("packets of %s arrive here from %s, but nothing that is sent from here to %s is answered: UDP from here to %s is blocked on the way",
		p.peer(), or(p.From, "its address"), to, p.peer()), " (", p.accounts(), ")")
}

// notHeardFix: the packets that are lost go from here to the peer, so it is the peer's
// inbound firewall or our outbound one.
func notHeardFix(p Params) string {
	if p.Inbound {
		return fmt.Sprintf("let UDP in here: %s", letIn(p.ownPort(), ""))
	}
	to := p.target()
	port := or(portOf(to), "51820")
	fix := fmt.Sprintf("at %s let it in: %s", p.peer(), letIn(port, p.ownAddress(to)))
	if out := letOut(to); out != "" {
		fix += "; or here let it out: " + out
	}
	return fix
}

func wrongKeyCause(p Params) string {
	switch {
	case p.Inbound:
		return fmt.Sprintf("this gateway and %s do not know each other's present public key", p.peer())
	case p.Key != "":
		return fmt.Sprintf("something at %s, where %s is sought, sends handshakes with the public key %s; for %s another key is configured here",
			or(p.From, "its address"), p.peer(), p.Key, p.peer())
	}
	return fmt.Sprintf("something at %s, where %s is sought, sends handshakes made for another public key than this gateway's: if it is %s, that has a wrong key of this gateway",
		or(p.From, "its address"), p.peer(), p.peer())
}

func wrongKeyFix(p Params) string {
	switch {
	case p.Inbound:
		return fmt.Sprintf("compare `postern key pub` on each side with `postern peer show` on the other, and correct publicKey where it differs (spec.peers[name=%s].publicKey here)", p.peer())
	case p.Key != "":
		return fmt.Sprintf("ask the owner of %s for the output of `postern key pub` there and compare it with spec.peers[name=%s].publicKey here: if they differ, set what the owner gave; "+
			"if they are the same, somebody else has its address or pretends to", p.peer(), p.peer())
	}
	return fmt.Sprintf("run `postern key pub` here and give the key to the owner of %s, to be set there in spec.peers[].publicKey of this gateway", p.peer())
}

// accounts are the addresses that were tried and what became of each.
func (p Params) accounts() string {
	const most = 4
	var out []string
	for i, c := range p.Candidates {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(p.Candidates)-most))
			break
		}
		name := c.Address
		if c.Relay != "" {
			name += " via " + c.Relay
		}
		if c.Source != "" {
			name += " (" + c.Source + ")"
		}
		out = append(out, name+" "+or(or(c.Reason, c.State), "did not answer"))
	}
	return strings.Join(out, "; ")
}

// joined adds a list with what stands around it, if there is one.
func joined(sentence, before, list, after string) string {
	if list == "" {
		return sentence
	}
	return sentence + before + list + after
}

// lasting is how long something has lasted, if that is known: " in 40s".
func (p Params) lasting(word string) string {
	if p.Age <= 0 {
		return ""
	}
	return " " + word + " " + seconds(p.Age)
}

func (p Params) lastSeen() string {
	if p.Seen.IsZero() {
		return ""
	}
	return " at " + day(p.Seen)
}

func (p Params) until() string {
	if p.Seen.IsZero() {
		return ""
	}
	return " until " + day(p.Seen)
}

func fromWhere(p Params) string {
	if p.From == "" {
		return ""
	}
	return ", the last one from " + p.From
}

// endpointSetting is where the dialler's configuration has the owner's endpoints.
func (p Params) endpointSetting() string {
	if p.Inbound {
		return "spec.peers[].endpoints at " + p.peer()
	}
	return fmt.Sprintf("spec.peers[name=%s].endpoints here", p.peer())
}

// hostName is the first name without its port, or a placeholder. Endpoint names come from
// our own configuration or from a peer: only a plain one is offered to be pasted.
func hostName(names []string) string {
	host := strings.TrimSuffix(first(names), ":"+portOf(first(names)))
	if !plainHost(host) {
		return "NAME"
	}
	return host
}

func first(v []string) string {
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

func back(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return " by " + seconds(d)
}
