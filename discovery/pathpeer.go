package discovery

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// nameAgain is how soon a name may be resolved again if there is a reason to.
const nameAgain = 5 * time.Second

// pathPeer is a [Pathfinder]'s state of a peer, guarded by the pathfinder's lock.
type pathPeer struct {
	key  peer.PublicKey
	name string
	m    *path.Machine

	fixed     []Candidate // from the configuration
	announced []Candidate // by the peer, earlier
	names     []*name
	order     map[netip.AddrPort]uint8
	remote    []Candidate // as last passed to the machine; nil = not yet

	selected peer.Path    // of the last routing
	label    string       // of selected, for display
	permit   []netip.Addr // of the last actions that had any

	sight sight

	generation uint64 // the last SetPeers that included it

	due   time.Time // of the next poll
	place int       // in the queue
}

// configure applies the peer's configuration, and reports whether it changed anything. It fails on
// names that cannot be parsed, but applies the rest. An unchanged configuration, as for nearly all
// of a thousand peers when one is added, costs only the comparison.
func (p *pathPeer) configure(now time.Time, c PathPeer, refused func(netip.AddrPort) string) (due bool, err error) {
	p.name = c.Name
	if p.remote != nil && len(p.order)+len(c.Order)+len(p.names)+len(c.Names) == 0 &&
		slices.Equal(p.fixed, c.Candidates) && slices.Equal(p.announced, c.Announced) {
		return false, nil
	}
	p.fixed, p.announced = slices.Clone(c.Candidates), slices.Clone(c.Announced)
	renamed, err := p.rename(c.Names)
	ordered := !maps.Equal(p.order, c.Order)
	if ordered {
		p.order = maps.Clone(c.Order)
		p.m.SetOrder(now, p.order)
	}
	told := p.updateRemote(now, refused)
	return told || renamed || ordered, err
}

// rename sets the names to resolve, and reports whether any is new.
func (p *pathPeer) rename(texts []string) (renamed bool, err error) {
	var names []*name
	var errs []error
	for _, text := range texts {
		i := slices.IndexFunc(p.names, func(n *name) bool { return n.text == text })
		if i >= 0 {
			names = append(names, p.names[i])
			continue
		}
		n, err := parseName(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("endpoint: %w", err))
			continue
		}
		names, renamed = append(names, n), true
	}
	p.names = names
	return renamed, errors.Join(errs...)
}

// updateRemote passes the candidates from here to the machine if they changed, and reports whether
// they did. refused says why an announced one is not dialled.
func (p *pathPeer) updateRemote(now time.Time, refused func(netip.AddrPort) string) (told bool) {
	all := []Candidate{}
	trusted := func(a netip.AddrPort, source string) {
		if a = unmapped(a); a.Port() != 0 && nobodys(a.Addr()) == "" {
			all = append(all, Candidate{Addr: a, Source: source})
		}
	}
	for _, c := range p.fixed {
		trusted(c.Addr, c.Source)
	}
	for _, n := range p.names {
		for _, a := range n.addrPorts() {
			trusted(a, SourceAdvertised)
		}
	}
	for _, c := range p.announced {
		if refused(c.Addr) == "" {
			all = append(all, Candidate{Addr: unmapped(c.Addr), Source: c.Source})
		}
	}
	if p.remote != nil && slices.Equal(all, p.remote) {
		return false
	}
	p.remote = all
	p.m.SetRemote(now, slices.Clone(all), false)
	return true
}

// toResolve returns the hosts to resolve now, and when the next one is due.
func (p *pathPeer) toResolve(now time.Time) (hosts []string, next time.Time) {
	for _, n := range p.names {
		if n.step(now) && !slices.Contains(hosts, n.host) {
			hosts = append(hosts, n.host)
		}
		if n.host != "" && !n.resolving && (next.IsZero() || n.due.Before(next)) {
			next = n.due
		}
	}
	return hosts, next
}

// Unresolved is a peer's endpoint whose name has never resolved.
type Unresolved struct {
	Name   string    // as configured, with the port
	Reason string    // "cannot be resolved: ..."
	Silent bool      // no name server answered
	Next   time.Time // zero if the first attempt is under way
}

// unresolved lists the names that have no address. Without a name server that answers, the first
// result takes seconds.
func (p *pathPeer) unresolved() []Unresolved {
	var out []Unresolved
	for _, n := range p.names {
		switch {
		case len(n.addrs) > 0:
		case !n.settled:
			out = append(out, Unresolved{Name: n.text, Reason: "is being resolved: no answer yet", Silent: true})
		default:
			why := strings.TrimPrefix(n.err, "resolve "+n.host+": ")
			out = append(out, Unresolved{Name: n.text, Reason: "cannot be resolved: " + why, Silent: n.silent, Next: n.due})
		}
	}
	return out
}

// resolveSoon resolves those names again that are wanted, at a limited rate.
func (p *pathPeer) resolveSoon(now time.Time, wanted func(*name) bool) {
	for _, n := range p.names {
		if at := n.at.Add(nameAgain); n.due.After(at) && wanted(n) {
			n.due = at
			if at.Before(now) {
				n.due = now
			}
		}
	}
}

func anyName(*name) bool { return true }

// deadlines is a heap of peers, the next due first.
type deadlines []*pathPeer

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q deadlines) Len() int           { return len(q) }
func (q deadlines) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q deadlines) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *deadlines) Push(x any) {
	p := x.(*pathPeer)
	p.place = len(*q)
	*q = append(*q, p)
}

func (q *deadlines) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return p
}

func (q *deadlines) add(p *pathPeer)    { heap.Push(q, p) }
func (q *deadlines) remove(p *pathPeer) { heap.Remove(q, p.place) }

func (q *deadlines) set(p *pathPeer, due time.Time) {
	p.due = due
	heap.Fix(q, p.place)
}

// first returns the peer that is due first, if any is due by now.
func (q deadlines) first(now time.Time) (*pathPeer, bool) {
	if len(q) == 0 || q[0].due.After(now) {
		return nil, false
	}
	return q[0], true
}
