package path

import (
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// A peer may announce ever new addresses, answer at each of them, and withdraw them.
func TestWithdrawnPathsThatWorkAreCapped(t *testing.T) {
	for name, idle := range map[string][]bool{"with traffic": nil, "idle": {true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, true)
			port := uint16(1000)
			most := 0
			for seq := range uint64(15) {
				var cs []Candidate
				for _, source := range []string{SourceHost, SourceAdvertised, SourceDNS, SourcePortmap} {
					for range maxPerSource {
						port++
						a := netip.AddrPortFrom(direct1.Addr(), port)
						cs = append(cs, Candidate{a, source})
						b.rtt[peer.Path{Remote: a}] = 10 * time.Millisecond
					}
				}
				b.m.Receive(b.now, Message{Version: MessageVersion, Boot: 1, Seq: seq + 1, Candidates: cs})
				b.run(5*time.Second, idle...)
				most = max(most, len(b.m.pairs))
			}
			if bound := 2*maxPerSource*len(sourceOrder) + maxReflexive; most > bound {
				t.Errorf("%d pairs, want at most %d", most, bound)
			}
			b.run(2*linger, idle...)
			if bound := 4*maxPerSource + maxReflexive; len(b.m.pairs) > bound {
				t.Errorf("%d pairs in the end, want at most %d", len(b.m.pairs), bound)
			}
			if b.m.sel == nil {
				t.Error("no path is selected")
			}
		})
	}
}
