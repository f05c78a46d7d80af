package path

import (
	"net/netip"
	"slices"
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

// A peer may announce ever new addresses. Each that our allocations are to admit costs a request to
// the relay, so new ones are admitted at a limited rate, and what works stays admitted.
func TestNewPermissionsAreLimited(t *testing.T) {
	b := newBench(t, true)
	works := netip.MustParseAddrPort("198.18.0.1:51820")
	b.rtt[to(works)] = 10 * time.Millisecond
	b.m.SetLocal(b.now, Local{Relays: []Relay{{Via: "relay", Addr: relay1, Server: "relay.example"}}})
	seen := map[netip.Addr]bool{}
	asked := 0
	last := netip.MustParseAddr("203.0.113.0")
	const minutes = 5
	for seq := range uint64(minutes * 60) {
		cs := []Candidate{{works, SourceAdvertised}}
		for range maxPerSource {
			last = last.Next()
			cs = append(cs, Candidate{netip.AddrPortFrom(last, 1000), SourceHost})
		}
		b.m.Receive(b.now, Message{Version: MessageVersion, Boot: 1, Seq: seq + 1, Candidates: cs})
		b.run(time.Second)
		now := map[netip.Addr]bool{}
		for _, a := range b.m.permit {
			now[a] = true
			if !seen[a] {
				asked++
			}
		}
		seen = now
		if !now[works.Addr()] {
			t.Fatalf("after %d messages the address that works is not admitted: %v", seq+1, b.m.permit)
		}
	}
	if most := maxPermitted + minutes*60/int(permitEvery/time.Second) + 1; asked > most {
		t.Errorf("%d addresses were to be admitted in %d min, want at most %d", asked, minutes, most)
	}
	if asked <= maxPermitted {
		t.Errorf("%d addresses were to be admitted: the test tests nothing", asked)
	}
	// Once the peer settles, all that it announces are admitted.
	var cs []Candidate
	for i := range maxPerSource {
		cs = append(cs, Candidate{netip.AddrPortFrom(direct1.Addr(), uint16(1000+i)), SourceHost}, Candidate{direct2, SourceDNS})
	}
	b.m.Receive(b.now, Message{Version: MessageVersion, Boot: 1, Seq: 1 << 20, Candidates: cs})
	b.run(2*permitEvery + time.Second)
	for _, a := range []netip.Addr{direct1.Addr(), direct2.Addr()} {
		if !slices.Contains(b.m.permit, a) {
			t.Errorf("%v is not admitted in the end: %v", a, b.m.permit)
		}
	}
}

// A relay that comes and goes, as that of a laptop between two networks does, is told all addresses
// at once each time: they are not new.
func TestARelayThatComesBackAdmitsTheSameAddresses(t *testing.T) {
	b := newBench(t, true)
	var cs []Candidate
	for i := range maxPerSource {
		cs = append(cs, Candidate{netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 1000), SourceHost})
	}
	b.m.Receive(b.now, Message{Version: MessageVersion, Boot: 1, Seq: 1, Candidates: cs})
	for n := range 2 * maxPermitted / maxPerSource {
		b.m.SetLocal(b.now, Local{Relays: []Relay{{Via: "relay", Addr: relay1, Server: "relay.example"}}})
		b.run(time.Second)
		if len(b.m.permit) != maxPerSource {
			t.Fatalf("the relay is there for the %d. time, and admits %v", n+1, b.m.permit)
		}
		b.m.SetLocal(b.now, Local{})
		b.run(time.Second)
	}
}
