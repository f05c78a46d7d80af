package predict

import (
	"fmt"

	"github.com/postern-dev/postern/control/api"
)

// end is one gateway as the other sees it.
type end struct {
	Exposure
	open openness
	// known is false if open is the usual worst case.
	known bool
	// address is where it can be dialled, if known.
	address string
	// lacks is why it cannot be dialled although it should be, fix what fixes that.
	lacks, fix string
	// pending: it can be dialled as soon as it has an address.
	pending bool
}

// endOf judges a gateway. near: the other is on the same LAN.
func endOf(e Exposure, near bool) end {
	out := end{Exposure: e}
	var s scope
	out.address, s = best(e.Gateway.Addresses)
	forward := fmt.Sprintf("set spec.discovery.advertise at %s to a public address whose UDP port leads to the gateway (a load balancer's, or a port forwarded by the router)", e.Name)
	meant := e.Gateway.Exposure == LoadBalancer || e.Gateway.Exposure == NodePort || e.Gateway.Exposure == PortForwarding
	switch {
	case e.Gateway.Exposure == Ingress:
		out.lacks = "an Ingress carries HTTP, and the gateway speaks UDP"
		out.fix = fmt.Sprintf("expose the gateway of %s by a Service of type LoadBalancer or NodePort", e.Name)
	case meant && (s == anywhere || s == nearby && near):
		out.open, out.known = dial, true
		return out
	case meant && s == nearby:
		out.lacks = fmt.Sprintf("its %s address %s is private, and nobody outside its network can dial it", e.Gateway.Exposure, out.address)
		out.fix = forward
	case meant:
		out.pending = true
		out.lacks = fmt.Sprintf("its %s has no address yet", e.Gateway.Exposure)
		out.fix = fmt.Sprintf("check with `kubectl get svc` at %s that the Service has a public address, or %s", e.Name, forward)
	default:
		out.lacks, out.fix = "its gateway is not exposed", forward
	}
	out.open, out.known = e.Gateway.NAT.openness()
	if out.open != dial || s != anywhere {
		out.address = ""
	}
	return out
}

// predictGateways predicts how the gateways will reach each other.
func predictGateways(a, b Exposure) Mode {
	m := Mode{Mode: api.ModeInBand}
	near := sameLAN(a, b)
	x, y := endOf(a, near), endOf(b, near)
	switch {
	case x.open == dial || y.open == dial:
		m.dialled(x, y)
	case near:
		m.onLAN(x, y)
	case x.pending || y.pending:
		m.pending(x, y)
	default:
		m.behindNATs(x, y)
	}
	if near && m.Path.Kind == PathDirect {
		m.because("both are on the LAN %s, where private addresses can be dialled", a.LAN)
	}
	for _, e := range []end{x, y} {
		if e.Gateway.Exposure == Ingress {
			m.because("the gateway of %s can dial out, but not be dialled through an Ingress: it is UDP", e.Name)
		}
	}
	return m
}

// dialled: at least one gateway has an address that can be dialled, which is enough.
func (m *Mode) dialled(x, y end) {
	m.Path = Path{Kind: PathDirect, Dialer: Both}
	switch {
	case x.open == dial && x.known && y.open == dial && y.known:
		m.because("both gateways can be dialled (%s and %s); one would do", or(x.address), or(y.address))
		return
	case y.open != dial, x.open == dial && x.known:
		x, y = y, x
	}
	m.Path.Dialer, m.Path.Address = x.Name, y.address
	m.because("the gateway of %s can be dialled (%s), so %s dials; let UDP to it through %s's firewall", y.Name, or(y.address), x.Name, y.Name)
	if !y.known {
		m.need(Conditional, y.Name, api.ServiceGateway, "it is not known whether a firewall in front of it lets UDP in",
			fmt.Sprintf("let UDP to %s through; `postern netcheck` at %s shows how it filters", or(y.address), y.Name))
	}
	if x.lacks != "" && x.Gateway.Exposure != Ingress {
		m.because("it does not matter that %s cannot be dialled: %s", x.Name, x.lacks)
	}
}

// onLAN: neither can be dialled from outside, but they share a broadcast domain.
func (m *Mode) onLAN(x, y end) {
	m.Path = Path{Kind: PathDirect, Dialer: Both}
	for _, e := range []end{x, y} {
		m.need(Conditional, e.Name, api.ServiceGateway, "its address on the LAN is not announced",
			fmt.Sprintf("set spec.discovery.lan.enabled: true at %s and give the pod the host's network, or expose the gateway by NodePort and set spec.discovery.advertise to the node's LAN address", e.Name))
	}
}

// pending: one would be dialled if it had an address.
func (m *Mode) pending(x, y end) {
	if !x.pending {
		x, y = y, x
	}
	m.Path = Path{Kind: PathDirect, Dialer: y.Name}
	m.because("%s dials the gateway of %s as soon as that has a public address", y.Name, x.Name)
	m.need(Conditional, x.Name, api.ServiceGateway, x.lacks, x.fix)
}

// behindNATs: neither can be dialled.
func (m *Mode) behindNATs(x, y end) {
	if x.open > y.open { // x is the more open one
		x, y = y, x
	}
	m.because("neither gateway can be dialled: %s %s, %s %s", x.Name, x.open.or(x.known), y.Name, y.open.or(y.known))
	relay := x.Relay || y.Relay
	path := table(x.open, y.open)
	switch {
	case x.open == fullCone:
		m.Path = Path{Kind: PathDirect, Dialer: y.Name}
		m.because("%s dials the address at which a STUN server sees %s", y.Name, x.Name)
	case path == direct:
		m.Path = Path{Kind: PathDirect, Dialer: Both}
		m.because("both dial at the same time, which opens both NATs")
		if !relay {
			m.need(Conditional, x.Name, api.ServiceGateway, "there is no relay over which the two can tell each other where to dial",
				"run at the inviter the `postern accept …` that `postern join` prints, or set spec.discovery.turnServers at either")
		}
	case relay && path == punch:
		m.Path = Path{Kind: PathPunch, Dialer: Both}
		m.because("the two meet on the relay and open their NATs from there in the right order")
	case relay:
		m.Path = Path{Kind: PathRelay, Dialer: Both}
		m.because("no direct path can be opened between such NATs: the relay carries everything")
	default:
		m.Path = Path{Kind: PathNone}
		m.lackRelay(x, y, path)
	}
	m.unsure(x, y, path)
}

// lackRelay: without a relay there is no path, unless one of the two is made dialable.
func (m *Mode) lackRelay(x, y end, path outcome) {
	why := "no direct path can be opened between such NATs, and there is no relay"
	if path == punch {
		why = "such NATs must be opened in an agreed order, which requires a relay, and there is none"
	}
	m.because("%s", why)
	for _, e := range []end{x, y} {
		answer := Fails
		if !x.known || !y.known {
			answer = Conditional
		}
		m.need(answer, e.Name, api.ServiceGateway, "no way in, and no relay ("+e.lacks+")",
			fmt.Sprintf("at either cluster: set spec.discovery.turnServers, or %s", e.fix))
	}
}

// unsure adds what is unknown and could improve the answer.
func (m *Mode) unsure(x, y end, path outcome) {
	if path == direct {
		return
	}
	for _, e := range []end{x, y} {
		if !e.known {
			m.because("the behaviour of the NAT of %s is not known, so the worst is assumed: `postern netcheck` there shows it", e.Name)
		}
	}
}

func (o openness) or(sure bool) string {
	if !sure {
		return "is behind a NAT or firewall of unknown behaviour"
	}
	return o.String()
}

func or(address string) string {
	if address == "" {
		return "at its public address"
	}
	return address
}
