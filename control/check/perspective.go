package check

import "fmt"

// A fault of a service is read at one of three places: outbound, at the gateway that uses
// the service, of the peer that offers it; inbound, at the gateway that offers it, as the
// peer that uses it reports; and, with no peer at all, by the gateway itself of what it
// offers. The methods here name the two ends for the reader, so that each entry of the
// table is one sentence for all of them.

// thisGateway is how sentences call the gateway that shows them.
const thisGateway = "this gateway"

// peer is the other gateway's name.
func (p Params) peer() string { return or(p.Peer, "the peer") }

// owner is who offers the service.
func (p Params) owner() string {
	if p.Inbound {
		return thisGateway
	}
	return p.peer()
}

// client is who uses the service.
func (p Params) client() string {
	if p.Inbound {
		return p.peer()
	}
	return thisGateway
}

// clients is the possessive of client.
func (p Params) clients() string { return p.client() + "'s" }

// at begins what is to be done where the service is offered: "at cloud " or "here ".
func (p Params) at() string {
	if p.Inbound {
		return "here "
	}
	return "at " + p.peer() + " "
}

// there points back to that place.
func (p Params) there() string {
	if p.Inbound {
		return "here"
	}
	return "there"
}

// gateway is the gateway that offers the service.
func (p Params) gateway() string {
	if p.Inbound {
		return thisGateway
	}
	return "the gateway of " + p.peer()
}

// toClient follows a verb whose object is the client, where the reader is not the client
// itself: "did not answer cloud".
func (p Params) toClient() string { return p.joined(" ") }

// ofClient is the same for what belongs to the client: "the connection of cloud".
func (p Params) ofClient() string { return p.joined(" of ") }

// fromClient and withClient are the same again: "no path from cloud to …".
func (p Params) fromClient() string { return p.joined(" from ") }

func (p Params) withClient() string { return p.joined(" with ") }

func (p Params) joined(with string) string {
	if p.Inbound && p.Peer != "" {
		return with + p.Peer
	}
	return ""
}

// request is what was asked for, and by whom.
func (p Params) request() string { return or(p.Path, "the request") + p.ofClient() }

// withStatus is how an HTTP server answered, if it did.
func (p Params) withStatus() string {
	if p.Status == 0 {
		return ""
	}
	return fmt.Sprintf(" with HTTP %d", p.Status)
}

// allow is the command that grants services, where the service is offered. It is for the
// one who uses it to ask for; who offers it is never given it ready to be pasted on another
// gateway's word.
func (p Params) allow(services string) string {
	return fmt.Sprintf("`postern peer allow NAME %s`, NAME being %s name there", services, p.clients())
}

// decided is said to who offers something, where another says that it may not have it.
func (p Params) decided() string {
	return fmt.Sprintf("there is nothing to fix unless %s is to have it: what it may reach is a decision made here (spec.peers[name=%s].allow)", p.peer(), p.peer())
}

// where is the address that was dialled, and through what.
func (p Params) where() string {
	switch {
	case p.Upstream != "":
		return " at " + p.Upstream
	case p.Address == "":
		return ""
	case p.Direct:
		return " at " + p.Address + " outside the tunnel"
	}
	return " at " + p.Address + " inside the tunnel"
}

// server is the service that was talked to, its owner and its address.
func (p Params) server() string { return p.serviceName() + " of " + p.owner() + p.where() }

// of is for the codes of one service, whichever the parameters name.
func (p Params) of(service string) Params {
	p.Service = service
	return p
}

// serviceName is what people call the service; without a name it is the API server, the
// only one that most codes are about.
func (p Params) serviceName() string {
	switch p.Service {
	case "", "apiServer":
		return "the API server"
	}
	return p.Service
}

// setting is where the configuration says how the service is reached: that of the one who
// offers it or, for what is tried outside the tunnel, that of the one who uses it.
func (p Params) setting(field string) string {
	switch p.Service {
	case "", "apiServer":
		return "spec.services.apiServer." + field
	case "auth":
		return "spec.services.auth"
	}
	return fmt.Sprintf("spec.services.named[name=%s].%s", p.Service, field)
}

// urlSetting is where the client's configuration has the URL of the service.
func (p Params) urlSetting() string {
	field := "apiServerURL"
	if p.Service == "auth" {
		field = "authURL"
	}
	return p.outOfBand(field)
}

func (p Params) outOfBand(field string) string {
	return fmt.Sprintf("spec.peers[name=%s].outOfBand.%s", p.peer(), field)
}
