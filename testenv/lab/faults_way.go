package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/simnet"
)

const (
	// lossRate in each direction loses 10 % of the round trips.
	lossRate = 0.05
	// narrow is the MTU of a line that is smaller than usual, in bytes, such as that of a tunnel
	// within a tunnel.
	narrow = 1400
	// narrowOverlay is the rest for packets in the tunnel, rounded down to WireGuard's padding:
	// without the headers of IPv4 (20), UDP (8) and WireGuard (32).
	narrowOverlay = (narrow - 60) &^ 15
)

// quality are paths that work badly.
func quality() []Scenario {
	return []Scenario{
		noWayIn(),
		{Name: "loss", Summary: "a line loses one packet in twenty, each way",
			fault: &fault{
				harm:  lines("edge's line loses one packet in twenty, each way", simnet.Conditions{Delay: wanDelay, Loss: lossRate}),
				cloud: codes(catalogue.PacketsLost), edge: codes(catalogue.PacketsLost),
				fix: lines("the link that lost packets was fixed", simnet.Conditions{Delay: wanDelay}),
			}},
		{Name: "small-mtu", Summary: fmt.Sprintf("a line takes %d bytes, and ICMP is filtered: larger packets vanish", narrow),
			fault: &fault{
				slip: func(ctx context.Context, l *Lab) (string, error) {
					return lines(fmt.Sprintf("edge's line drops packets of more than %d bytes and tells nobody", narrow),
						simnet.Conditions{Delay: wanDelay, MTU: narrow, SilentMTU: true})(ctx, l)
				},
				cloud: codes(catalogue.PathMTUSmall), edge: codes(catalogue.PathMTUSmall),
				fix: func(ctx context.Context, l *Lab) (string, error) {
					for _, s := range l.pair() {
						if err := s.Edit(func(spec *api.GatewaySpec) { spec.MTU = narrowOverlay }); err != nil {
							return "", err
						}
						if err := s.restart(ctx); err != nil {
							return "", err
						}
					}
					return fmt.Sprintf("at both: spec.mtu: %d, and a restart", narrowOverlay), nil
				},
			}},
		{Name: "relay-in-use", Summary: "both are behind symmetric NATs: all data goes over a relay",
			cloud: symmetric, edge: symmetric, relay: true, tested: true,
			fault: &fault{
				byTicket: true, ill: true,
				harm: func(context.Context, *Lab) (string, error) {
					return "both NATs take another port for each destination, so the relay is the only way", nil
				},
				cloud: codes(catalogue.RelayInUse), edge: codes(catalogue.RelayInUse),
				fix: func(ctx context.Context, l *Lab) (string, error) { return l.forward(ctx) },
			}},
		{Name: "relay-lost", Summary: "the relay goes that was the only way between two symmetric NATs",
			cloud: symmetric, edge: symmetric, relay: true, tested: true,
			fault: &fault{
				byTicket: true, ill: true,
				harm: func(ctx context.Context, l *Lab) (string, error) {
					for _, s := range l.pair() {
						if err := s.Edit(func(spec *api.GatewaySpec) { spec.Discovery.TURNServers = nil }); err != nil {
							return "", err
						}
						if err := s.reload(ctx); err != nil {
							return "", err
						}
					}
					return "the relay was taken out of both files (spec.discovery.turnServers)", nil
				},
				cloud: codes(catalogue.RelayLost), edge: codes(catalogue.RelayLost),
				fix: func(ctx context.Context, l *Lab) (string, error) {
					text, err := l.forward(ctx)
					if err != nil {
						return "", err
					}
					at := netip.AddrPortFrom(cloudNATAddr, gatewayPort).String()
					err = l.Edge.Edit(func(spec *api.GatewaySpec) { spec.Peers = []api.Peer{{Name: "cloud", Endpoints: []string{at}}} })
					if err == nil {
						err = l.Edge.reload(ctx)
					}
					return fmt.Sprintf("%s; at edge, which nobody can tell: spec.peers[name=cloud].endpoints: [%q]", text, at), err
				},
			}},
	}
}

// noWayIn is a pair that is only connected by a forwarded port.
func noWayIn() Scenario {
	return Scenario{Name: "no-way-in", Summary: "both are behind symmetric NATs without a relay, and the port is forwarded no more that joined them",
		cloud: symmetric, edge: symmetric,
		fault: &fault{
			byTicket: true, forwarded: true,
			harm: func(ctx context.Context, l *Lab) (string, error) {
				l.cloudNAT.Unforward(gatewayPort)
				l.cloudNAT.Reboot()
				_, err := l.Cloud.Gateway.NetCheck(ctx) // otherwise it would take minutes to notice
				return fmt.Sprintf("cloud's router was replaced: it forwards UDP %d no more; postern netcheck at cloud shows it", gatewayPort), err
			},
			cloud: codes(catalogue.NoWayIn), edge: codes(catalogue.HandshakeStale),
			fix: func(_ context.Context, l *Lab) (string, error) {
				err := l.cloudNAT.Forward(gatewayPort, netip.AddrPortFrom(cloudInside, gatewayPort))
				l.cloudNAT.Reboot() // otherwise flows in progress would keep their old mappings
				return fmt.Sprintf("cloud's router forwards UDP %d again", gatewayPort), err
			},
		}}
}

// forward forwards a port to cloud that anyone can dial.
func (l *Lab) forward(ctx context.Context) (string, error) {
	at := netip.AddrPortFrom(cloudNATAddr, gatewayPort).String()
	if err := l.cloudNAT.Forward(gatewayPort, netip.AddrPortFrom(cloudInside, gatewayPort)); err != nil {
		return "", err
	}
	if err := l.Cloud.Edit(func(s *api.GatewaySpec) { s.Discovery.Advertise = []string{at} }); err != nil {
		return "", err
	}
	return fmt.Sprintf("cloud's router forwards UDP %d; at cloud: spec.discovery.advertise: [%q], and reload", gatewayPort, at), l.Cloud.reload(ctx)
}

// lines changes the conditions of edge's line.
func lines(text string, c simnet.Conditions) func(context.Context, *Lab) (string, error) {
	return func(_ context.Context, l *Lab) (string, error) {
		for _, way := range []simnet.Direction{simnet.Up, simnet.Down} {
			if err := l.Edge.Host.Link().SetConditions(way, c); err != nil {
				return "", err
			}
		}
		return text, nil
	}
}
