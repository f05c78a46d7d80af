package path

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

var (
	epoch   = time.Unix(1_700_000_000, 0)
	direct1 = netip.MustParseAddrPort("203.0.113.1:51820")
	direct2 = netip.MustParseAddrPort("203.0.113.2:51820")
	lan1    = netip.MustParseAddrPort("192.168.1.9:51820")
	relay1  = netip.MustParseAddrPort("192.0.2.1:50000")
)

// bench drives a machine step by step: paths in rtt answer after their round trip, others do not
// answer.
type bench struct {
	t   *testing.T
	m   *Machine
	now time.Time
	rtt map[peer.Path]time.Duration

	tx      uint64
	answers []answer
	sent    []sentProbe
	last    Actions
	routing Routing
	told    []Message
	shakes  int
}

type answer struct {
	at   time.Time
	tx   stunwire.TxID
	path peer.Path
}

type sentProbe struct {
	after time.Duration // since epoch
	Probe
}

func newBench(t *testing.T, low bool) *bench {
	m := New(Options{Low: low, Rand: rand.New(rand.NewPCG(1, 2))})
	return &bench{t: t, m: m, now: epoch, rtt: make(map[peer.Path]time.Duration)}
}

func to(a netip.AddrPort) peer.Path { return peer.Path{Remote: a} }

// run lets time pass. Traffic flows unless idle is set.
func (b *bench) run(d time.Duration, idle ...bool) {
	end := b.now.Add(d)
	for {
		if len(idle) == 0 {
			b.m.Traffic(b.now)
		}
		next := b.poll()
		for _, a := range b.answers {
			if a.at.Before(next) {
				next = a.at
			}
		}
		if next.After(end) {
			b.now = end
			return
		}
		b.now = next
		b.answers = slices.DeleteFunc(b.answers, func(a answer) bool {
			if a.at.After(b.now) {
				return false
			}
			b.m.Answered(b.now, a.tx, a.path, direct2)
			return true
		})
	}
}

func (b *bench) poll() time.Time {
	a, next := b.m.Poll(b.now)
	for _, p := range a.Probes {
		b.tx++
		tx := stunwire.TxID{byte(b.tx), byte(b.tx >> 8), byte(b.tx >> 16)}
		b.sent = append(b.sent, sentProbe{b.now.Sub(epoch), p})
		b.m.Sent(b.now, p.ID, tx, nil)
		if rtt := b.rtt[p.Path]; rtt > 0 && p.TTL == 0 {
			b.answers = append(b.answers, answer{b.now.Add(rtt), tx, p.Path})
		}
	}
	if a.Routing != nil {
		b.routing = *a.Routing
	}
	if a.Handshake {
		b.shakes++
	}
	b.told = append(b.told, a.Messages...)
	b.last = a
	return next
}

func (b *bench) status(p peer.Path) PairStatus {
	for _, s := range b.m.Snapshot().Candidates {
		if s.Path == p {
			return s
		}
	}
	return PairStatus{Reason: "no such pair"}
}

func (b *bench) want(p peer.Path, state State, reason string) {
	b.t.Helper()
	if got := b.status(p); got.State != state || !strings.Contains(got.Reason, reason) {
		b.t.Errorf("%v is %v (%s), want %v with %q", p, got.State, got.Reason, state, reason)
	}
}

func given(b *bench, cs ...Candidate) { b.m.SetRemote(b.now, cs, false) }

func TestTheFirstRound(t *testing.T) {
	b := newBench(t, true)
	given(b, Candidate{direct1, SourceHost})
	b.run(9900 * time.Millisecond)
	var at []time.Duration
	for _, p := range b.sent {
		at = append(at, p.after)
	}
	if !slices.Equal(at, firstRound) {
		t.Errorf("probes at %v, want %v", at, firstRound)
	}
	b.run(200 * time.Millisecond)
	b.want(to(direct1), Failed, "no answer to 12 probes in 10 s")
	if next := b.m.Snapshot().NextTry; !next.After(b.now) || next.After(b.now.Add(2*time.Second)) {
		t.Errorf("next try in %v, want within 2 s", next.Sub(b.now))
	}
	b.run(time.Hour)
	if next := b.m.Snapshot().NextTry; next.After(b.now.Add(30 * time.Second)) {
		t.Errorf("after an hour the next try is in %v, want at most 30 s", next.Sub(b.now))
	}
	if got := b.routing.Initiate; len(got) != 1 {
		t.Errorf("initiations go to %v, want the endpoint never forgotten", got)
	}
}

func TestProbesArePaced(t *testing.T) {
	b := newBench(t, true)
	var cs []Candidate
	for i := range 40 {
		cs = append(cs, Candidate{netip.AddrPortFrom(direct1.Addr(), uint16(1000+i)), sourceOrder[i%6]})
	}
	given(b, cs...)
	b.run(time.Minute)
	for i := 1; i < len(b.sent); i++ {
		if gap := b.sent[i].after - b.sent[i-1].after; gap < pace {
			t.Fatalf("two probes %v apart, want at least %v", gap, pace)
		}
	}
}

func TestTheActivePathIsDistrusted(t *testing.T) {
	b := newBench(t, true)
	relayed := to(relay1)
	b.rtt[to(direct1)], b.rtt[relayed] = 20*time.Millisecond, 60*time.Millisecond
	given(b, Candidate{direct1, SourceHost}, Candidate{relay1, SourceRelay})
	b.run(time.Minute)
	b.want(to(direct1), Selected, "direct")
	b.want(relayed, Valid, "in reserve: relayed")
	answered := b.m.find(to(direct1)).answered
	b.rtt[to(direct1)] = 0
	for b.routing.Selected != relayed && b.now.Sub(answered) < 10*time.Second {
		b.run(10 * time.Millisecond)
	}
	if took := b.now.Sub(answered); took > 6600*time.Millisecond {
		t.Errorf("the relay took over %v after the last answer, want 6.5 s", took)
	}
	b.run(10 * time.Second)
	b.want(to(direct1), Failed, "no answer to")
	if s := b.m.Snapshot(); s.Kind != KindRelay || !strings.Contains(s.Reason, "instead of 203.0.113.1:51820: no answer") {
		t.Errorf("selected is %s: %s", s.Kind, s.Reason)
	}
	b.rtt[to(direct1)] = 20 * time.Millisecond
	b.run(6 * time.Minute)
	b.want(to(direct1), Selected, "direct, instead of a path that is relayed")
}

// Each case is two paths, and what becomes of the first once the second answers.
func TestTheChoice(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name          string
		first, second Candidate
		rtt1, rtt2    time.Duration
		after         time.Duration // for how long the second answers
		switches      bool
		reason        string // of the loser
	}{
		{"direct replaces relayed at once, though slower", Candidate{relay1, SourceRelay}, Candidate{direct1, SourceHost}, 20 * ms, 90 * ms, time.Second, true, "in reserve: relayed, and the selected path is direct"},
		{"the local network replaces direct", Candidate{direct1, SourceHost}, Candidate{lan1, SourceHost}, 5 * ms, 8 * ms, time.Second, true, "and the selected path is on the local network"},
		{"relayed does not replace direct", Candidate{direct1, SourceHost}, Candidate{relay1, SourceRelay}, 90 * ms, 10 * ms, 5 * time.Minute, false, "in reserve: relayed"},
		{"much faster, after 30 s", Candidate{direct1, SourceHost}, Candidate{direct2, SourceHost}, 90 * ms, 20 * ms, 2 * time.Minute, true, "slower than the selected path (90 ms against 20 ms)"},
		{"a gain below 10 ms is none", Candidate{direct1, SourceHost}, Candidate{direct2, SourceHost}, 20 * ms, 11 * ms, 5 * time.Minute, false, "not enough faster than the selected path (11 ms against 20 ms)"},
		{"a gain below 20 % is none", Candidate{direct1, SourceHost}, Candidate{direct2, SourceHost}, 200 * ms, 165 * ms, 5 * time.Minute, false, "not enough faster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, true)
			b.rtt[to(c.first.Addr)] = c.rtt1
			given(b, c.first, c.second)
			b.run(5 * time.Second)
			b.want(to(c.first.Addr), Selected, "")
			b.rtt[to(c.second.Addr)] = c.rtt2
			b.m.Requested(b.now, to(c.second.Addr), false)
			b.run(c.after)
			winner, loser := c.first, c.second
			if c.switches {
				winner, loser = c.second, c.first
			}
			b.want(to(winner.Addr), Selected, "")
			b.want(to(loser.Addr), Valid, c.reason)
			if b.routing.Selected != to(winner.Addr) || b.routing.Initiate[0] != to(winner.Addr) {
				t.Errorf("routing is %+v, want %v first", b.routing, winner.Addr)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)], b.rtt[to(relay1)] = 20*time.Millisecond, 60*time.Millisecond
	given(b, Candidate{direct1, SourceHost}, Candidate{relay1, SourceRelay})
	b.run(40 * time.Second)
	for _, bar := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		b.m.Silent(b.now)
		b.run(time.Second)
		b.want(to(relay1), Selected, "what the tunnel sends over it is not answered")
		b.want(to(direct1), Failed, "though probes may be; kept out for")
		b.run(bar - 2*time.Second)
		b.want(to(relay1), Selected, "")
		b.run(3 * time.Second)
		b.want(to(direct1), Selected, "direct, instead of a path that is relayed")
	}
	b.rtt[to(relay1)] = 0
	b.run(time.Minute)
	b.m.Silent(b.now)
	b.run(20 * time.Second)
	if b.routing.Selected != to(direct1) {
		t.Errorf("without another path %v is in use, want the silent one kept", b.routing.Selected)
	}
}

func TestTheHistoryIsShortAndTellsWhy(t *testing.T) {
	b := newBench(t, true)
	given(b, Candidate{direct1, SourceHost}, Candidate{relay1, SourceRelay})
	for i := range 100 {
		b.rtt[to(direct1)], b.rtt[to(relay1)] = time.Duration(i%2)*20*time.Millisecond, 60*time.Millisecond
		b.m.NetworkChanged(b.now)
		b.run(20 * time.Second)
	}
	h := b.m.Snapshot().History
	if len(h) != maxNotes {
		t.Errorf("%d notes, want %d", len(h), maxNotes)
	}
	for _, n := range h {
		if n.Event == "" || n.Reason == "" || n.At.IsZero() {
			t.Errorf("note %+v says too little", n)
		}
	}
}

func TestAProbeThatCannotBeSent(t *testing.T) {
	b := newBench(t, true)
	given(b, Candidate{direct1, SourceHost})
	a, _ := b.m.Poll(b.now)
	b.m.Sent(b.now, a.Probes[0].ID, stunwire.TxID{1}, nil)
	b.m.Sent(b.now, a.Probes[0].ID, stunwire.TxID{1}, fmt.Errorf("send to %s: %w", direct1, syscall.ENETUNREACH))
	b.want(to(direct1), Failed, "cannot be sent: network is unreachable")
	b.m.Answered(b.now, stunwire.TxID{1}, to(direct1), direct2)
	b.want(to(direct1), Failed, "cannot be sent")
}

func TestAnAnswerFromElsewhereProvesNothing(t *testing.T) {
	b := newBench(t, true)
	given(b, Candidate{direct1, SourceHost}, Candidate{direct2, SourceHost})
	a, _ := b.m.Poll(b.now)
	b.m.Sent(b.now, a.Probes[0].ID, stunwire.TxID{1}, nil)
	b.m.Answered(b.now, stunwire.TxID{1}, to(direct2), direct2)
	b.m.Answered(b.now, stunwire.TxID{9}, to(direct1), direct2)
	b.poll()
	b.want(to(direct1), Probing, "")
	b.want(to(direct2), Probing, "")
}

func TestHandshakesProveUntilProbesDo(t *testing.T) {
	b := newBench(t, true)
	given(b, Candidate{direct1, SourceHost}, Candidate{relay1, SourceRelay})
	b.m.HandshakeDone(b.now, to(direct1))
	b.run(time.Minute)
	b.want(to(direct1), Selected, "direct, the best that answered")
	b.rtt[to(relay1)] = 60 * time.Millisecond // the peer supports probes after all
	b.run(6 * time.Minute)
	b.want(to(relay1), Selected, "instead of 203.0.113.1:51820")
	b.m.HandshakeDone(b.now, to(direct1))
	b.run(time.Second)
	b.want(to(relay1), Selected, "")
}

func TestARestartedPeer(t *testing.T) {
	b := newBench(t, true)
	b.rtt[to(direct1)] = 20 * time.Millisecond
	given(b, Candidate{direct1, SourceHost})
	b.run(5 * time.Second)
	b.m.HandshakeDone(b.now, to(direct1))
	b.run(5 * time.Second)
	before := b.shakes
	b.m.Requested(b.now, to(direct1), true)
	b.poll()
	if b.shakes != before+1 {
		t.Errorf("%d handshakes asked for, want one more than %d", b.shakes, before)
	}
}

func TestPeerReflexivePairsAreCapped(t *testing.T) {
	b := newBench(t, true)
	for i := range 100 {
		b.m.Requested(b.now, to(netip.AddrPortFrom(direct1.Addr(), uint16(1000+i))), false)
		b.run(time.Second)
	}
	if n := len(b.m.Snapshot().Candidates); n != maxReflexive {
		t.Errorf("%d pairs, want %d", n, maxReflexive)
	}
	b.run(10 * time.Minute)
	if n := len(b.m.Snapshot().Candidates); n != 0 {
		t.Errorf("%d pairs ten minutes later, want none: they never answered", n)
	}
}

func TestWithdrawnCandidatesLinger(t *testing.T) {
	b := newBench(t, true)
	b.m.SetRemote(b.now, []Candidate{{direct1, SourceHost}}, true)
	b.m.SetRemote(b.now, nil, true)
	b.run(linger - time.Second)
	if b.status(to(direct1)).Source == "" {
		t.Error("the withdrawn candidate is gone at once")
	}
	b.run(2 * time.Second)
	if b.status(to(direct1)).Source != "" {
		t.Errorf("the withdrawn candidate is still there: %+v", b.status(to(direct1)))
	}
	given(b, Candidate{direct2, SourceHost})
	b.m.SetRemote(b.now, nil, true)
	b.run(time.Hour)
	if b.status(to(direct2)).Source == "" {
		t.Error("a given candidate was forgotten")
	}
}

func TestSizesToTry(t *testing.T) {
	v4, v6 := direct1.Addr(), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		to      netip.Addr
		overlay int
		want    string
	}{
		{v4, 0, "[1452 1420 1392 1372 1252 1072 548]"},
		{v4, 1280, "[1452 1420 1392 1372 1252 1072 548]"},
		{v6, 1420, "[1452 1444 1400 1372 1352 1232 1052 528]"},
		{v4, 1421, "[1456 1420 1392 1372 1252 1072 548]"},
		{v4, 1440, "[1472 1464 1420 1392 1372 1252 1072 548]"},
		{v4, 8920, "[8952 8920 8868 8472 4064 2016 1472 1464 1420 1392 1372 1252 1072 548]"},
		{v6, 9000, "[9032 8952 8900 8848 8452 4044 1996 1452 1444 1400 1372 1352 1232 1052 528]"},
	} {
		if got := fmt.Sprint(payloads(c.to, LargestOverlayMTU(c.overlay))); got != c.want {
			t.Errorf("to %v with an overlay MTU of %d: sizes %s, want %s", c.to, c.overlay, got, c.want)
		}
	}
}

func TestUnmeasuredPathsAreTakenForEthernet(t *testing.T) {
	for overlay, want := range map[int]int{1280: 1280, 1419: 1419, 1420: 1420, 1421: 1408, 8920: 1408} {
		if got := UnmeasuredOverlayMTU(overlay); got != want {
			t.Errorf("with an overlay MTU of %d: %d bytes, want %d", overlay, got, want)
		}
	}
}

func TestNothingLargerThanUsualIsTriedOverARelay(t *testing.T) {
	m := New(Options{OverlayMTU: 8920})
	direct, relayed := m.largestFor(&pair{class: classDirect}), m.largestFor(&pair{class: classRelayed})
	if direct != 8920 || relayed != 1420 {
		t.Errorf("packets of %d bytes are tried on a direct path and of %d over a relay, want 8920 and 1420", direct, relayed)
	}
}

// WireGuard's padded packets must fit the path, and the device's MTU is not padded.
func TestWhatCrossesHoldsThePaddedPacket(t *testing.T) {
	for _, c := range []struct {
		to      netip.Addr
		overlay int
		want    string
	}{
		{direct1.Addr(), 1420, "[1420 1376 1360 1328 1216 1040 512]"},
		{direct1.Addr(), 8920, "[8920 8880 8832 8432 4032 1984 1440 1424 1376 1360 1328 1216 1040 512]"},
		{netip.MustParseAddr("2001:db8::1"), 8920, "[8920 8864 8816 8416 4000 1952 1408 1408 1360 1328 1312 1200 1008 496]"},
	} {
		var got []int
		for _, s := range Sizes(c.to, c.overlay) {
			got = append(got, s.Overlay)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("to %v with an overlay MTU of %d: %v, want %s", c.to, c.overlay, got, c.want)
		}
	}
}
