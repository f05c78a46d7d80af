package lab

import (
	"fmt"
	"net/netip"

	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

// wire creates the internet of the scenario: hosts, NATs, STUN servers and the relay.
func (l *Lab) wire() (cloud, edge *simnet.Host, err error) {
	if edge, l.NAT, err = l.put("edge", l.scenario.edge, ways{public: edgePublic, nat: natAddr, inside: edgeAddr}); err != nil {
		return nil, nil, err
	}
	if cloud, l.cloudNAT, err = l.put("cloud", l.scenario.cloud, ways{public: cloudAddr, nat: cloudNATAddr, inside: cloudInside}); err != nil {
		return nil, nil, err
	}
	if f := l.scenario.fault; f != nil && f.forwarded {
		if err := l.cloudNAT.Forward(gatewayPort, netip.AddrPortFrom(cloudInside, gatewayPort)); err != nil {
			return nil, nil, err
		}
	}
	if err := l.addSTUN(); err != nil {
		return nil, nil, err
	}
	if l.scenario.relay {
		return cloud, edge, l.addRelay()
	}
	return cloud, edge, nil
}

// ways are the addresses of a gateway, or those it is seen from, depending on its place.
type ways struct{ public, nat, inside netip.Addr }

// line returns the options of an access line.
func line() simnet.LinkOptions { return simnet.Both(simnet.Conditions{Delay: wanDelay}) }

// put creates the host of a gateway, and its NAT if there is one.
func (l *Lab) put(name string, p place, at ways) (*simnet.Host, *simnet.NAT, error) {
	o := simnet.HostOptions{Name: name, Addrs: []netip.Addr{at.public}, Link: line()}
	o.Link.Firewall.Stateful = p.firewall
	var nat *simnet.NAT
	switch {
	case p.beside:
		o = simnet.HostOptions{Name: name, Network: l.NAT.Inside(), Addrs: []netip.Addr{besideAddr}}
	case p.nat != nil:
		natName := "nat"
		if l.NAT != nil {
			natName = name + "-nat"
		}
		var err error
		nat, err = l.Internet.AddNAT(simnet.NATOptions{Name: natName, Addrs: []netip.Addr{at.nat}, Behaviour: p.nat(), Link: line()})
		if err != nil {
			return nil, nil, err
		}
		o = simnet.HostOptions{Name: name, Network: nat.Inside(), Addrs: []netip.Addr{at.inside}}
	}
	host, err := l.Internet.AddHost(o)
	return host, nat, err
}

// addSTUN starts two plain servers, or a plain one and one with two addresses and the tests of
// RFC 5780.
func (l *Lab) addSTUN() error {
	host, err := l.Internet.AddHost(simnet.HostOptions{Name: "stun", Addrs: stunAddrs, Link: line()})
	if err != nil {
		return err
	}
	for _, a := range stunAddrs {
		conn, err := host.ListenAddrPort(netip.AddrPortFrom(a, stunPort))
		if err != nil {
			return err
		}
		l.stun = append(l.stun, stunserver.Serve(conn))
	}
	if !l.scenario.tested {
		return nil
	}
	tester, err := l.Internet.AddHost(simnet.HostOptions{Name: "stun-tester", Addrs: testerAddrs[:], Link: line()})
	if err != nil {
		return err
	}
	l.tester, err = stunserver.ServeBehaviour(tester,
		netip.AddrPortFrom(testerAddrs[0], stunPort), netip.AddrPortFrom(testerAddrs[1], stunPort+1))
	return err
}

// addRelay starts a TURN server with a user for each gateway.
func (l *Lab) addRelay() error {
	host, err := l.Internet.AddHost(simnet.HostOptions{Name: "relay", Addrs: []netip.Addr{relayAddr}, Link: line()})
	if err != nil {
		return err
	}
	l.relayHost = host
	return l.serveRelay()
}

// serveRelay starts the relay's server.
func (l *Lab) serveRelay() (err error) {
	l.relay, err = turnserver.ServeHost(l.relayHost, relayAddr, turnserver.Options{
		Users: map[string]string{"cloud": relayPassword("cloud"), "edge": relayPassword("edge")},
	})
	if err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	return nil
}

// relayPassword returns a user's password at the relay. It is useless outside this process.
func relayPassword(user string) string { return user + " at the lab's relay" }
