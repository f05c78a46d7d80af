package clusterset

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/mcs"
)

// newest is the latest possible creation time of an offer.
var newest = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// named returns the configured services for clusters, by name. They count as newer than any
// cluster's export, so that in a conflict the cluster's counts.
func named(services []config.NamedService) []mcs.Export {
	all := map[mcs.Name]*mcs.Export{}
	for _, s := range services {
		if s.Export == (mcs.Name{}) {
			continue
		}
		x := all[s.Export]
		if x == nil {
			x = &mcs.Export{Name: s.Export, UID: s.Export.String(), Created: newest, Spec: mcs.Spec{Type: mcs.ClusterSetIP}, Upstreams: map[string]string{}}
			all[s.Export] = x
		}
		host, first, err := net.SplitHostPort(s.Address)
		at, errPort := strconv.Atoi(first)
		if err != nil || errPort != nil {
			continue // cannot happen: package config has parsed it
		}
		for nth := range s.Ports.Len() {
			p := mcs.Port{Name: s.PortName(nth), Protocol: s.Ports.Protocol, Port: s.Ports.First + uint16(nth)}
			x.Spec.Ports = append(x.Spec.Ports, p)
			if s.ProxyProtocol != "" {
				x.Proxied = append(x.Proxied, p.Name)
			}
			x.Upstreams[p.Name] = net.JoinHostPort(host, strconv.Itoa(at+nth))
		}
	}
	out := []mcs.Export{} // known, even if empty
	for _, n := range slices.SortedFunc(maps.Keys(all), mcs.Name.Compare) {
		x := all[n]
		slices.SortFunc(x.Spec.Ports, func(a, b mcs.Port) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, *x)
	}
	return out
}
