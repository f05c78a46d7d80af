package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/simnet"
)

// codes returns a list of codes.
func codes(c ...catalogue.Code) []catalogue.Code { return c }

// faults are the scenarios that show one fault each: of firewalls, addresses, keys, clocks, the
// path, and API servers.
func faults() []Scenario {
	var all []Scenario
	for _, some := range [][]Scenario{blocked(), addresses(), keys(), clocks(), quality(), apiServers()} {
		all = append(all, some...)
	}
	return all
}

// blocked are firewalls that drop UDP.
func blocked() []Scenario {
	return []Scenario{
		{Name: "blocked-outbound", Summary: "a firewall drops UDP from edge to cloud: edge hears cloud and is not heard",
			fault: &fault{
				harm:  drops("cloud's firewall drops UDP from "+edgePublic.String(), edgePublic, cloudAddr),
				cloud: codes(catalogue.HandshakeStale), edge: codes(catalogue.NotHeardByPeer), fix: letIn("cloud", edgePublic),
			}},
		{Name: "blocked-inbound", Summary: "a firewall drops UDP from cloud to edge: cloud hears edge and is not heard",
			fault: &fault{
				harm:  drops("edge's firewall drops UDP from "+cloudAddr.String(), cloudAddr, edgePublic),
				cloud: codes(catalogue.NotHeardByPeer), edge: codes(catalogue.HandshakeStale), fix: letIn("edge", cloudAddr),
			}},
		{Name: "blocked-both", Summary: "firewalls drop UDP both ways: each finds the other silent, and says what to ask there",
			fault: &fault{
				harm: func(ctx context.Context, l *Lab) (string, error) {
					both := simnet.Firewall{Drop: betweenHosts(cloudAddr, edgePublic)}
					l.Cloud.Host.Link().SetFirewall(both)
					return "a firewall between the two drops all UDP", nil
				},
				cloud: codes(catalogue.HandshakeStale), edge: codes(catalogue.HandshakeStale), fix: letIn("both", netip.Addr{}),
			}},
	}
}

// drops sets up a firewall at cloud's or edge's line that drops everything from one address to
// another.
func drops(text string, from, to netip.Addr) func(context.Context, *Lab) (string, error) {
	return func(_ context.Context, l *Lab) (string, error) {
		at := l.Cloud
		if to == edgePublic {
			at = l.Edge
		}
		at.Host.Link().SetFirewall(simnet.Firewall{Drop: func(d simnet.Datagram, _ bool) bool {
			return d.Src.Addr() == from && d.Dst.Addr() == to
		}})
		return text, nil
	}
}

// betweenHosts matches everything between two addresses, in both directions.
func betweenHosts(a, b netip.Addr) func(simnet.Datagram, bool) bool {
	return func(d simnet.Datagram, _ bool) bool {
		return d.Src.Addr() == a && d.Dst.Addr() == b || d.Src.Addr() == b && d.Dst.Addr() == a
	}
}

// letIn applies the firewall rule that the fix of a blocked path prints.
func letIn(where string, from netip.Addr) func(context.Context, *Lab) (string, error) {
	return func(_ context.Context, l *Lab) (string, error) {
		for _, s := range l.pair() {
			s.Host.Link().SetFirewall(simnet.Firewall{})
		}
		if !from.IsValid() {
			return fmt.Sprintf("both firewalls let UDP %d in", gatewayPort), nil
		}
		return fmt.Sprintf("at %s: nft insert rule inet filter input ip saddr %s udp dport %d accept", where, from, gatewayPort), nil
	}
}

// addresses are wrong endpoints.
func addresses() []Scenario {
	const name, typo = "cloud.example.net", "clout.example.net"
	alone := []catalogue.Code{catalogue.PeerMustDial} // for cloud, which does not know where edge is
	right := func(ctx context.Context, l *Lab) (string, error) {
		at := endpoint(cloudAddr)
		return fmt.Sprintf("at edge: spec.peers[name=cloud].endpoints: [%q], and reload", at), l.Edge.learn(ctx, dial(at))
	}
	return []Scenario{
		{Name: "wrong-port", Summary: "edge has a wrong port of cloud: the host there answers that nothing listens",
			edge: portRestricted, fault: &fault{
				slip:  dials("203.0.113.10:40582", "edge's file has a wrong port of cloud, 40582"),
				cloud: alone, edge: codes(catalogue.NothingListens), fix: right,
			}},
		{Name: "private-address", Summary: "edge has a private address of cloud, which is in no network of its own",
			edge: portRestricted, fault: &fault{
				slip:  dials("10.20.30.40:51820", "edge's file has cloud's private address, 10.20.30.40"),
				cloud: alone, edge: codes(catalogue.PrivateAdvertised), fix: right,
			}},
		{Name: "name-unknown", Summary: "the name of cloud in edge's file is misspelt and does not resolve",
			edge: portRestricted, fault: &fault{
				slip: func(ctx context.Context, l *Lab) (string, error) {
					l.names.set(name, cloudAddr)
					return dials(typo+":51820", "edge's file has "+typo+", which nobody has")(ctx, l)
				},
				cloud: alone, edge: codes(catalogue.NameUnknown),
				fix: func(ctx context.Context, l *Lab) (string, error) {
					return fmt.Sprintf("at edge: spec.peers[name=cloud].endpoints: [%q], and reload", name+":51820"), l.Edge.learn(ctx, dial(name+":51820"))
				},
			}},
		{Name: "name-moved", Summary: "cloud moves to another address, and its name is changed to a third one",
			edge: portRestricted, fault: &fault{
				named: name,
				harm: func(_ context.Context, l *Lab) (string, error) {
					l.names.set(name, elsewhere)
					return fmt.Sprintf("cloud has moved to %s; its record %s says %s", movedAddr, name, elsewhere), l.Cloud.Host.SetAddrs(movedAddr)
				},
				cloud: codes(catalogue.HandshakeStale), edge: codes(catalogue.NameMoved),
				fix: func(ctx context.Context, l *Lab) (string, error) {
					l.names.set(name, movedAddr)
					return fmt.Sprintf("the record %s says %s; edge was restarted, or it would have asked for it again within a minute", name, movedAddr),
						l.Edge.restart(ctx)
				},
			}},
	}
}

func dial(at string) func(*api.Peer) { return func(p *api.Peer) { p.Endpoints = []string{at} } }

// dials is a wrong endpoint in edge's file.
func dials(at, text string) func(context.Context, *Lab) (string, error) {
	return func(_ context.Context, l *Lab) (string, error) { return text, l.Edge.know(dial(at)) }
}
