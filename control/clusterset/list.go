package clusterset

import (
	"cmp"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
)

// List is what is exported and imported, and what is not and why; with a peer's name of that one.
func (c *Clusterset) List(peer string) []api.ClusterService {
	c.turning.Lock()
	defer c.turning.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.open()
	var out []api.ClusterService
	for name, e := range c.exported {
		if e.entry == nil {
			continue // a problem
		}
		s := api.ClusterService{Service: name, Direction: api.ServiceExported, State: api.ServiceUngranted, Type: string(e.Spec.Type), Ports: ports(e.Spec)}
		granted := false
		for p, site := range c.peers {
			if !site.writer.Tells(name) {
				continue
			}
			granted = true
			s.Peer, s.State, s.Connections = p, api.ServiceWaiting, open[use{p, api.ServiceExported, name}]
			if site.writer.Knows(name) {
				s.State = api.ServiceInUse
			}
			out = append(out, s)
		}
		if !granted {
			out = append(out, s)
		}
	}
	for n, i := range c.imports {
		for _, x := range i.Clusters {
			s := api.ClusterService{Service: n.String(), Direction: api.ServiceImported, Peer: x.ID, State: api.ServiceInUse, Type: string(i.Spec.Type),
				Ports: ports(i.Spec), Connections: open[use{x.ID, api.ServiceImported, n.String()}]}
			for _, e := range x.Endpoints {
				for _, p := range e.Ports {
					s.Addresses = append(s.Addresses, p.At.String())
				}
			}
			if at := slices.IndexFunc(c.failing, func(p mcs.Problem) bool { return p.Name == n && p.Peer == x.ID }); at >= 0 {
				s.State, s.Code = api.ServiceWaiting, string(c.failing[at].Code)
				s.Cause, s.Fix = catalogue.Render(c.failing[at].Code, c.failing[at].Params())
			}
			out = append(out, s)
		}
	}
	for name, site := range c.peers {
		for port := range site.member.Local {
			if mcs.IsPortName(port) && !site.reader.Heard() {
				_, number, _ := strings.Cut(port, ":")
				out = append(out, api.ClusterService{Service: mcs.NameOfPort(port).String(), Direction: api.ServiceImported, Peer: name, State: api.ServiceWaiting, Ports: []string{number}})
			}
		}
	}
	for _, p := range c.state.Problems {
		if p.Code == catalogue.LocalListener {
			continue // the import has it
		}
		s := api.ClusterService{Direction: api.ServiceImported, Peer: p.Peer, State: api.ServiceRefused, Code: string(p.Code)}
		if p.Name != (mcs.Name{}) {
			s.Service = p.Name.String()
		}
		if c.exported[s.Service] != nil && (p.Peer == "" || p.Code == catalogue.CatalogueFull) {
			s.Direction = api.ServiceExported
		}
		s.Cause, s.Fix = catalogue.Render(p.Code, p.Params())
		out = append(out, s)
	}
	out = slices.DeleteFunc(out, func(s api.ClusterService) bool { return peer != "" && s.Peer != peer })
	slices.SortFunc(out, func(a, b api.ClusterService) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// use is a service's towards a peer.
type use struct{ peer, direction, service string }

// open counts the connections and flows of services of clusters.
func (c *Clusterset) open() map[use]int {
	out := map[use]int{}
	for peer := range c.peers {
		for _, f := range c.o.Flows.List(peer) {
			direction := api.ServiceExported
			if f.Direction == forward.DirectionOutbound {
				direction = api.ServiceImported
			}
			out[use{peer, direction, mcs.NameOfPort(f.Service).String()}]++
		}
	}
	return out
}

func ports(s mcs.Spec) []string {
	var out []string
	for _, p := range s.Ports {
		text := api.Ports{First: p.Port, Last: p.Port}.String()
		if p.Protocol != api.TCP {
			text += "/" + string(p.Protocol)
		}
		out = append(out, text)
	}
	return out
}
