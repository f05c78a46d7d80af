package way

import (
	"cmp"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// maxNamed is how many of the peer's services a way has as nodes, besides auth and apiServer.
const maxNamed = 3

// use is a service of the peer that is offered or listened for here.
type use struct {
	name, address string
	state         api.Outcome
	fault         *Fault
}

// named adds the peer's other services: the named ones that it offers or that are listened for
// here, and those imported from its cluster. Failing ones come first; the others that there is no
// room for are counted.
func (m *maker) named(clusters []api.ClusterService) {
	all := m.uses(clusters)
	m.Services = slices.DeleteFunc(m.Services, func(n Node) bool {
		other := n.Direction == api.DirectionOutbound && Other(n.Name)
		if other { // a check failed
			all = append(all, use{name: n.Name, state: n.State, fault: n.Fault})
		}
		return other
	})
	slices.SortStableFunc(all, func(a, b use) int { return strings.Compare(a.name, b.name) })
	n := 0
	for _, u := range all {
		if n == 0 || all[n-1].name != u.name {
			all[n], n = u, n+1
			continue
		}
		same := &all[n-1]
		same.address, same.state = cmp.Or(same.address, u.address), Worse(same.state, u.state)
		if u.fault != nil {
			same.fault = graver(same.fault, u.fault)
		}
	}
	all = all[:n]
	slices.SortStableFunc(all, func(a, b use) int { return cmp.Compare(a.rank(), b.rank()) })
	shown := len(all)
	if shown > maxNamed+1 {
		shown = maxNamed
		m.More = &More{State: api.OK}
	}
	for i, u := range all {
		switch {
		case i < shown:
			m.Services = append(m.Services, Node{Kind: Service, Name: u.name, Direction: api.DirectionOutbound, Address: u.address, State: u.state, Fault: u.fault})
		default:
			m.More.Services++
			m.More.State = Worse(m.More.State, u.state)
			if u.fault != nil {
				m.More.Failing++
			}
		}
	}
}

// rank orders services: errors, warnings, the others.
func (u *use) rank() int {
	if u.fault == nil {
		return severity(api.OK)
	}
	return severity(u.fault.Outcome)
}

// Other reports whether a service is neither auth nor apiServer, which peering needs.
func Other(name string) bool { return name != api.ServiceAuth && name != api.ServiceAPIServer }

// uses returns the peer's other services. One may be included several times.
func (m *maker) uses(clusters []api.ClusterService) []use {
	p, state := m.peer, m.tunnel()
	var out []use
	for _, name := range p.Offers {
		if Other(name) && !strings.Contains(name, "/") { // a port of a service of clusters
			out = append(out, use{name: name, state: state})
		}
	}
	for _, l := range p.Local {
		name, _, ofClusters := strings.Cut(l.Service, ":") // NAMESPACE/NAME:PORT
		u := use{name: name, address: l.Address, state: state}
		switch {
		case ofClusters || slices.Contains(p.Offers, name):
		case len(p.Offers) > 0:
			u.state = api.Off
		default:
			u.state = api.Unknown
		}
		if l.Error != "" {
			u.state = api.Error
			u.fault = &Fault{Direction: api.DirectionOwn, Outcome: api.Error,
				Title: "no listener here", Cause: "no listener for " + l.Service + " on " + l.Address + ": " + l.Error}
		}
		if l.Lost != nil && u.fault == nil && state == api.OK {
			u.state, u.fault = l.Lost.Verdict, faultOf(&api.Check{Direction: api.DirectionOutbound, Verdict: *l.Lost})
		}
		switch {
		case Other(name):
			out = append(out, u)
		case u.fault != nil:
			n := m.service(name, api.DirectionOutbound)
			n.State, n.Fault = Worse(n.State, api.Error), graver(n.Fault, u.fault)
		}
	}
	for i := range clusters {
		c := &clusters[i]
		if c.Direction != api.ServiceImported || c.Peer != p.Name || c.Service == "" {
			continue
		}
		u := use{name: c.Service, state: state}
		if len(c.Addresses) > 0 {
			u.address = c.Addresses[0]
		}
		switch {
		case c.State != api.ServiceInUse && c.Code != "":
			u.fail(c)
		case c.State != api.ServiceInUse: // the peer has not told of it yet
			u.state = api.Unknown
		}
		out = append(out, u)
	}
	return out
}

// fail sets the fault of a service of clusters. It is a warning: the service may be in use all the
// same, by another of its exports.
func (u *use) fail(c *api.ClusterService) {
	u.state = api.Warning
	u.fault = faultOf(&api.Check{Direction: api.DirectionOutbound, Verdict: api.Verdict{
		Verdict: api.Warning, Code: c.Code, Cause: c.Cause, Steps: c.Steps, Fix: c.Fix}})
	if c.Code == string(catalogue.LocalListener) {
		u.fault.Direction = api.DirectionOwn
	}
}
