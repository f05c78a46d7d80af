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

// List returns the exported and imported services and their problems, for one peer or, without a
// name, for all.
func (c *Clusterset) List(peer string) []api.ClusterService {
	c.reconciling.Lock()
	defer c.reconciling.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	open, used := c.open(), c.used()
	var out []api.ClusterService
	for name, e := range c.exported {
		if e.entry == nil {
			continue
		}
		s := api.ClusterService{Service: name, Direction: api.ServiceExported, State: api.ServiceUngranted, Type: string(e.Spec.Type), Ports: ports(e.Spec),
			ReadyBackends: new(e.ready)}
		granted := false
		for p, site := range c.peers {
			if !site.writer.Contains(name) {
				continue
			}
			granted = true
			at := use{p, api.ServiceExported, name}
			s.Peer, s.State, s.Connections, s.Used = p, api.ServiceWaiting, open[at], used[at]
			if site.writer.Delivered(name) {
				s.State = api.ServiceInUse
			}
			out = append(out, s)
		}
		if !granted {
			out = append(out, s)
		}
	}
	findings := c.ofListeners()
	for n, i := range c.imports {
		for _, x := range i.Clusters {
			at := use{x.ID, api.ServiceImported, n.String()}
			s := api.ClusterService{Service: n.String(), Direction: api.ServiceImported, Peer: x.ID, State: api.ServiceInUse, Type: string(i.Spec.Type),
				Ports: ports(i.Spec), Connections: open[at], Used: used[at]}
			for _, e := range x.Endpoints {
				for _, p := range e.Ports {
					s.Addresses = append(s.Addresses, p.At.String())
					port := strings.TrimPrefix(mcs.PortName(n, p.Port, e.Hostname), n.String()+":")
					s.Listeners = append(s.Listeners, api.ClusterListener{Port: port, Address: p.At.String()})
				}
			}
			if f, found := findings[place{x.ID, n.String()}]; found {
				s.State, s.Code = f.state, string(f.code)
				s.Cause, s.Steps = catalogue.Render(f.code, f.about)
				s.Fix = s.Steps.String()
			}
			out = append(out, s)
		}
	}
	for name, site := range c.peers {
		for port := range site.member.Local {
			if mcs.IsPortName(port) && !site.reader.Complete() {
				_, number, _ := strings.Cut(port, ":")
				out = append(out, api.ClusterService{Service: mcs.NameOfPort(port).String(), Direction: api.ServiceImported, Peer: name, State: api.ServiceWaiting, Ports: []string{number}})
			}
		}
	}
	for _, p := range c.state.Problems {
		if p.Code == catalogue.LocalListener {
			continue // already listed with its import
		}
		s := api.ClusterService{Direction: api.ServiceImported, Peer: p.Peer, State: api.ServiceRefused, Code: string(p.Code)}
		if p.Name != (mcs.Name{}) {
			s.Service = p.Name.String()
		}
		if c.exported[s.Service] != nil && (p.Peer == "" || p.Code == catalogue.CatalogueFull) {
			s.Direction = api.ServiceExported
		}
		s.Cause, s.Steps = catalogue.Render(p.Code, p.Params())
		s.Fix = s.Steps.String()
		out = append(out, s)
	}
	out = slices.DeleteFunc(out, func(s api.ClusterService) bool { return peer != "" && s.Peer != peer })
	slices.SortFunc(out, func(a, b api.ClusterService) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// finding is about the listeners for a peer's service.
type finding struct {
	state string
	code  catalogue.Code
	about catalogue.Params
}

// ofListeners returns one finding for each service whose listeners have some: a listener that cannot
// be opened, or one that lost what came last.
func (c *Clusterset) ofListeners() map[place]finding {
	out := map[place]finding{}
	for _, p := range c.failing {
		out[place{p.Peer, p.Name.String()}] = finding{api.ServiceWaiting, p.Code, p.Params()}
	}
	if c.o.Lost == nil {
		return out
	}
	for _, l := range c.out.Locals() {
		at := place{l.Peer, mcs.NameOfPort(l.Service).String()}
		if code, about, lost := c.o.Lost(l); lost && out[at].code == "" {
			out[at] = finding{api.ServiceFailing, code, about}
		}
	}
	return out
}

// use identifies a service's use by a peer.
type use struct{ peer, direction, service string }

// open counts the open connections and flows of services of clusters.
func (c *Clusterset) open() map[use]int {
	out := map[use]int{}
	for peer := range c.peers {
		for _, f := range c.o.Flows.List(peer) {
			out[use{peer, directionOf(f.Direction), mcs.NameOfPort(f.Service).String()}]++
		}
	}
	return out
}

// used returns the counters of services that are counted separately.
func (c *Clusterset) used() map[use]*api.ServiceUse {
	out := map[use]*api.ServiceUse{}
	for _, u := range c.o.Flows.Used() {
		x := &api.ServiceUse{Connections: u.Connections, RxBytes: u.RxBytes, TxBytes: u.TxBytes}
		for r, n := range u.Failures {
			if n > 0 {
				if x.Failures == nil {
					x.Failures = map[string]uint64{}
				}
				x.Failures[string(r)] = n
			}
		}
		out[use{u.Peer, directionOf(u.Direction), u.Service}] = x
	}
	return out
}

// directionOf returns a service's direction from that of its connections.
func directionOf(flows string) string {
	if flows == forward.DirectionOutbound {
		return api.ServiceImported
	}
	return api.ServiceExported
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
