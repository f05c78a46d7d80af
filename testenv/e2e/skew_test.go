//go:build linux && e2e

package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// program is a postern of some version.
type program struct{ version, path string }

// olderPrograms are those that POSTERN_OLDER names: VERSION=PATH, separated by spaces.
func olderPrograms(t *testing.T) (list []program) {
	t.Helper()
	for _, word := range strings.Fields(os.Getenv("POSTERN_OLDER")) {
		version, path, ok := strings.Cut(word, "=")
		if _, err := os.Stat(path); !ok || err != nil {
			t.Fatalf("POSTERN_OLDER: %q is no VERSION=PATH of a program: %v", word, err)
		}
		list = append(list, program{version, path})
	}
	if list == nil {
		t.Skip("POSTERN_OLDER names no programs of earlier versions: `make older` builds them")
	}
	return list
}

// skews are what gateways of this version and of an earlier one have to do together. Their
// names are rows of the table in docs/versions.md.
var skews = []struct {
	name string
	play func(*skew)
}{
	{"a ticket of the older one, joined by the newer", (*skew).newerJoins},
	{"a ticket of the newer one, joined by the older", (*skew).olderJoins},
	{"an open ticket, through an upgrade of its inviter", (*skew).ticketIsKept},
	{"a peer that was removed, through upgrade and rollback", (*skew).removedStaysRemoved},
	{"both directions through NATs, by a relay, and back", (*skew).paths},
	{"keys that rotate at either side", (*skew).rotation},
	{"upgrade, rollback and kill -9, in any order", (*skew).rounds},
}

// TestSkew has gateways of this version meet those of earlier ones.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, older := range olderPrograms(t) {
		t.Run(older.version, func(t *testing.T) {
			t.Parallel()
			for _, c := range skews {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					s := &skew{sites: newSites(t, portRestricted, portRestricted, ways{}), older: older}
					s.newer = program{"this version", s.left.bin}
					defer s.report()
					c.play(s)
				})
			}
		})
	}
}

// TestSkewIsDocumented compares the table in the docs with what TestSkew plays.
func TestSkewIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range skews {
		if !strings.Contains(string(page), "\n| "+c.name+" | ") {
			t.Errorf("docs/versions.md has no row for %q", c.name)
		}
	}
}

// skew is a pair of sites whose programs are of two versions.
type skew struct {
	*sites
	older, newer program
}

// run ends a site's gateway, if it runs, and starts it with a program.
func (s *skew) run(x *site, p program, sig syscall.Signal) {
	s.t.Helper()
	if x.proc != nil {
		x.signal(sig)
		x.waitEnd()
	}
	x.bin = p.path
	x.launch()
	x.waitReady()
}

// pair starts both, each with its program, and has right join left, if both are the older one's.
func (s *skew) pair(left, right program) {
	s.t.Helper()
	s.run(s.left, left, 0)
	s.run(s.right, right, 0)
	s.enrol(s.left, s.right)
	s.offerBack(s.left, s.right)
	s.works("enrolled")
}

// works waits for what the peers may do with each other, both ways, and checks that nothing
// of what was agreed is lost.
func (s *skew) works(when string) {
	s.t.Helper()
	s.t.Logf("%s: left is %s, right %s", when, s.versionOf(s.left), s.versionOf(s.right))
	for _, x := range s.both() {
		openStream(within(s.t, patience), s.t, x, s.other(x)).close()
		x.waitConnected(s.other(x).name)
		list := x.status().Peers
		if len(list) != 1 {
			s.t.Fatalf("%s: %s has %d peers, want 1", when, x.name, len(list))
		}
		want := []string{streamService}
		if x == s.left {
			want = []string{"auth", streamService}
		}
		if got := slices.Sorted(slices.Values(list[0].Allow)); !slices.Equal(got, want) {
			s.t.Errorf("%s: %s allows its peer %v, want %v", when, x.name, got, want)
		}
	}
}

func (s *skew) versionOf(x *site) string {
	if x.bin == s.older.path {
		return s.older.version
	}
	return s.newer.version
}

func (s *skew) newerJoins() { s.pair(s.older, s.newer) }

// olderJoins: it is told which side to upgrade, and the ticket is good once that is done.
func (s *skew) olderJoins() {
	s.run(s.left, s.newer, 0)
	s.run(s.right, s.older, 0)
	ticket := s.left.invite("--allow", "auth,"+streamService)
	join := []string{"join", ticket, "--allow", streamService, "--local", streamService + "=" + streamLocal}
	if r := s.right.postern(within(s.t, patience), join...); r.code == 0 || !strings.Contains(r.stderr, "pgrade") {
		s.t.Errorf("join ended with %d and says %q, want that this side is to be upgraded", r.code, r.stderr)
	}
	s.run(s.right, s.newer, syscall.SIGTERM)
	s.right.must(join...)
	s.offerBack(s.left, s.right)
	s.works("joined after an upgrade")
}

func (s *skew) ticketIsKept() {
	s.run(s.left, s.older, 0)
	ticket := s.left.invite("--allow", "auth,"+streamService)
	s.run(s.left, s.newer, syscall.SIGKILL)
	s.run(s.right, s.newer, 0)
	s.right.must("join", ticket, "--allow", streamService, "--local", streamService+"="+streamLocal)
	s.offerBack(s.left, s.right)
	s.works("joined by a ticket of before the upgrade")
	if r := s.right.postern(within(s.t, patience), "join", ticket, "--name", "again"); r.code == 0 {
		s.t.Errorf("the ticket was good twice: %s", r.stdout)
	}
}

func (s *skew) removedStaysRemoved() {
	s.pair(s.older, s.older)
	s.left.must("peer", "remove", s.right.name)
	for _, p := range []program{s.newer, s.older, s.newer} {
		s.run(s.left, p, syscall.SIGKILL)
		if list := s.left.status().Peers; len(list) != 0 {
			s.t.Fatalf("with %s the peer that was removed is there again: %+v", p.version, list)
		}
	}
}

// paths plays with either side being the newer one.
func (s *skew) paths() {
	s.pair(s.older, s.older)
	for _, newer := range s.both() {
		s.run(s.other(newer), s.older, syscall.SIGTERM)
		s.run(newer, s.newer, syscall.SIGTERM)
		s.awaitPath(api.PathDirect, patience)
		s.works("direct")
		traffic := openStream(within(s.t, patience), s.t, s.right, s.left)
		filter := s.core.Drop(direct(s.left, s.right), direct(s.right, s.left))
		s.awaitPath(api.PathRelay, patience)
		filter.Remove()
		s.awaitPath(api.PathDirect, patience)
		if err := traffic.flows(within(s.t, patience)); err != nil {
			s.t.Error(err)
		}
		traffic.close()
		s.works("relayed, and direct again")
		for _, x := range s.both() {
			ctx := within(s.t, patience)
			eventually(ctx, s.t, "check finds no fault at "+x.name, func() (bool, string) {
				r := x.postern(ctx, "check")
				return r.code == 0, r.stdout + r.stderr
			})
		}
	}
}

func (s *skew) rotation() {
	s.pair(s.older, s.older)
	for _, newer := range s.both() {
		s.run(s.other(newer), s.older, syscall.SIGTERM)
		s.run(newer, s.newer, syscall.SIGTERM)
		s.works("before")
		for _, x := range s.both() {
			before := x.status().Gateway.PublicKey
			x.must("key", "rotate")
			x.waitReady()
			if now := x.status().Gateway.PublicKey; now == before {
				s.t.Errorf("%s (%s) still has the key %s", x.name, s.versionOf(x), now)
			}
			s.works(x.name + " has another key")
		}
	}
}

// rounds are SKEW_ROUNDS steps, each of which replaces one gateway's program or restarts it.
func (s *skew) rounds() {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("SKEW_ROUNDS"), "6"))
	if err != nil {
		s.t.Fatalf("SKEW_ROUNDS: %v", err)
	}
	seed := uint64(time.Now().UnixNano())
	s.t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s.pair(s.older, s.older)
	for i := range n {
		x := s.both()[random.IntN(2)]
		p := []program{s.older, s.newer}[random.IntN(2)]
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[random.IntN(2)]
		s.run(x, p, sig)
		s.works(fmt.Sprintf("round %d, after %v at %s", i+1, sig, x.name))
	}
}
