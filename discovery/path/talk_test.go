package path

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name  string
		after Message
		taken bool
	}{
		{"the next", Message{Version: "1.0", Boot: 5, Seq: 8}, true},
		{"a newer minor version", Message{Version: "1.7", Boot: 5, Seq: 8}, true},
		{"another major version", Message{Version: "2.0", Boot: 5, Seq: 8}, false},
		{"no version", Message{Boot: 5, Seq: 8}, false},
		{"the same again", Message{Version: "1.0", Boot: 5, Seq: 7}, false},
		{"an overtaken one", Message{Version: "1.0", Boot: 5, Seq: 6}, false},
		{"after a restart", Message{Version: "1.0", Boot: 6, Seq: 1}, true},
		{"after a restart that lost the state", Message{Version: "1.0", Boot: 4, Seq: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, true)
			b.m.Receive(b.now, Message{Version: "1.0", Boot: 5, Seq: 7, Candidates: []Candidate{{direct1, SourceHost}}})
			c.after.Candidates = []Candidate{{direct2, SourceHost}}
			b.m.Receive(b.now, c.after)
			if got := b.status(to(direct2)).Source == SourceHost; got != c.taken {
				t.Errorf("taken %v, want %v", got, c.taken)
			}
		})
	}
}

func TestTheMessageOnTheWire(t *testing.T) {
	m := Message{
		Version: "1.0", Boot: 3, Seq: 9, Candidates: []Candidate{{direct1, SourceSTUN}},
		NAT:   NAT{Mapping: "endpoint-independent", Strays: StraysDropped},
		Punch: &Punch{Session: 7, Step: StepPropose, Attempt: 1, Opened: true, From: []netip.AddrPort{direct1}},
	}
	got, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":"1.0","boot":3,"seq":9,"candidates":[{"address":"203.0.113.1:51820","source":"stun"}],` +
		`"nat":{"mapping":"endpoint-independent","strays":"drops"},` +
		`"punch":{"session":7,"step":"propose","attempt":1,"opened":true,"from":["203.0.113.1:51820"]}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTheStateIsToldOncePerChange(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)] = 20 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.m.SetLocal(b.now, Local{Candidates: []Candidate{{direct2, SourceHost}}})
	b.run(time.Second)
	if len(b.told) != 1 || len(b.told[0].Candidates) != 1 {
		t.Fatalf("told %+v, want the state once there is a path", b.told)
	}
	b.m.Receive(b.now, Message{Version: "1.0", Boot: 1, Seq: 1})
	b.run(10 * time.Minute)
	if len(b.told) != 2 {
		t.Errorf("told %d times, want once more for a peer that was heard first", len(b.told))
	}
	b.m.SetLocal(b.now, Local{Candidates: []Candidate{{direct1, SourceHost}}})
	b.run(time.Second)
	if len(b.told) != 3 {
		t.Errorf("told %d times, want once more for the change", len(b.told))
	}
}

// A machine with more addresses than peers read sends only the first of them.
func TestNoMoreIsToldThanIsLookedAt(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)] = 20 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	var many []Candidate
	for i := range 3 * MaxCandidates {
		many = append(many, Candidate{netip.AddrPortFrom(direct2.Addr(), uint16(1000+i)), SourceHost})
	}
	b.m.SetLocal(b.now, Local{Candidates: many})
	b.run(time.Second)
	if len(b.told) != 1 || !slices.Equal(b.told[0].Candidates, many[:MaxCandidates]) {
		t.Errorf("told %+v, want the first %d", b.told, MaxCandidates)
	}
}

// A peer that has heard several later starts cannot tell this one's probes from a replay, and
// refuses them. The tunnel works, so the peer is told in-band which start this is.
func TestTheStateIsToldThroughATunnelWithoutAPath(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)] = 20 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.run(5 * time.Second)
	delete(b.rtt, to(direct1))
	b.run(time.Minute)
	if s := b.status(to(direct1)).State; s != Failed {
		t.Fatalf("the path is %v, want failed", s)
	}
	told := len(b.told)
	b.m.HandshakeDone(b.now, to(direct1))
	b.run(time.Minute)
	if len(b.told) != told+1 {
		t.Errorf("told %d times after a handshake, want once", len(b.told)-told)
	}
}
