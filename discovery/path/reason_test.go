package path

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestWhyThereIsNoPathYet(t *testing.T) {
	reason := func(b *bench, want string) {
		b.t.Helper()
		if s := b.m.Snapshot(); !strings.Contains(s.Reason, want) {
			b.t.Errorf("got %q, want %q in it", s.Reason, want)
		}
	}
	b := newBench(t, true)
	reason(b, "no candidate is known yet")
	given(b, Candidate{direct1, SourceHost}, Candidate{direct2, SourceHost})
	b.run(time.Second)
	reason(b, "trying 2 addresses, and no probe is answered yet")
	b.run(time.Minute)
	for range 100 {
		if b.status(to(direct1)).State == Failed && b.status(to(direct2)).State == Failed {
			break
		}
		b.run(time.Second)
	}
	at := b.m.Snapshot().NextTry.UTC().Format("15:04:05")
	reason(b, "none of 2 addresses answers; tried again at "+at)

	b = newBench(t, true)
	b.m.SetLocal(b.now, Local{Hosts: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Relays: []Relay{{Via: "relay-1", Addr: relay1}}})
	given(b, Candidate{direct1, SourceSTUN})
	b.poll()
	b.m.pairs = b.m.pairs[:1] // without the relayed path, which is tried at once
	reason(b, "1 address known and not tried yet: both sides are behind NATs: waits until coordinated over the relay")

	b = newBench(t, true)
	b.rtt[to(direct1)] = 10 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.run(time.Second)
	reason(b, "the best that answered")
	delete(b.rtt, to(direct1))
	b.run(time.Minute)
	reason(b, "the last path, "+direct1.String()+", failed")
}

func TestReasonsNameARelayByItsServer(t *testing.T) {
	b := newBench(t, true)
	over := peer.Path{Via: "relay-7", Remote: direct1}
	b.m.SetLocal(b.now, Local{Relays: []Relay{{Via: "relay-7", Addr: relay1, Server: "turn.example.net:3478"}}})
	b.rtt[over] = 20 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.run(5 * time.Second)
	b.m.SetLocal(b.now, Local{}) // the allocation is gone
	b.poll()
	s := b.m.Snapshot()
	if want := "the last path, 203.0.113.1:51820 via turn.example.net:3478, failed"; !strings.Contains(s.Reason, want) {
		t.Errorf("got %q, want %q in it", s.Reason, want)
	}
	if len(s.History) == 0 {
		t.Error("there is no history")
	}
	for _, n := range s.History {
		if strings.Contains(n.Event+n.Reason, "relay-7") {
			t.Errorf("a note has the allocation's name: %s: %s", n.Event, n.Reason)
		}
	}
}

func TestAnUnknownNeighbourOfOurAllocationIsRelayed(t *testing.T) {
	near := netip.AddrPortFrom(relay1.Addr(), 50077) // the peer's allocation, which it has not announced
	b := newBench(t, true)
	b.m.SetLocal(b.now, Local{Relays: []Relay{{Via: "relay-1", Addr: relay1}}})
	for from, want := range map[netip.AddrPort]string{near: KindRelay, direct1: KindDirect} {
		p := b.m.reflexive(peer.Path{Remote: from})
		if got := p.class == classRelayed; got != (want == KindRelay) {
			t.Errorf("%v is %v, want a path of the kind %s", from, p.class, want)
		}
	}
	b.m.SetRemote(b.now, []Candidate{{near, SourceAdvertised}}, true)
	if p := b.m.find(to(near)); p.class != classDirect {
		t.Errorf("an announced address beside our allocation is %v, want what its source says", p.class)
	}
}

// A doubt makes an idle path be probed at once. From then on the time counts, even if the tunnel
// falls silent as well.
func TestADoubtHasAnIdlePathProbed(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)] = 10 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.run(2 * time.Minute)
	b.m.Doubt(b.now)
	b.run(time.Second)
	if s := b.m.Snapshot(); b.now.Sub(s.Proven) > time.Second || !s.Unanswered.IsZero() {
		t.Errorf("the path was proven %s ago, unanswered since %s", b.now.Sub(s.Proven), s.Unanswered)
	}
	delete(b.rtt, to(direct1))
	since := b.now
	b.m.Doubt(b.now)
	b.run(3 * time.Second)
	b.m.Doubt(b.now)
	b.m.Silent(b.now)
	b.run(time.Second)
	if s := b.m.Snapshot(); s.Unanswered.IsZero() || s.Unanswered.Sub(since).Abs() > time.Second {
		t.Errorf("unanswered since %s, the path was cut at %s", s.Unanswered, since)
	}
	b.run(giveUpAfter - 3*time.Second)
	if s := b.m.Snapshot(); s.Selected.IsValid() {
		t.Errorf("the path is still in use %s after it was cut", b.now.Sub(since))
	}
}

// If the tunnel works without a path, all that failed is probed at once, and nothing else is changed.
func TestAWorkingTunnelWithoutAPathHasItProbed(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)] = 10 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.run(time.Minute)
	delete(b.rtt, to(direct1))
	b.m.Doubt(b.now)
	b.run(2 * time.Minute)
	if s := b.m.Snapshot(); s.Selected.IsValid() || s.Candidates[0].State != Failed {
		t.Fatalf("the path is %s", s.Candidates[0].State)
	}
	since := b.now
	b.m.Reprobe(b.now)
	b.run(2 * time.Second)
	if s := b.m.Snapshot(); s.Candidates[0].Asked.Before(since) || s.Selected.IsValid() {
		t.Errorf("last probed at %s, asked at %s", s.Candidates[0].Asked, since)
	}
	b.rtt[to(direct1)] = 10 * time.Millisecond
	b.m.Reprobe(b.now)
	b.run(time.Second)
	if s := b.m.Snapshot(); !s.Selected.IsValid() {
		t.Errorf("the path is not found again: %s", s.Candidates[0].Reason)
	}
}
