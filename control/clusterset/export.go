package clusterset

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sort"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/discovery/special"
)

// exporter is this cluster's exports as they are offered. Clusterset.reconciling guards it.
type exporter struct {
	exported map[string]*export // by name
	overlay  *mcs.Overlay
	stored   map[string]api.Ports // stored leases
	backends map[string]*backends // by the name of the forwarded service
	own      map[netip.Addr]bool  // addresses that lead to this gateway or the API server
}

// export is an export that is offered, or has a problem.
type export struct {
	mcs.Export
	entry    *mcs.Entry // nil: not offered
	granted  bool       // to a peer; otherwise it has no ports and is not announced
	ready    int
	services []service
	keys     []string // of its leases
	problem  *mcs.Problem
}

// service is a port of an export, or of one backend of a headless one, as it is forwarded.
type service struct {
	forward.Service
	port     string // its name
	hostname string
}

func newExporter(leases map[string]state.OverlayLease) exporter {
	var list []mcs.Lease
	stored := map[string]api.Ports{}
	for key, l := range leases {
		p, err := api.ParsePorts(l.Ports)
		if err != nil {
			continue // cannot happen: package state has parsed it
		}
		list = append(list, mcs.Lease{Key: key, Ports: p, Freed: l.Freed})
		stored[key] = p
	}
	return exporter{exported: map[string]*export{}, overlay: mcs.NewOverlay(list), stored: stored, backends: map[string]*backends{}}
}

// entry returns what peers are told of an export, or nil.
func (c *Clusterset) entry(name string) *mcs.Entry {
	if e := c.exported[name]; e != nil && e.granted {
		return e.entry
	}
	return nil
}

// export offers the exports of a list, and returns the names of those that changed.
func (c *Clusterset) export(list []mcs.Export, r *roster.Roster, cfg *config.Resolved) (changed []string) {
	now := time.Now()
	c.learnOwn()
	granted := map[string]bool{}
	next := make(map[string]*export, len(list))
	for _, x := range list {
		if refused := func(b mcs.Backend) bool { return !mayBeBackend(b.Addr, c.own) }; slices.ContainsFunc(x.Backends, refused) {
			x.Backends = slices.DeleteFunc(slices.Clone(x.Backends), refused)
		}
		name := x.Name.String()
		to, known := granted[x.Name.Namespace]
		if !known {
			to = slices.ContainsFunc(r.Members(), func(m *roster.Member) bool {
				return !m.Pending && !m.Stock && r.Exports(m, x.Name.Namespace)
			})
			granted[x.Name.Namespace] = to
		}
		e := &export{Export: x, granted: to}
		if was := c.exported[name]; was != nil && was.problem == nil && was.granted == to && reflect.DeepEqual(was.Export, x) && c.holds(was, cfg) {
			e = was
		}
		next[name] = e
		if e.entry == nil {
			c.offer(e, cfg, now)
			changed = append(changed, name)
		}
	}
	for name := range c.exported {
		if next[name] == nil {
			changed = append(changed, name)
		}
	}
	c.store(next, now)
	for _, e := range next {
		if e.entry != nil && slices.ContainsFunc(e.keys, func(k string) bool { _, ok := c.stored[k]; return !ok }) {
			e.entry, e.services = nil, nil
			e.problem = &mcs.Problem{Name: e.Name, Code: catalogue.OverlayNotStored}
		}
	}
	c.forward(next, changed)
	c.exported = next
	return changed
}

// holds reports whether no configured service has taken an export's ports.
func (c *Clusterset) holds(e *export, cfg *config.Resolved) bool {
	return !slices.ContainsFunc(e.services, func(s service) bool { return taken(cfg, s.Ports) })
}

// taken reports whether a configured service has one of the ports.
func taken(cfg *config.Resolved, p api.Ports) bool {
	return slices.ContainsFunc(cfg.Services.Named, func(n config.NamedService) bool { return n.Ports.Overlaps(p) })
}

// offer leases overlay ports for an export that is granted to a peer, and encodes its entry. It
// leases nothing for one that could not be announced. A headless service that has too many backends
// is offered with as many as possible.
func (c *Clusterset) offer(e *export, cfg *config.Resolved, now time.Time) {
	e.services, e.keys, e.problem = nil, nil, nil
	e.ready = min(len(e.Upstreams), 1) + len(slices.DeleteFunc(slices.Clone(e.Backends), func(b mcs.Backend) bool { return !b.Ready }))
	o := mcs.Offer{Name: e.Name, Created: e.Created, Spec: e.Spec, Spread: 1, Idle: e.Spec.Type == mcs.ClusterSetIP && e.ready == 0}
	if e.Spec.Affinity.ClientIP && e.Spec.Type == mcs.ClusterSetIP {
		o.Spread = mcs.Spread
	}
	for _, hostname := range c.hostnames(e) {
		at := make([]uint16, len(e.Spec.Ports))
		for i, p := range e.Spec.Ports {
			if p.Protocol == api.TCP || p.Protocol == api.UDP {
				at[i] = mcs.FirstPort
			}
		}
		o.Places = append(o.Places, mcs.Place{Hostname: hostname, At: at})
	}
	entry, err := mcs.Encode(o)
	if err != nil && e.Spec.Type == mcs.Headless {
		all := o.Places
		fit := sort.Search(len(all), func(n int) bool {
			o.Places = all[:n+1]
			_, err := mcs.Encode(o)
			return err != nil
		})
		if o.Places = all[:fit]; fit > 0 {
			e.problem = &mcs.Problem{Name: e.Name, Code: catalogue.ExportRefused, Detail: err.Error()}
			entry, err = mcs.Encode(o)
		}
	}
	if err == nil && e.granted {
		all := len(o.Places)
		if without := c.lease(e, &o, cfg, now); without > 0 {
			e.problem = &mcs.Problem{Name: e.Name, Code: catalogue.OverlayPortsUsed}
			if len(e.keys) == 0 {
				return
			}
			e.problem.Detail = fmt.Sprintf("%d of its %d backends are left out", without, all)
		}
		entry, err = mcs.Encode(o)
	}
	if err != nil {
		e.fail(catalogue.ExportRefused, err.Error())
		return
	}
	e.entry = entry
}

// lease leases overlay ports for the places of an offer, and drops those whose backend is not ready
// and those without ports. It returns how many are without.
func (c *Clusterset) lease(e *export, o *mcs.Offer, cfg *config.Resolved, now time.Time) (without int) {
	all := o.Places
	slices.SortFunc(all, func(a, b mcs.Place) int { return cmp.Compare(a.Hostname, b.Hostname) })
	o.Places = nil
	for _, place := range all {
		var keys []string
		var offered []service
		if !c.overlay.Atomically(func() bool {
			for i, p := range e.Spec.Ports {
				if place.At[i] == 0 {
					continue
				}
				key := mcs.LeaseKey(e.Name.Namespace, e.UID, place.Hostname, p)
				ports, ok := c.overlay.Lease(key, p.Protocol, o.Spread, now, func(ports api.Ports) bool { return taken(cfg, ports) })
				if !ok {
					return false
				}
				keys = append(keys, key)
				place.At[i] = ports.First
				s := forward.Service{Name: mcs.PortName(e.Name, p, place.Hostname), Ports: ports, Upstream: e.Upstreams[p.Name]}
				if slices.Contains(e.Proxied, p.Name) {
					s.ProxyProtocol = api.ProxyV2
				}
				offered = append(offered, service{s, p.Name, place.Hostname})
			}
			return true
		}) {
			without++
			continue
		}
		e.keys, e.services = append(e.keys, keys...), append(e.services, offered...)
		if e.Spec.Type == mcs.ClusterSetIP || slices.ContainsFunc(e.Backends, func(b mcs.Backend) bool { return b.Ready && b.Hostname == place.Hostname }) {
			o.Places = append(o.Places, place)
		}
	}
	return without
}

func (e *export) fail(code catalogue.Code, detail string) {
	e.entry, e.services, e.keys = nil, nil, nil
	e.problem = &mcs.Problem{Name: e.Name, Code: code, Detail: detail}
}

// maxHostnames is how many backends of a headless service are looked at to find those that have ports
// already: that takes a checksum for each of their ports.
const maxHostnames = 8 * mcs.MaxPlaces

// hostnames returns the places at which the service is reached: "" for all backends, or one for
// each, first those that have ports already. It returns at most one more than can be announced.
func (c *Clusterset) hostnames(e *export) []string {
	if e.Spec.Type != mcs.Headless {
		return []string{""}
	}
	all := map[string]bool{}
	for _, b := range e.Backends {
		all[b.Hostname] = true
	}
	sorted := slices.Sorted(maps.Keys(all))
	out := mcs.Turns(sorted[:min(len(sorted), maxHostnames)], func(hostname string) (of struct{}, takes int, has bool) {
		return of, 1, slices.ContainsFunc(e.Spec.Ports, func(p mcs.Port) bool {
			return c.overlay.Leased(mcs.LeaseKey(e.Name.Namespace, e.UID, hostname, p))
		})
	})
	return out[:min(len(out), mcs.MaxPlaces+1)]
}

// store stores the leases before any is announced, so that a restart knows them.
func (c *Clusterset) store(next map[string]*export, now time.Time) {
	keys := map[string]bool{}
	for _, e := range next {
		for _, k := range e.keys {
			keys[k] = true
		}
	}
	if !c.overlay.Retain(keys, now) {
		return
	}
	leases := map[string]state.OverlayLease{}
	stored := map[string]api.Ports{}
	for _, l := range c.overlay.Leases(now) {
		leases[l.Key] = state.OverlayLease{Ports: l.Ports.String(), Freed: l.Freed.UTC().Round(time.Second)}
		stored[l.Key] = l.Ports
	}
	err := c.o.Store.SetOverlayLeases(leases)
	if err == nil {
		c.stored = stored
		c.overlay.Saved()
		return
	}
	c.o.Logger.Warn("the overlay ports of services of this cluster cannot be stored; those that are new are not exported yet",
		"code", string(catalogue.OverlayNotStored), "error", err)
	maps.DeleteFunc(c.stored, func(key string, p api.Ports) bool { return stored[key] != p })
	c.mu.Lock()
	c.due.exports = true
	c.mu.Unlock()
}

// forward offers the changed exports inside the tunnel.
func (c *Clusterset) forward(next map[string]*export, changed []string) {
	var gone []string
	var now []forward.Service
	udp := map[string][]netip.AddrPort{} // the backends of services of datagrams
	in := c.o.Peers.Inbound()
	for _, name := range changed {
		e, is := next[name], map[string]bool{}
		if e != nil {
			targets := e.targets()
			for i, s := range e.services {
				is[s.Name] = true
				if s.Upstream != "" {
					continue
				}
				b := c.backends[s.Name]
				if b == nil {
					b = &backends{}
					c.backends[s.Name] = b
				}
				e.services[i].Backends = b
				b.set(targets[i].ready, e.Spec.Affinity)
				if s.Ports.Protocol == api.UDP {
					udp[s.Name] = targets[i].all
				}
			}
			now = append(now, e.forwarded()...)
		}
		if was := c.exported[name]; was != nil {
			for _, s := range was.services {
				if !is[s.Name] {
					gone = append(gone, s.Name)
					delete(c.backends, s.Name)
				}
			}
		}
	}
	if len(udp) > 0 {
		in.EndFlows(func(service string, to netip.AddrPort) bool {
			all, is := udp[service]
			if !is {
				return false
			}
			_, there := slices.BinarySearchFunc(all, to, netip.AddrPort.Compare)
			return !there
		})
	}
	if in.SetClusterServices(gone, now) == nil {
		return
	}
	for _, name := range changed { // one by one, to find which
		e := next[name]
		if e == nil {
			continue
		}
		if err := in.SetClusterServices(nil, e.forwarded()); err != nil {
			var all []string
			for _, s := range e.services {
				all = append(all, s.Name)
				delete(c.backends, s.Name)
			}
			_ = in.SetClusterServices(all, nil) // it has no services
			c.o.Logger.Error("a service of this cluster cannot be offered", "code", string(catalogue.ExportRefused), "service", name, "error", err)
			e.fail(catalogue.ExportRefused, err.Error())
		}
	}
}

// forwarded returns the services of an export.
func (e *export) forwarded() []forward.Service {
	out := make([]forward.Service, len(e.services))
	for i, s := range e.services {
		out[i] = s.Service
	}
	return out
}

// targets are the backends of a forwarded service, by address: the ready ones, and all.
type targets struct{ ready, all []netip.AddrPort }

// targets returns those of each service of an export.
func (e *export) targets() []targets {
	at := map[string][]mcs.Backend{} // by hostname, which tells them apart for Headless only
	if e.Spec.Type == mcs.Headless {
		for _, b := range e.Backends {
			at[b.Hostname] = append(at[b.Hostname], b)
		}
	} else {
		at[""] = e.Backends
	}
	out := make([]targets, len(e.services))
	for i, s := range e.services {
		t := &out[i]
		for _, b := range at[s.hostname] {
			port := b.Ports[s.port]
			if port == 0 {
				continue
			}
			a := netip.AddrPortFrom(b.Addr.Unmap(), port)
			t.all = append(t.all, a)
			if b.Ready {
				t.ready = append(t.ready, a)
			}
		}
		slices.SortFunc(t.ready, netip.AddrPort.Compare)
		slices.SortFunc(t.all, netip.AddrPort.Compare)
	}
	return out
}

// learnOwn updates the addresses of this gateway and the API server, of both families. If this host's
// addresses cannot be listed, the last ones count.
func (c *Clusterset) learnOwn() {
	var own []netip.Addr
	if c.o.OwnAddrs != nil {
		var err error
		if own, err = c.o.OwnAddrs(); err != nil {
			c.o.Logger.Warn("failed to list this host's addresses, which no exported service leads to", "error", err)
			if len(c.own) > 0 {
				return
			}
		}
	}
	apiServer, _ := netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST")) // none outside of a cluster
	c.own = map[netip.Addr]bool{}
	for _, a := range append(own, c.o.Host, apiServer) {
		c.own[a.Unmap().WithZone("")] = true
	}
}

// mayBeBackend rejects addresses that cannot be pods. A user who may write EndpointSlices must not
// make this gateway connect to itself, which may use every peer's services, to its node, to the API
// server or to a cloud's metadata, nor to an address that a translator turns into one of these. own
// are the gateway's addresses and the API server's. Package kube/mcs, which knows the cluster's
// Services, leaves out their addresses. What the network translates to this gateway nevertheless is
// found by package forward once it is connected.
func mayBeBackend(a netip.Addr, own map[netip.Addr]bool) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) &&
		a.Zone() == "" && !special.Metadata(a) && !own[a] &&
		!slices.ContainsFunc(special.Embedded(a), func(v4 netip.Addr) bool { return !mayBeBackend(v4, own) })
}
