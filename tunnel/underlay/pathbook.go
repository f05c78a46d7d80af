package underlay

import (
	"net/netip"
	"sync/atomic"

	"github.com/postern-dev/postern/tunnel/peer"
)

// pathBook knows all paths of all peers. It is rebuilt on the first question after a change, so
// that a question costs one lookup, however many paths there are and however often strangers cause
// questions.
type pathBook struct {
	changes atomic.Uint64
	made    atomic.Pointer[madeBook]
	all     func() map[peer.Path]struct{}
}

// madeBook is a snapshot of the paths after so many changes. It is immutable.
type madeBook struct {
	changes uint64
	paths   map[peer.Path]struct{}
	// remotes are the addresses of the paths, each also with port 0.
	remotes map[netip.AddrPort]struct{}
}

func newBook(changes uint64, paths map[peer.Path]struct{}) *madeBook {
	b := &madeBook{changes, paths, make(map[netip.AddrPort]struct{}, 2*len(paths))}
	for p := range paths {
		b.remotes[p.Remote] = struct{}{}
		b.remotes[anyPort(p.Remote)] = struct{}{}
	}
	return b
}

func anyPort(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), 0) }

// changed must be called after each change.
func (p *pathBook) changed() { p.changes.Add(1) }

// has reports whether the path belongs to any peer.
func (p *pathBook) has(path peer.Path) bool {
	_, ok := p.book().paths[path]
	return ok
}

// book returns an up-to-date book. It locks Bind.mu, so the caller must hold no other lock of the
// package and must not keep a socket from closing: see [observed].
func (p *pathBook) book() *madeBook {
	made, changes := p.made.Load(), p.changes.Load()
	if made == nil || made.changes != changes {
		// A change meanwhile makes the number old, so that the next caller builds another.
		made = newBook(changes, p.all())
		p.made.Store(made)
	}
	return made
}

// allPaths collects the paths of all peers.
func (b *Bind) allPaths() map[peer.Path]struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[peer.Path]struct{})
	for _, f := range b.candidates {
		f.each(func(p peer.Path) { all[p] = struct{}{} })
	}
	return all
}

// each visits the peer's paths, some perhaps twice.
func (f *fanOut) each(visit func(peer.Path)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eachLocked(visit)
}

func (f *fanOut) eachLocked(visit func(peer.Path)) {
	for _, ep := range *f.targets.Load() {
		visit(pathOf(ep))
	}
	if f.selected != nil {
		visit(pathOf(f.selected))
	}
	if f.learned != nil {
		visit(pathOf(f.learned))
	}
}
