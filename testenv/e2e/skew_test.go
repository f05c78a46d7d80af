//go:build linux && e2e

package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// program is a postern of some version.
type program struct{ version, path string }

// olderPrograms returns the programs in POSTERN_OLDER: VERSION=PATH, separated by spaces.
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

// skews are what gateways of this version and of an earlier one must do together: rows of the
// table in docs/versions.md.
var skews = []struct {
	name, outcome string
	play          func(*testing.T, program)
}{
	{"a ticket of the older version, used by the newer", "works", betweenNATs((*skew).newerJoins)},
	{"a ticket of the newer version, used by the older", `refused: "upgrade"; the ticket stays valid, and works after the joiner's upgrade`, betweenNATs((*skew).olderJoins)},
	{"an open ticket, through an upgrade of its inviter", "works, once", betweenNATs((*skew).ticketIsKept)},
	{"a removed peer, through upgrade and rollback", "stays removed", betweenNATs((*skew).removedStaysRemoved)},
	{"both directions through NATs, over a relay, and back", "works, whichever is newer; without traffic a dead path is noticed as slowly as by the older version (30 s)", betweenNATs((*skew).paths)},
	{"each of the 21 pairs of NATs", "direct or over the relay, [as between gateways of one version](../discovery/path/README.md)", skewedNATs},
	{"identity and API server outside the tunnel", "works, whichever is newer", skewedOutside},
	{"services of clusters, which the older version does not know", "left out until it is upgraded; `check` names that gateway and what it lacks (PST0912)", skewedServices},
	{"key rotation on either side", "works", betweenNATs((*skew).rotation)},
	{"upgrade, rollback and kill -9, in any order", "nothing is lost: peers, grants, keys", betweenNATs((*skew).rounds)},
}

// betweenNATs plays with two sites behind NATs.
func betweenNATs(play func(*skew)) func(*testing.T, program) {
	return func(t *testing.T, older program) {
		t.Helper()
		s := &skew{sites: newSites(t, portRestricted, portRestricted, ways{}), older: older}
		s.newer = program{"this version", s.left.bin}
		s.agreed = agreement{allow: "auth," + streamService}
		defer s.report()
		play(s)
	}
}

// skewRounds returns how many upgrades and rollbacks to play, and whether to play everything:
// SKEW_ROUNDS, or a few rounds and only the quick parts.
func skewRounds(t *testing.T) (n int, all bool) {
	t.Helper()
	text := os.Getenv("SKEW_ROUNDS")
	n, err := strconv.Atoi(cmp.Or(text, "6"))
	if err != nil {
		t.Fatalf("SKEW_ROUNDS: %v", err)
	}
	return n, text != ""
}

// TestSkew has gateways of this version meet those of earlier ones. The results are the table in
// docs/versions.md, which -update writes.
func TestSkew(t *testing.T) {
	older := olderPrograms(t)
	var mu sync.Mutex
	passed := make(map[[2]string]bool)
	t.Run("versions", func(t *testing.T) {
		for _, p := range older {
			for _, c := range skews {
				t.Run(p.version+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						passed[[2]string{c.name, p.version}] = !t.Failed()
					}()
					c.play(t, p)
				})
			}
		}
	})
	if len(passed) < len(older)*len(skews) {
		return // -run left some out
	}
	var versions []string
	for _, p := range older {
		versions = append(versions, p.version)
	}
	compareSkewTable(t, versions, func(name, version string) bool { return passed[[2]string{name, version}] })
}

// TestSkewTable compares the table in the docs with what TestSkew expects of its versions.
func TestSkewTable(t *testing.T) {
	page, err := os.ReadFile(skewPage)
	if err != nil {
		t.Fatal(err)
	}
	header := skewHeader.FindSubmatch(page)
	if header == nil {
		t.Fatalf("%s has no table of versions", skewPage)
	}
	compareSkewTable(t, strings.Split(string(header[1]), " | "), func(string, string) bool { return true })
}

var updateSkew = flag.Bool("update", false, "write the table of docs/versions.md as it was played")

const skewPage = "../../docs/versions.md"

// skewHeader matches the first line of the table.
var skewHeader = regexp.MustCompile(`(?m)^\| \| (v.*) \|$`)

// skewTable matches all its lines.
var skewTable = regexp.MustCompile(`(?m)^\| \| v.*\n(?:\|.*\n)+`)

// compareSkewTable builds the table of what was played, and compares or writes it.
func compareSkewTable(t *testing.T, versions []string, well func(name, version string) bool) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---%s|\n", strings.Join(versions, " | "), strings.Repeat("|---", len(versions)))
	for _, c := range skews {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, v := range versions {
			outcome := c.outcome
			if !well(c.name, v) {
				outcome = "**fails**"
			}
			fmt.Fprintf(&b, " %s |", outcome)
		}
		b.WriteString("\n")
	}
	page, err := os.ReadFile(skewPage)
	if err != nil {
		t.Fatal(err)
	}
	if got := skewTable.Find(page); string(got) == b.String() {
		return
	} else if !*updateSkew {
		t.Errorf("%s has\n%s\nwant (-update writes it)\n%s", skewPage, got, b.String())
		return
	}
	if err := os.WriteFile(skewPage, skewTable.ReplaceAllLiteral(page, []byte(b.String())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// skewedNATs are pairs of NATs with the older program at either side in turn. Unless everything
// is played, there is one pair for each way to connect.
func skewedNATs(t *testing.T, older program) {
	_, all := skewRounds(t)
	played := make(map[way]bool)
	for i, p := range conformance() {
		if !all && played[p.way] {
			continue
		}
		played[p.way] = true
		t.Run(p.name(), func(t *testing.T) {
			s := newSites(t, p.left, p.right, ways{})
			defer s.report()
			old := s.both()[i%2]
			old.bin = older.path
			s.start()
			s.enrol(old, s.other(old)) // an older gateway cannot read a newer ticket
			t.Logf("%s is %s; %s after %v", old.name, older.version, p.kind(), s.awaitPath(p.kind(), patience).Round(10*time.Millisecond))
			openStream(within(t, patience), t, s.other(old), old).close()
		})
	}
}

// skewedOutside makes either side the older one, with its token, identity and API server outside
// the tunnel.
func skewedOutside(t *testing.T, older program) {
	for _, name := range []string{"cloud", "edge"} {
		t.Run(name+" is the older one", func(t *testing.T) {
			d := newDirect(t, false)
			if name == "edge" {
				d.edge.bin = older.path
			} else {
				d.cloud.stop(syscall.SIGTERM)
				d.cloud.bin = older.path
				d.cloud.start()
			}
			d.give(strings.TrimSpace(d.cloud.must("peer", "token", "edge")))
			d.edge.start()
			d.edge.waitPeer("cloud", "identity and API server outside the tunnel", func(p api.PeerStatus) bool {
				out := p.Reachability.Outbound
				return p.Identity != nil && out.Auth.Verdict == api.OK && out.APIServer.Verdict == api.OK && out.APIServer.Via == "direct"
			})
			d.kubectl(t)
		})
	}
}

// skewedServices: the newer one says what the older one lacks, until that is upgraded.
func skewedServices(t *testing.T, older program) {
	f := newFaultLab(t, plain(func(f *faultLab) { f.left.other.Services = &api.PeerServices{Import: []string{"shop"}} }))
	newer := f.right.bin
	f.right.bin = older.path
	f.run(true)
	f.left.finds(own("PST0912", "services").because("right takes no part", "it runs postern").until("upgrade the gateway of right"))
	f.right.bin = newer
	f.right.restartWith(func(*api.GatewaySpec) {})
	f.healed()
}

// skew is a pair of sites with programs of two versions.
type skew struct {
	*sites
	older, newer program
	agreed       agreement
}

// run ends a site's gateway, if it runs, and starts it with a program.
func (s *skew) run(x *site, p program, sig syscall.Signal) {
	s.t.Helper()
	if x.proc != nil {
		_ = x.proc.Signal(sig) // it may already have been signalled
		x.waitEnd()
	}
	x.bin = p.path
	x.launch()
	x.waitReady()
}

// pair starts left and right, each with its program, and makes right join left.
func (s *skew) pair(left, right program) {
	s.t.Helper()
	s.run(s.left, left, 0)
	s.run(s.right, right, 0)
	s.enrol(s.left, s.right)
	s.offerBack(s.left, s.right)
	s.works("enrolled")
}

// works waits for what the peers may do with each other, in both directions, and checks that
// nothing that was agreed is lost.
func (s *skew) works(when string) {
	s.t.Helper()
	s.t.Logf("%s: left is %s, right %s", when, s.versionOf(s.left), s.versionOf(s.right))
	for _, x := range s.both() {
		openStream(within(s.t, patience), s.t, x, s.other(x)).close()
		x.waitConnected(s.other(x).name)
	}
	if got := s.left.agreement(s.right.name); got != s.agreed {
		s.t.Errorf("%s: left has %+v, want %+v", when, got, s.agreed)
	}
	if got := s.right.agreement(s.left.name); got != (agreement{allow: streamService}) {
		s.t.Errorf("%s: right has %+v", when, got)
	}
}

func (s *skew) versionOf(x *site) string {
	if x.bin == s.older.path {
		return s.older.version
	}
	return s.newer.version
}

func (s *skew) newerJoins() { s.pair(s.older, s.newer) }

// olderJoins: the join says which side to upgrade, and the ticket is valid once that is done.
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

// paths plays with each side as the newer one.
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
			x.waitRekeyed(before)
			x.waitReady()
			s.works(x.name + " has another key")
		}
	}
}

// ghost is a peer that is added and removed by command; nobody has its key.
const ghost = "ghost"

// rounds plays SKEW_ROUNDS steps. Each changes something by a command at left, and restarts one
// gateway with either program. If that is left, in half of the cases it is ended before the command
// is done. What a command has acknowledged must hold from then on.
func (s *skew) rounds() {
	n, _ := skewRounds(s.t)
	seed := uint64(time.Now().UnixNano())
	s.t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s.pair(s.older, s.older)
	key, err := peer.NewPrivateKey()
	if err != nil {
		s.t.Fatal(err)
	}
	changes := [][]string{
		{"peer", "allow", s.right.name, streamService},
		{"peer", "allow", s.right.name, "auth," + streamService},
		{"peer", "add", ghost, "--public-key", key.Public().String()},
		{"peer", "remove", ghost},
	}
	sure := 0
	for i := range n {
		before, change := s.agreed, changes[random.IntN(len(changes))]
		x := s.both()[random.IntN(2)]
		p := []program{s.older, s.newer}[random.IntN(2)]
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[random.IntN(2)]
		args := append([]string{s.left.bin, change[0], "--socket", s.left.socket()}, change[1:]...)
		command, err := netlab.Start(netlab.Command{Namespace: s.left.host.Namespace(), Args: args})
		if err != nil {
			s.t.Fatal(err)
		}
		if x == s.left && random.IntN(2) == 0 {
			<-time.After(time.Duration(random.IntN(30)) * time.Millisecond) // when during the command the signal arrives
			s.left.signal(sig)
		}
		code, err := command.Wait(within(s.t, patience))
		if err != nil {
			s.t.Fatal(err)
		}
		after := before.with(change)
		if code == 0 {
			before = after
			sure++
		}
		s.run(x, p, sig)
		switch got := s.left.agreement(s.right.name); got {
		case before, after: // an interrupted command may or may not have taken effect
			s.agreed = got
		default:
			s.t.Fatalf("round %d, %v at %s after %q, which ended with %d: %+v, want %+v", i+1, sig, x.name, change, code, got, before)
		}
		s.works(fmt.Sprintf("round %d, %v at %s after %q, which ended with %d", i+1, sig, x.name, change, code))
	}
	s.t.Logf("of %d commands %d were acknowledged", n, sure)
}

// agreement is what left's operator has configured.
type agreement struct {
	allow string // what right may reach, sorted
	ghost bool
}

func (a agreement) with(change []string) agreement {
	switch change[1] {
	case "allow":
		a.allow = change[3]
	case "add":
		a.ghost = true
	case "remove":
		a.ghost = false
	}
	return a
}

func (x *site) agreement(name string) agreement {
	x.t.Helper()
	var a agreement
	for _, p := range x.status().Peers {
		switch p.Name {
		case name:
			a.allow = strings.Join(slices.Sorted(slices.Values(p.Allow)), ",")
		case ghost:
			a.ghost = true
		}
	}
	return a
}
