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

// youngest is as late as an offer may be made.
var youngest = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// named are the services of the configuration that clusters are to have, by name. They are younger than
// any that a cluster exports, so where the two conflict the cluster's counts.
func named(services []config.NamedService) []mcs.Export {
	all := map[mcs.Name]*mcs.Export{}
	for _, s := range services {
		if s.Export == (mcs.Name{}) {
			continue
		}
		x := all[s.Export]
		if x == nil {
			x = &mcs.Export{Name: s.Export, UID: s.Export.String(), Created: youngest, Spec: mcs.Spec{Type: mcs.ClusterSetIP}, Upstreams: map[string]string{}}
			all[s.Export] = x
		}
		host, first, err := net.SplitHostPort(s.Address)
		at, errPort := strconv.Atoi(first)
		if err != nil || errPort != nil {
			continue // package config has read it
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
	out := []mcs.Export{} // which are known
	for _, n := range slices.SortedFunc(maps.Keys(all), mcs.Name.Compare) {
		x := all[n]
		slices.SortFunc(x.Spec.Ports, func(a, b mcs.Port) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, *x)
	}
	return out
}
