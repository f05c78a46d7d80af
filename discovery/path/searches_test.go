package path_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// roundTakes is how long one round through all ports takes at 4,000 a second.
const roundTakes = 4100 * time.Millisecond

// seeker is a machine whose relay to its peer was restarted.
type seeker struct {
	*path.Machine
	next  time.Time
	gone  bool // nobody polls it any more
	asked int
	began []time.Time // the start of each round
}

// seekers returns n machines that share their searches.
func seekers(now time.Time, n int) []*seeker {
	relay := netip.MustParseAddr("192.0.2.1")
	shared := new(path.Searches)
	all := make([]*seeker, n)
	for i := range all {
		m := path.New(path.Options{Low: i%2 == 0, Searches: shared})
		remote := netip.AddrPortFrom(relay, uint16(50000+i))
		own := func(via string, port uint16) path.Local {
			return path.Local{Relays: []path.Relay{{Via: via, Addr: netip.AddrPortFrom(relay, port), Server: "turn.example.net:3478"}}}
		}
		m.SetLocal(now, own("before", 60000))
		m.SetRemote(now, []path.Candidate{{Addr: remote, Source: path.SourceRelay}}, false)
		m.HandshakeDone(now, peer.Path{Via: "before", Remote: remote})
		m.Poll(now)
		m.SetLocal(now, path.Local{})
		m.SetLocal(now, own("after", 60001))
		all[i] = &seeker{Machine: m, next: now}
	}
	return all
}

// run polls the machines when they are due, and counts their probes per second.
func run(all []*seeker, from time.Time, d time.Duration) (perSecond []int) {
	perSecond = make([]int, d/time.Second+1)
	for now := from; now.Sub(from) < d; now = now.Add(time.Millisecond) {
		for _, s := range all {
			if s.gone || s.next.After(now) {
				continue
			}
			var a path.Actions
			a, s.next = s.Poll(now)
			for _, p := range a.Probes {
				if p.ID != 0 {
					s.Sent(now, p.ID, [12]byte{}, fmt.Errorf("no network"))
					continue
				}
				if s.asked%16383 == 0 {
					s.began = append(s.began, now)
				}
				s.asked++
				perSecond[now.Sub(from)/time.Second]++
			}
		}
	}
	return perSecond
}

func TestSearchesTakeTurns(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	const n = 12
	all := seekers(began, n)
	for second, asked := range run(all, began, 3*n*roundTakes) {
		if asked > 4100 {
			t.Errorf("%d ports asked in second %d, want at most 4,100", asked, second)
		}
	}
	for i, s := range all {
		if len(s.began) < 2 {
			t.Fatalf("machine %d began %d rounds, want two", i, len(s.began))
		}
		first, second := s.began[0].Sub(began), s.began[1].Sub(s.began[0])
		if first > n*(roundTakes+time.Second) || second > (n+1)*(roundTakes+time.Second) {
			t.Errorf("machine %d began after %v, and its second round %v later", i, first, second)
		}
		if i > 0 && (s.began[0].Before(all[i-1].began[0]) || all[i-1].began[1].Before(s.began[0])) {
			t.Errorf("machine %d had its first turn at %v and the one before it at %v and %v", i, s.began[0], all[i-1].began[0], all[i-1].began[1])
		}
	}
}

// A machine that is no longer polled, or that has found its peer, does not block others.
func TestATurnEndsWithItsMachine(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(s *seeker, now time.Time)
		within time.Duration
	}{
		{"gone", func(s *seeker, _ time.Time) { s.gone = true }, 20 * time.Second},
		{"found", func(s *seeker, now time.Time) {
			s.HandshakeDone(now, peer.Path{Via: "after", Remote: netip.MustParseAddrPort("192.0.2.1:55555")})
			s.next = now
		}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			all := seekers(now, 2)
			run(all, now, time.Second)
			now = now.Add(time.Second)
			if len(all[0].began) != 1 || len(all[1].began) != 0 {
				t.Fatalf("the first has begun %d rounds and the second %d, want 1 and 0", len(all[0].began), len(all[1].began))
			}
			asked := all[0].asked
			c.end(all[0], now)
			run(all, now, c.within)
			if len(all[1].began) == 0 {
				t.Errorf("the second waits still after %v", c.within)
			}
			if all[0].asked != asked {
				t.Errorf("the first asked %d more ports", all[0].asked-asked)
			}
		})
	}
}
