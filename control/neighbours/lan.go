package neighbours

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

// lanAgain is how often discovered gateways are tried again: a name may have become free, or a
// state directory writable.
const lanAgain = 30 * time.Second

// lanSearch announces this gateway on the local network and finds others there, while it is
// configured. Its results are used for peers that are known by key; others are shown. Those that
// the configuration lists become peers.
type lanSearch struct {
	o *Options
	// again holds at most one request to run another finder, changed one to use the new results.
	again, changed wake.Signal
	// finder is nil without a search.
	finder atomic.Pointer[lan.Finder]
	// used is where peers were found as of the last update of their paths.
	used atomic.Pointer[string]

	// Owned by run: what was last logged about a gateway, by where it was found.
	told map[lanPlace]string
	// refused is why those that should become peers did not, as last logged.
	refused map[peer.PublicKey][]string
}

// lanPlace is where an instance was found.
type lanPlace struct {
	name  foreign.Text
	iface string
}

func newLANSearch(o *Options) *lanSearch {
	return &lanSearch{
		o: o, again: wake.New(), changed: wake.New(),
		told: map[lanPlace]string{}, refused: map[peer.PublicKey][]string{},
	}
}

// run announces and searches until ctx ends.
func (s *lanSearch) run(ctx context.Context) {
	for ctx.Err() == nil {
		finder := s.newFinder(s.o.Peers.Config())
		s.finder.Store(finder)
		searching, stop := context.WithCancel(ctx)
		var search sync.WaitGroup
		if finder != nil {
			search.Go(func() {
				if err := finder.Run(searching); !errors.Is(err, context.Canceled) {
					s.o.Logger.Warn("LAN discovery stopped", "error", err)
				}
			})
		}
		s.follow(ctx)
		stop()
		search.Wait()
		s.finder.Store(nil)
		s.o.rematch()
	}
}

// newFinder returns the finder that the configuration asks for; nil if none.
func (s *lanSearch) newFinder(cfg *config.Resolved) *lan.Finder {
	l := cfg.Discovery.LAN
	if !l.Enabled {
		return nil
	}
	f, err := lan.New(lan.Options{
		Name: cfg.Name, PublicKey: s.o.publicKey, Port: s.o.Port,
		Capabilities: []string{auth.CapabilityPath, auth.CapabilityReport},
		Secret:       l.Secret, TTL: l.TTL,
		Interfaces: s.interfaces(l.Interfaces, cfg.Discovery.Exclude), Listen: s.o.Listen,
		Changed: s.changed.Set, Logger: s.o.Logger,
	})
	if err != nil { // the configuration was checked by the same rules
		s.o.Logger.Error("cannot start LAN discovery", "error", err)
		return nil
	}
	return f
}

// interfaces lists those to use. Addresses in excluded ranges cannot be dialled by others, so they
// are not announced.
func (s *lanSearch) interfaces(names []string, exclude []netip.Prefix) func() ([]lan.Interface, error) {
	list := s.o.Interfaces
	if list == nil {
		list = func() ([]lan.Interface, error) { return lan.SystemInterfaces(names, discovery.MadeByOthers) }
	}
	return func() ([]lan.Interface, error) {
		all, err := list()
		for i, x := range all {
			kept := slices.DeleteFunc(slices.Clone(x.Prefixes), func(p netip.Prefix) bool {
				return slices.ContainsFunc(exclude, func(e netip.Prefix) bool { return e.Contains(p.Addr()) })
			})
			if x.Unfit == "" && len(kept) == 0 {
				all[i].Unfit = "its addresses are in the ranges of spec.discovery.exclude"
			}
			all[i].Prefixes = kept
		}
		return all, err
	}
}

// reload runs another finder if the configuration has changed.
func (s *lanSearch) reload(old, next config.Discovery) {
	if !old.LAN.Equal(next.LAN) || old.LAN.Enabled && !slices.Equal(old.Exclude, next.Exclude) {
		s.again.Set()
	}
}

// follow uses the results until another finder is needed or ctx ends.
func (s *lanSearch) follow(ctx context.Context) {
	tick := time.NewTicker(lanAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.again:
			return
		case <-tick.C:
			s.admit(ctx)
		case <-s.changed:
			s.tell(ctx)
			s.admit(ctx)
			// Strangers coming and going are no reason to update the peers.
			if used := s.used.Load(); used == nil || *used != peersAt(s.o.Peers.Load(), s.found()) {
				s.o.rematch()
			}
		}
	}
}

// found returns the results; nil without a search.
func (s *lanSearch) found() []lan.Instance {
	if f := s.finder.Load(); f != nil {
		return f.Found()
	}
	return nil
}

// candidates returns where the holder of a peer's keys was found. They are untrusted like any
// announced candidates, and dialled only as far as those may be.
func (s *lanSearch) candidates(found []lan.Instance, m *roster.Member) []discovery.Candidate {
	if len(found) == 0 {
		return nil
	}
	proven := slices.Concat(s.o.Store.Observed(m.Key).Endpoints, s.o.Store.Observed(m.NextKey).Endpoints)
	return inTurn(found, []peer.PublicKey{m.Key, m.NextKey}, proven)
}

// lanShare is how many addresses of an instance come before the next instance's.
const lanShare = 2

// inTurn lists where the holder of keys was found. Only the first of the list are tried, and anyone
// can announce another's key. So those with a proof of membership come first, then those at
// addresses where the holder was heard before, then those found first. One that announces many
// addresses does not crowd out the others.
func inTurn(found []lan.Instance, keys []peer.PublicKey, proven []netip.AddrPort) []discovery.Candidate {
	unproven := func(a netip.AddrPort) int {
		if slices.Contains(proven, a) {
			return 0
		}
		return 1
	}
	rank := func(i lan.Instance) int {
		if i.Member {
			return -1
		}
		return unproven(i.Addresses[0])
	}
	var fit []lan.Instance
	for _, i := range found {
		if !i.Err.IsZero() || len(i.Addresses) == 0 || !slices.Contains(keys, i.PublicKey) {
			continue
		}
		i.Addresses = slices.Clone(i.Addresses)
		slices.SortStableFunc(i.Addresses, func(a, b netip.AddrPort) int { return unproven(a) - unproven(b) })
		fit = append(fit, i)
	}
	slices.SortStableFunc(fit, func(a, b lan.Instance) int {
		return cmp.Or(rank(a)-rank(b), a.FirstSeen.Compare(b.FirstSeen))
	})
	var out []discovery.Candidate
	for left := true; left; {
		left = false
		for n := range fit {
			i := &fit[n]
			share := min(lanShare, len(i.Addresses))
			for _, a := range i.Addresses[:share] {
				if c := (discovery.Candidate{Addr: a, Source: discovery.SourceLAN}); !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
			i.Addresses = i.Addresses[share:]
			left = left || len(i.Addresses) > 0
		}
	}
	return out
}

// near returns what was found of a roster's peers, to look for them there.
func (s *lanSearch) near(r *roster.Roster) []lan.Instance {
	found := s.found()
	at := peersAt(r, found)
	s.used.Store(&at)
	return found
}

// peersAt is where peers were found, in a comparable form.
func peersAt(r *roster.Roster, found []lan.Instance) string {
	var b strings.Builder
	for _, i := range found {
		if m, otherKey := r.Match(i.Name.RawUnsafe(), i.PublicKey); m != nil && !otherKey && i.Err.IsZero() {
			fmt.Fprintln(&b, i.PublicKey, i.Addresses, i.Member)
		}
	}
	return b.String()
}
