package check

import "fmt"

// authEntries are the codes of the auth service.
func authEntries() []Entry {
	return []Entry{
		{AuthRefused, "the peer refuses connections to its auth service", func(p Params) string {
			return detail(fmt.Sprintf("%s refused %s TCP %s inside the tunnel", p.owner(), p.client(), or(p.Address, "80")), p)
		}, func(p Params) string {
			return fmt.Sprintf("%srun `postern peer list` and see that %s key is among the peers; if it is, too many connections are open %s (PST0801)",
				p.at(), p.clients(), p.there())
		}},
		{AuthTimeout, "auth does not answer in time", func(p Params) string {
			return detail(fmt.Sprintf("auth of %s%s did not answer%s within %s", p.owner(), p.where(), p.toClient(), seconds(p.Timeout)), p)
		}, func(p Params) string {
			if p.Direct {
				return fmt.Sprintf("see that %s leads to auth of %s (`curl -v` shows what answers there), and read the log of %s", p.of("auth").urlSetting(), p.owner(), p.gateway())
			}
			return fmt.Sprintf("measure with `postern ping %s --layer overlay`; when that answers, restart %s", p.peer(), p.gateway())
		}},
		{AuthHTTP, "auth answers with an HTTP error", func(p Params) string {
			return fmt.Sprintf("auth of %s%s answered %s with HTTP %d", p.owner(), p.where(), p.request(), p.Status)
		}, func(p Params) string {
			return fmt.Sprintf("read the log of %s for the same moment", p.gateway())
		}},
		{AuthDenied, "auth knows this gateway but denies the request", func(p Params) string {
			return detail(fmt.Sprintf("auth of %s%s denied %s%s", p.owner(), p.where(), p.request(), p.withStatus()), p)
		}, func(p Params) string {
			if p.Inbound {
				return "read the log of this gateway for the same moment; " + p.decided()
			}
			return fmt.Sprintf("%srun %s", p.at(), p.allow("auth,apiServer"))
		}},
		{AuthVersion, "the two gateways speak different major versions", func(p Params) string {
			return fmt.Sprintf("%s speaks protocol version %s, %s %s", p.owner(), or(p.Version, "unknown"), p.client(), or(p.OwnVersion, "unknown"))
		}, func(p Params) string {
			return fmt.Sprintf("upgrade the older gateway so that both share a major version (`postern version` here and at %s)", p.peer())
		}},
		{AuthOff, "the peer does not offer auth to this gateway", func(p Params) string {
			return fmt.Sprintf("%s does not offer auth to %s", p.owner(), p.client())
		}, func(p Params) string {
			if p.Inbound {
				return p.decided()
			}
			return fmt.Sprintf("if it should, %srun %s", p.at(), p.allow("auth"))
		}},
		{AuthNotUnderstood, "auth's answer is not postern's", func(p Params) string {
			return detail(fmt.Sprintf("what answers%s%s is not the auth service of %s", p.toClient(), p.where(), p.owner()), p)
		}, authNotUnderstoodFix},
		{AuthBroken, "the connection to auth breaks off", func(p Params) string {
			return detail(fmt.Sprintf("the connection%s to auth of %s%s broke off before the answer was complete", p.ofClient(), p.owner(), p.where()), p)
		}, func(p Params) string {
			return fmt.Sprintf("read the log of %s for the same moment; it may have restarted or removed %s", p.gateway(), p.client())
		}},
		{TicketAlarm, "a ticket was tried by a second key", ticketAlarmCause, func(p Params) string {
			if p.Peer == "" {
				return "the audit log names who redeemed it: ask the owner whether that gateway joined; if it did not, run `postern peer remove NAME`: somebody else had the ticket first"
			}
			return fmt.Sprintf("ask the owner of %s whether it joined; if it did not, run `postern peer remove %s`: somebody else had the ticket first", p.Peer, p.Peer)
		}},
		{AuthURLUnreachable, "the auth URL cannot be reached", func(p Params) string {
			return p.of("auth").urlCause()
		}, func(p Params) string {
			return p.of("auth").urlFix()
		}},
		{AuthTokenRejected, "auth does not accept the token", func(p Params) string {
			return tokenCause(p.of("auth"))
		}, tokenFix},
	}
}

func authNotUnderstoodFix(p Params) string {
	switch {
	case p.Direct:
		return fmt.Sprintf("here set %s to the URL that leads to auth of %s (`curl -v` shows what answers there)", p.of("auth").urlSetting(), p.owner())
	case p.Inbound:
		return fmt.Sprintf("upgrade the older gateway (`postern version` here and at %s)", p.peer())
	}
	return fmt.Sprintf("if %s is a plain WireGuard peer set spec.peers[name=%s].stock: true; else upgrade it", p.peer(), p.peer())
}

func ticketAlarmCause(p Params) string {
	when := ""
	if p.Age > 0 {
		when = " " + seconds(p.Age) + " ago"
	}
	whose := "one gateway"
	if p.Peer != "" {
		whose = p.Peer
	}
	return detail(fmt.Sprintf("a ticket that %s has redeemed was presented again with another key%s", whose, when), p)
}
