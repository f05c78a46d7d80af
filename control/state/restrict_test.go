package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tunnel/peer"
)

// fill makes every write to the peers' file fail as on a full disk; free restores it.
func fill(s *Store) (free func()) {
	d := s.peers.disk
	s.peers.disk.write = func(*os.File, []byte) error { return syscall.ENOSPC }
	return func() { s.peers.disk = d }
}

// remaining returns what the next gateway finds in the directory, by peer.
func remaining(t *testing.T, s *Store, suffix string) map[string][]string {
	t.Helper()
	c, err := s.peers.read(suffix)
	if err != nil {
		t.Fatal(err)
	}
	return grants(c.value)
}

func grants(p Peers) map[string][]string {
	out := map[string][]string{}
	for _, x := range p.All() {
		out[x.Name] = x.Allow
	}
	return out
}

func TestAFullDiskKeepsNobodyIn(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Peers) error
		edge   []string // what edge may reach then; nil: it is removed
		berlin bool
	}{
		{"a peer is removed", func(p *Peers) error { p.Remove("edge"); return nil }, nil, true},
		{"a grant is taken", func(p *Peers) error { return allow(p, "edge", "auth") }, []string{"auth"}, true},
		{"one grant goes and one comes", func(p *Peers) error { return allow(p, "edge", "auth", "registry") }, []string{"auth"}, true},
		{"one peer goes and one comes", func(p *Peers) error {
			p.Remove("berlin")
			return p.Put(Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}})
		}, []string{"auth", "apiServer"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := two(t)
			s := mustOpen(t, dir)
			free := fill(s)
			err := s.Restrict(c.change)
			if !errors.Is(err, ErrNotStored) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") ||
				strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("got %v, want %v and what to do", err, ErrNotStored)
			}
			want := map[string][]string{}
			if c.edge != nil {
				want["edge"] = c.edge
			}
			if c.berlin {
				want["berlin"] = nil
			}
			check := func(when string, got map[string][]string) {
				t.Helper()
				if len(got) != len(want) {
					t.Errorf("%s: peers and grants are %v, want %v", when, got, want)
				}
				for name, services := range want {
					if have, ok := got[name]; !ok || !slices.Equal(have, services) {
						t.Errorf("%s: %s may reach %v (%v), want %v", when, name, have, ok, services)
					}
				}
			}
			check("at once", grants(s.Peers()))
			if !s.Unstored() || s.Lingers("edge") != (c.edge == nil) || s.Lingers("berlin") == c.berlin {
				t.Error("the store does not know that the file is behind")
			}
			if err := s.Flush(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Flush on a full disk: got %v, want %v", err, syscall.ENOSPC)
			}
			free()
			if err := s.Flush(); err != nil || s.Unstored() || s.Lingers("edge") {
				t.Errorf("Flush with free space: error %v, unstored %v", err, s.Unstored())
			}
			check("in the file", remaining(t, s, ""))
			check("in the generation before", remaining(t, s, previous))
		})
	}
}

func allow(p *Peers, name string, services ...string) error {
	x, _ := p.Get(name)
	x.Allow = services
	return p.Put(x)
}

func TestAFullDiskLetsNobodyIn(t *testing.T) {
	for name, change := range map[string]func(*Peers) error{
		"a new peer":    func(p *Peers) error { return p.Put(Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}}) },
		"a wider grant": func(p *Peers) error { return allow(p, "edge", "auth", "apiServer", "registry") },
		"an approval": func(p *Peers) error {
			x, _ := p.Get("edge")
			x.Pending = false
			return p.Put(x)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, two(t))
			before := s.peers.load()
			defer fill(s)()
			err := s.Restrict(change)
			if errors.Is(err, ErrNotStored) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "nothing was changed") {
				t.Errorf("got %v, want no change", err)
			}
			after := s.peers.load()
			if x, _ := after.Get("edge"); after.Len() != before.Len() || !x.Pending || len(x.Allow) != 2 || s.Unstored() {
				t.Errorf("memory is %+v, want it as it was", after.All())
			}
		})
	}
}

func TestALaterChangeStoresWhatARestrictionCouldNot(t *testing.T) {
	dir := two(t)
	s := mustOpen(t, dir)
	free := fill(s)
	remove := func(p *Peers) error { p.Remove("edge"); return nil }
	for range 2 { // a repeated command gets the same result
		if err := s.Restrict(remove); !errors.Is(err, ErrNotStored) {
			t.Errorf("got %v, want %v", err, ErrNotStored)
		}
	}
	free()
	put(t, s, Peer{Name: "tokyo", PublicKey: peer.PublicKey{8}})
	for _, suffix := range []string{"", previous} {
		if got := remaining(t, s, suffix); len(got) != 2 || s.Unstored() {
			t.Errorf("peers.json%s has %v, want berlin and tokyo", suffix, got)
		}
	}
}

func TestAPeerThatComesBackUnstoredIsTheOneOfTheFile(t *testing.T) {
	s := mustOpen(t, two(t))
	defer fill(s)()
	was := s.Peers()
	if err := s.Restrict(func(p *Peers) error { p.Remove("edge"); return nil }); !errors.Is(err, ErrNotStored) {
		t.Errorf("got %v, want %v", err, ErrNotStored)
	}
	if err := s.Update(func(p *Peers) error { *p = was; return nil }); err != nil || s.Unstored() || s.Peers().Len() != 2 {
		t.Errorf("a change back to what the file contains must not write it: %v", err)
	}
}

func TestClosingStoresWhatARestrictionCouldNot(t *testing.T) {
	dir := two(t)
	s := mustOpen(t, dir)
	free := fill(s)
	if err := s.Restrict(func(p *Peers) error { p.Remove("edge"); return nil }); !errors.Is(err, ErrNotStored) {
		t.Errorf("got %v, want %v", err, ErrNotStored)
	}
	free()
	mustClose(t, s)
	if p := mustOpen(t, filepath.Clean(dir)).Peers(); p.Len() != 1 {
		t.Errorf("after a restart there are %d peers, want only berlin", p.Len())
	}
}
