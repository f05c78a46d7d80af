package clusterset

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
)

// importer is what is imported. Clusterset.reconciling guards it, except for the routes.
type importer struct {
	imports   map[mcs.Name]mcs.Import
	conflicts map[mcs.Name][]mcs.Conflict
	wanted    map[mcs.Name][]forward.Local
	at        map[place]netip.AddrPort // addresses of the listeners
	failing   []mcs.Problem            // listeners that cannot be opened
	over      map[surplus]int          // how many listeners of a peer's service are missing for lack of room
	routes
}

// surplus is a peer's service with more listeners than there may be.
type surplus struct {
	peer string
	name mcs.Name
}

// listenerFraction is the fraction of the process' memory limit for listeners, which take some
// listenerMemory bytes each. maxListeners is their maximum number, below the number of ports. One
// peer has at most peerListeners, or half.
const (
	listenerFraction, listenerMemory = 4, 8 << 10
	maxListeners                     = 8000
	peerListeners                    = mcs.MaxServices
)

// room returns how many listeners there may be in total, and for one peer.
func room() (all, each int) {
	all = int(min(maxListeners, debug.SetMemoryLimit(-1)/listenerFraction/listenerMemory))
	return all, min(peerListeners, (all+1)/2)
}

// firstTry returns the preferred port of a listener without a configured address, the same in each
// run.
func (p place) firstTry() uint16 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.peer + " " + p.service))
	return mcs.FirstListener + uint16(mixed(h.Sum64())%(mcs.LastListener-mcs.FirstListener+1))
}

// place identifies a listener: a peer, and the forwarded service.
type place struct{ peer, service string }

// routes maps listeners to addresses inside the tunnel. It is safe for concurrent use.
type routes struct {
	lock     sync.RWMutex
	to       map[place]api.Ports
	reserved map[uint16]string // see Reserve
}

func newImporter() importer {
	return importer{
		imports: map[mcs.Name]mcs.Import{}, conflicts: map[mcs.Name][]mcs.Conflict{}, wanted: map[mcs.Name][]forward.Local{},
		routes: routes{to: map[place]api.Ports{}},
	}
}

// importAll imports the services of these names, or all, and publishes the state. causes are the peers
// that changed something.
func (c *Clusterset) importAll(r *roster.Roster, namespaces map[string]bool, names map[mcs.Name]bool, all bool, causes []*site) {
	for _, p := range c.failing {
		names[p.Name] = true
	}
	c.mu.Lock()
	if all {
		for _, s := range c.peers {
			for _, n := range s.reader.Names() {
				names[n] = true
			}
		}
		for n := range c.imports {
			names[n] = true
		}
	}
	told := func(n mcs.Name) (list []mcs.PeerOffer) {
		for peer, s := range c.peers {
			if o := s.reader.Offer(n); o != nil && c.exists(namespaces, n) && r.Imports(s.member, n.Namespace) {
				list = append(list, mcs.PeerOffer{Peer: peer, Silent: s.silent, Offer: o})
			}
		}
		return list
	}
	offers := map[mcs.Name][]mcs.PeerOffer{}
	for n := range names {
		offers[n] = told(n)
	}
	c.mu.Unlock()
	others, moved := c.listen(r, names, offers)
	c.mu.Lock()
	for peer, listeners := range moved {
		// What a peer that is behind has changed, or only just, may have come along with another change.
		if s := c.peers[peer]; s != nil && (s.behind || slices.Contains(causes, s) || slices.Contains(c.due.sites, s)) {
			s.changes.ReserveN(time.Now(), min(listeners, mcs.MaxServices)) // at the expense of later changes
		}
	}
	for n := range others {
		offers[n] = told(n)
	}
	c.mu.Unlock()
	for n, list := range offers {
		c.merge(n, list)
	}
	c.publish(r, namespaces)
}

// exists reports whether the service's namespace exists here.
func (c *Clusterset) exists(namespaces map[string]bool, n mcs.Name) bool {
	return c.o.Plain || namespaces[n.Namespace]
}

// listen opens and closes listeners for the services of these names, and stores their addresses and
// routes. It returns the names of other services whose listeners changed as a result, and by peer how
// many listeners changed besides one of each service.
func (c *Clusterset) listen(r *roster.Roster, names map[mcs.Name]bool, told map[mcs.Name][]mcs.PeerOffer) (others map[mcs.Name]bool, moved map[string]int) {
	changed := false
	moved = map[string]int{}
	c.lock.Lock()
	for n := range names {
		var now []forward.Local
		to := map[place]api.Ports{}
		for _, t := range told[n] {
			var local map[string]string
			if m := r.ByName(t.Peer); m != nil {
				local = m.Local
			}
			for _, p := range t.Places {
				for i, port := range t.Spec.Ports {
					if overlay, carried := t.Overlay(p, i); carried {
						k := place{t.Peer, mcs.PortName(n, port, p.Hostname)}
						to[k] = overlay
						now = append(now, forward.Local{Peer: k.peer, Service: k.service, Address: local[k.service], Protocol: port.Protocol, Port: k.firstTry()})
					}
				}
			}
		}
		for _, l := range c.wanted[n] {
			delete(c.to, place{l.Peer, l.Service})
		}
		maps.Copy(c.to, to)
		slices.SortFunc(now, compareLocals)
		for peer, listeners := range difference(c.wanted[n], now) {
			changed = true
			moved[peer] += listeners - 1
		}
		if c.wanted[n] = now; len(now) == 0 {
			delete(c.wanted, n)
		}
	}
	c.lock.Unlock()
	others = map[mcs.Name]bool{}
	if changed {
		was := c.over
		var fits []forward.Local
		all, each := room()
		fits, c.over = fit(c.wanted, c.at, all, each)
		for _, m := range []map[surplus]int{was, c.over} {
			for s := range m {
				if was[s] != c.over[s] && !names[s.name] {
					others[s.name] = true
				}
			}
		}
		c.out.SetLocals(fits)
	}
	if !changed && len(c.failing) == 0 {
		return others, moved
	}
	c.at, c.failing = map[place]netip.AddrPort{}, nil
	for _, l := range c.out.Locals() {
		a, err := api.ParseListen(l.Address)
		if l.Err != nil || err != nil {
			c.failing = append(c.failing, mcs.Problem{Name: mcs.NameOfPort(l.Service), Peer: l.Peer, Code: catalogue.LocalListener, Detail: catalogue.Reason(l.Err),
				Port: l.Service, Address: l.Address})
			continue
		}
		c.at[place{l.Peer, l.Service}] = a.At(0)
	}
	return others, moved
}

// difference counts the listeners that are only in one of two lists, or at another address, by peer.
func difference(a, b []forward.Local) map[string]int {
	address := map[place]string{}
	out := map[string]int{}
	for _, l := range a {
		address[place{l.Peer, l.Service}] = l.Address
		out[l.Peer]++
	}
	for _, l := range b {
		if was, there := address[place{l.Peer, l.Service}]; !there {
			out[l.Peer]++
		} else if was == l.Address {
			out[l.Peer]--
		}
	}
	maps.DeleteFunc(out, func(_ string, n int) bool { return n == 0 })
	return out
}

// fit returns the listeners that there is room for, in total and for each peer: those with a
// configured address first. Peers and their namespaces take turns; what listens at an address stays
// if possible. over counts the others.
func fit(wanted map[mcs.Name][]forward.Local, at map[place]netip.AddrPort, all, each int) (fits []forward.Local, over map[surplus]int) {
	var list []forward.Local
	for _, n := range slices.SortedFunc(maps.Keys(wanted), mcs.Name.Compare) {
		list = append(list, wanted[n]...)
	}
	type holder struct{ peer, namespace string }
	list = mcs.Turns(list, func(l forward.Local) (holder, int, bool) {
		_, has := at[place{l.Peer, l.Service}]
		return holder{l.Peer, mcs.NameOfPort(l.Service).Namespace}, 1, has
	})
	over = map[surplus]int{}
	have := map[string]int{}
	for _, anywhere := range []bool{false, true} {
		for _, l := range list {
			switch {
			case (l.Address == "") != anywhere:
			case len(fits) >= all || have[l.Peer] >= each:
				over[surplus{l.Peer, mcs.NameOfPort(l.Service)}]++
			default:
				have[l.Peer]++
				fits = append(fits, l)
			}
		}
	}
	return fits, over
}

func compareLocals(a, b forward.Local) int {
	return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Address, b.Address))
}

// merge creates the import of one service.
func (c *Clusterset) merge(n mcs.Name, told []mcs.PeerOffer) {
	var own *mcs.Export
	if e := c.exported[n.String()]; e != nil {
		own = &e.Export
	}
	delete(c.imports, n)
	delete(c.conflicts, n)
	if own == nil && len(told) == 0 {
		return
	}
	i, conflicts := mcs.Merge(n, own, told, func(peer, hostname string, port mcs.Port) (netip.AddrPort, bool) {
		a, there := c.at[place{peer, mcs.PortName(n, port, hostname)}]
		return a, there
	})
	c.imports[n] = i
	if len(conflicts) > 0 {
		c.conflicts[n] = conflicts
	}
}

// publish publishes the state if it changed.
func (c *Clusterset) publish(r *roster.Roster, namespaces map[string]bool) {
	next := mcs.State{Problems: slices.Clone(c.failing)}
	for _, n := range slices.SortedFunc(maps.Keys(c.imports), mcs.Name.Compare) {
		next.Imports = append(next.Imports, c.imports[n])
		next.Conflicts = append(next.Conflicts, c.conflicts[n]...)
	}
	for _, e := range c.exported {
		if e.problem != nil {
			next.Problems = append(next.Problems, *e.problem)
		}
	}
	all, each := room()
	for s, missing := range c.over {
		next.Problems = append(next.Problems, mcs.Problem{Name: s.name, Peer: s.peer, Code: catalogue.ImportsFull,
			Detail: fmt.Sprintf("%d of its listeners are not opened, there may be %d for one peer and %d in all", missing, each, all)})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer, s := range c.peers {
		if len(s.member.Import) > 0 && !s.reader.Complete() {
			next.Awaited = append(next.Awaited, peer)
		}
		next.Problems = append(next.Problems, c.problems(s, peer, r, namespaces)...)
	}
	slices.Sort(next.Awaited)
	slices.SortFunc(next.Problems, func(a, b mcs.Problem) int {
		return cmp.Or(a.Name.Compare(b.Name), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Detail, b.Detail))
	})
	c.due.opening = len(c.failing) > 0
	if !reflect.DeepEqual(c.state, next) {
		c.state = next
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// maxOthers is how many of a service's ports a problem names if one is missing.
const maxOthers = 3

// problems returns why services of a peer are not imported, and ours not announced to it.
func (c *Clusterset) problems(s *site, peer string, r *roster.Roster, namespaces map[string]bool) []mcs.Problem {
	if s.unable != "" {
		if len(s.member.Import) == 0 && len(s.member.Export) == 0 {
			return nil
		}
		return []mcs.Problem{{Peer: peer, Code: catalogue.ServicesUnknown, Detail: s.unable}}
	}
	out := s.reader.Refused(peer)
	if s.reader.TooMany() {
		out = append(out, mcs.Problem{Peer: peer, Code: catalogue.TooManyServices})
	}
	for name := range s.unsent {
		out = append(out, mcs.Problem{Name: mcs.NameOfPort(name), Peer: peer, Code: catalogue.CatalogueFull})
	}
	for _, n := range s.reader.Names() {
		switch {
		case !r.Imports(s.member, n.Namespace):
			out = append(out, mcs.Problem{Name: n, Peer: peer, Code: catalogue.ServiceNotWanted})
		case !c.exists(namespaces, n):
			out = append(out, mcs.Problem{Name: n, Peer: peer, Code: catalogue.NamespaceMissing})
		}
	}
	for port, address := range s.member.Local {
		n, others := mcs.NameOfPort(port), []string{}
		for _, l := range c.wanted[n] {
			if l.Peer == peer {
				others = append(others, l.Service)
			}
		}
		if mcs.IsPortName(port) && s.reader.Complete() && !slices.Contains(others, port) {
			out = append(out, mcs.Problem{Name: n, Peer: peer, Code: catalogue.ImportMissing, Port: port, Address: address, Detail: strings.Join(others[:min(len(others), maxOthers)], ", ")})
		}
	}
	return out
}

// Reserve implements mcs.Services.
func (c *Clusterset) Reserve(peers map[uint16]string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.reserved = peers
}

// others reports whether a port of a listener is reserved for another peer.
func (c *Clusterset) others(l forward.Local, port uint16) bool {
	c.lock.RLock()
	defer c.lock.RUnlock()
	peer, is := c.reserved[port]
	return is && peer != l.Peer
}

// find returns the address of an imported service inside the tunnel.
func (c *Clusterset) find(_ context.Context, t forward.Target) (netip.AddrPort, error) {
	c.lock.RLock()
	ports, there := c.to[place{t.Peer, t.Service}]
	c.lock.RUnlock()
	m := c.o.Peers.Load().ByName(t.Peer)
	switch {
	case !there || m == nil:
		return netip.AddrPort{}, fmt.Errorf("peer %s no longer exports %s to here", t.Peer, t.Service)
	case !c.o.Connected(m):
		return netip.AddrPort{}, fmt.Errorf("peer %s does not answer", t.Peer)
	}
	return netip.AddrPortFrom(m.Address(), ports.First+uint16(nthOf(t.Client.Addr(), ports.Len()))), nil
}

// dial connects to an imported service.
func (c *Clusterset) dial(ctx context.Context, t forward.Target) (forward.Conn, error) {
	to, err := c.find(ctx, t)
	if err != nil {
		return nil, err
	}
	conn, err := c.o.Stack.DialTCP(ctx, to)
	if err != nil {
		return nil, err // never an interface that holds a nil connection
	}
	return conn, nil
}
