//go:build linux && e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// way is how two gateways must connect: directly, directly by ordered punching after meeting over
// the relay, or permanently over the relay.
type way string

const (
	wayDirect  way = "D"
	wayPunched way = "P"
	wayRelayed way = "R"
)

// Limits of the conformance table, from the start of `join` at one side until both sides' status
// says connected with the table's kind of path.
const (
	directWithin  = 3 * time.Second
	punchWithin   = 10 * time.Second // if the first punch succeeds
	retryWithin   = 60 * time.Second // with one retry
	relayedWithin = 5 * time.Second
	relayedStill  = 60 * time.Second // how long after a relayed pair is checked again
)

// pairsAtOnce leaves each pair enough of a small machine for measurements.
const pairsAtOnce = 2

// conformance returns the table of discovery/path/README.md.
func conformance() (pairs []conformancePair) {
	kinds := []access{dial, fullCone, addrRestricted, portRestricted, straying, symmetric}
	punched := [][2]access{{portRestricted, straying}, {straying, straying}}
	relayed := [][2]access{{portRestricted, symmetric}, {straying, symmetric}, {symmetric, symmetric}}
	for i, a := range kinds {
		for _, b := range kinds[i:] {
			p := conformancePair{left: a, right: b, way: wayDirect}
			if slices.Contains(punched, [2]access{a, b}) {
				p.way = wayPunched
			}
			if slices.Contains(relayed, [2]access{a, b}) {
				p.way = wayRelayed
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

type conformancePair struct {
	left, right access
	way         way
}

func (p conformancePair) name() string { return p.left.name + " and " + p.right.name }

func (p conformancePair) kind() string {
	if p.way == wayRelayed {
		return api.PathRelay
	}
	return api.PathDirect
}

func (p conformancePair) limit() time.Duration {
	switch p.way {
	case wayRelayed:
		return relayedWithin
	case wayPunched:
		return retryWithin
	default:
		return directWithin
	}
}

// conformanceRow is the measurement of a pair.
type conformanceRow struct {
	pair conformancePair
	// join is how long the command took, reached how long from its start until the path was as
	// required.
	join, reached time.Duration
	gap           time.Duration // of the concurrent stream
}

// TestConformanceTable connects every pair of NAT kinds by a ticket, with the sides inviting in
// turn, and a stream that runs as soon as there is any path.
func TestConformanceTable(t *testing.T) {
	pairs := conformance()
	if len(pairs) != 21 {
		t.Fatalf("the table has %d pairs, want 21", len(pairs))
	}
	turns := make(chan struct{}, pairsAtOnce)
	var mu sync.Mutex
	rows := make([]*conformanceRow, len(pairs))
	t.Run("pairs", func(t *testing.T) {
		for i, p := range pairs {
			t.Run(p.name(), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				onTime(t, func(late lateness) {
					row := p.play(t, i%2 == 1, late)
					mu.Lock()
					defer mu.Unlock()
					rows[i] = &row
				})
			})
		}
	})
	t.Log("from the start of join until both sides say so; the stream ran from the first path on\n" + conformanceTable(rows))
}

// play connects a pair.
func (p conformancePair) play(t *testing.T, rightInvites bool, late lateness) conformanceRow {
	t.Helper()
	s := newSites(t, p.left, p.right, ways{})
	s.start()
	inviter, joiner := s.left, s.right
	if rightInvites {
		inviter, joiner = s.right, s.left
	}
	row := conformanceRow{pair: p}
	start := time.Now()
	row.join = s.enrol(inviter, joiner)
	traffic := openStream(within(t, patience), t, joiner, inviter)
	traffic.late = late
	s.awaitPath(p.kind(), patience)
	row.reached = time.Since(start)
	late(fmt.Sprintf("left: %s\nright: %s\n%s reached", s.describe(s.left), s.describe(s.right), p.way), row.reached, p.limit())
	// An upgrade from the relay must not stall running traffic.
	row.gap = traffic.check(upgradeWithin)
	return row
}

// describe returns a side's status of the other.
func (s *sites) describe(x *site) string {
	p, _ := x.peer(s.other(x).name)
	return describe(p)
}

func conformanceTable(rows []*conformanceRow) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%-32s %-32s %-4s %8s %8s %8s\n", "", "", "way", "join", "reached", "gap")
	for _, r := range rows {
		if r == nil {
			continue
		}
		note := ""
		if r.pair.way == wayPunched && r.reached > punchWithin {
			note = "  after a retry"
		}
		fmt.Fprintf(b, "%-32s %-32s %-4s %7.2fs %7.2fs %7.2fs%s\n", r.pair.left.name, r.pair.right.name, r.pair.way,
			r.join.Seconds(), r.reached.Seconds(), r.gap.Seconds(), note)
	}
	return b.String()
}

// TestSymmetricPairsStayRelayed checks a relayed pair again after a minute.
func TestSymmetricPairsStayRelayed(t *testing.T) {
	t.Parallel()
	onTime(t, func(late lateness) {
		s := started(t, symmetric, symmetric, ways{})
		traffic := openStream(within(t, patience), t, s.right, s.left)
		traffic.late = late
		s.awaitPath(api.PathRelay, patience)
		traffic.mark()
		traffic.watch(relayedStill)
		s.awaitPath(api.PathRelay, patience)
		gap := traffic.check(upgradeWithin)
		t.Logf("relayed for %v, the stream never rested for more than %v", relayedStill, gap.Round(time.Millisecond))
	})
}
