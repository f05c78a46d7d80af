package cell

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// A peer that does not answer is never counted as connected.
func TestWhatDoesNotAnswerIsNotConnected(t *testing.T) {
	ok := api.Verdict{Verdict: api.OK}
	well := api.PeerStatus{State: api.StateConnected, Path: api.Path{Kind: api.PathDirect, Remote: "203.0.113.10:51820"},
		Candidates:   []api.Candidate{{Address: "203.0.113.10:51820", State: "selected"}},
		Reachability: api.Reachability{Outbound: api.Targets{Auth: ok, APIServer: ok, Gateway: ok}}}
	for _, tc := range []struct {
		what    string
		change  func(*api.PeerStatus)
		want    string
		counted Standing
	}{
		{"all is well", func(*api.PeerStatus) {}, "● connected", Connected},
		{"the tunnel's check fails", func(p *api.PeerStatus) { p.Reachability.Outbound.Gateway.Verdict = api.Error }, "✗ silent", Silent},
		{"it finds that the peer is heard", func(p *api.PeerStatus) {
			p.Reachability.Outbound.Gateway = api.Verdict{Verdict: api.Error, Code: "PST0106", Stage: "probe"}
		}, "✗ broken", Broken},
		{"it finds no more than silence", func(p *api.PeerStatus) {
			p.Reachability.Outbound.Gateway = api.Verdict{Verdict: api.Error, Code: "PST0102", Stage: "probe"}
		}, "✗ silent", Silent},
		{"it does not answer at the moment", func(p *api.PeerStatus) { p.UnconfirmedSince = new(time.Time) }, "◌ unconfirmed", Unconfirmed},
		{"and the tunnel's check has failed since", func(p *api.PeerStatus) {
			p.UnconfirmedSince, p.Reachability.Outbound.Gateway.Verdict = new(time.Time), api.Error
		}, "✗ silent", Silent},
		{"another path has", func(p *api.PeerStatus) {
			p.Candidates = append(p.Candidates, api.Candidate{Address: "203.0.113.11:51820", State: "suspect"})
		}, "● connected", Connected},
		{"a service fails", func(p *api.PeerStatus) { p.Reachability.Inbound.Auth.Verdict = api.Error }, "! faulty", Faulty},
		{"a service works with reservations", func(p *api.PeerStatus) { p.Reachability.Outbound.APIServer.Verdict = api.Warning }, "● connected", Connected},
		{"something on the way fails", func(p *api.PeerStatus) { p.Reachability.Beside = api.Error }, "! faulty", Faulty},
		{"something on the way works with reservations", func(p *api.PeerStatus) { p.Reachability.Beside = api.Warning }, "● connected", Connected},
		{"it is tried", func(p *api.PeerStatus) { p.State = api.StateConnecting }, "◌ connecting", Connecting},
		{"it is tried, and why in vain is known", func(p *api.PeerStatus) {
			p.State, p.Reachability.Outbound.Gateway = api.StateConnecting, api.Verdict{Verdict: api.Error, Code: "PST0109", Stage: "handshake"}
		}, "✗ broken", Broken},
		{"the gateway says so", func(p *api.PeerStatus) { p.State = api.StateFailed }, "✗ failed", Failed},
		{"a state of a later version", func(p *api.PeerStatus) { p.State = "resting" }, "? resting", Other},
	} {
		p := well
		p.Candidates = slices.Clone(well.Candidates)
		tc.change(&p)
		if got := PeerState(&p).Text; got != tc.want || StandingOf(&p).Counted() != tc.counted {
			t.Errorf("%s: got %q, counted as %v; want %q and %v", tc.what, got, StandingOf(&p).Counted(), tc.want, tc.counted)
		}
	}
}

func TestASelectedRowKeepsItsColours(t *testing.T) {
	p := Dark
	got := p.Text(Selected, "▸ "+p.Text(Good, "✓ ok")+" end")
	if want := "\x1b[7m▸ \x1b[32m✓ ok\x1b[m\x1b[7m end\x1b[m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAStripHasTheColourOfEachVerdict(t *testing.T) {
	r := api.Reachability{Outbound: api.Targets{Auth: api.Verdict{Verdict: api.OK}, APIServer: api.Verdict{Verdict: api.Error}, Gateway: api.Verdict{Verdict: api.Off}}}
	c := Strip(&api.PeerStatus{Reachability: r})
	if want := "→✓✗- ←???"; c.Text != want {
		t.Errorf("got %q, want %q", c.Text, want)
	}
	if got, want := Dark.Cell(Cell{"→✓✗", Signs}), "→\x1b[32m✓\x1b[m\x1b[31m✗\x1b[m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNATWords(t *testing.T) {
	for _, tc := range []struct {
		nat  api.NAT
		want string
	}{
		{api.NAT{}, "NAT not known"},
		{api.NAT{Mapping: "unknown"}, "NAT not known"},
		{api.NAT{Mapping: "none"}, "no NAT"},
		{api.NAT{Mapping: "endpoint-independent", Filtering: "unknown"}, "NAT keeps one port"},
		{api.NAT{Mapping: "endpoint-independent", Filtering: "endpoint-independent"}, "NAT keeps one port, open to all"},
		{api.NAT{Mapping: "endpoint-independent", Filtering: "address-dependent"}, "NAT keeps one port, open to addresses it sent to"},
		{api.NAT{Mapping: "endpoint-dependent"}, "NAT changes its port for each peer"},
		{api.NAT{Mapping: "address-dependent"}, "NAT changes its port for each peer"},
	} {
		if got := NATWords(tc.nat); got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.nat, got, tc.want)
		}
	}
}

func TestTheWorstOfAllIsNamed(t *testing.T) {
	lost := api.Verdict{Verdict: api.Error, Code: "PST0106"}
	own := api.Check{Name: "network", Direction: api.DirectionOwn, Verdict: api.Verdict{Verdict: api.Error, Code: "PST0125"}}
	odd := api.Check{Name: "path", Peer: "cloud", Direction: api.DirectionOutbound, Verdict: api.Verdict{Verdict: api.Warning, Code: "PST0112"}}
	peer := api.PeerStatus{Name: "cloud", State: api.StateConnected, Path: api.Path{Kind: api.PathDirect}}
	broken := peer
	broken.Reachability.Outbound.Gateway = lost
	follows := peer
	follows.Reachability.Outbound.Gateway, follows.Reachability.Inbound.Auth = own.Verdict, own.Verdict
	for _, tc := range []struct {
		what     string
		problems []api.Check
		peer     api.PeerStatus
		want     Named
		more     int
	}{
		{"nothing", nil, peer, Named{}, 0},
		{"an error before a warning", []api.Check{odd}, broken, Named{"PST0106", "cloud", api.Error}, 1},
		{"what follows is the same", []api.Check{own}, follows, Named{"PST0125", "", api.Error}, 0},
	} {
		got, more := Worst(&api.Status{Problems: tc.problems, Peers: []api.PeerStatus{tc.peer}})
		if got != tc.want || more != tc.more {
			t.Errorf("%s: got %v and %d more, want %v and %d", tc.what, got, more, tc.want, tc.more)
		}
	}
}

func TestALegendHasWhatIsThere(t *testing.T) {
	if got, want := strings.Join(BoxPast.Legend("  ━━▓"), ", "), "━ worked, ▓ failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := strings.Join(Legend("→✓✗! ←✓✓✓"), ", "), "! faulty, ✗ fails"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Without colour, too, the past is not taken for now: no glyph stands for both.
func TestThePastHasGlyphsOfItsOwn(t *testing.T) {
	now := ""
	for _, o := range []api.Outcome{api.OK, api.Warning, api.Error, api.Off, api.Unknown} {
		now += Outcome(o).Sign()
	}
	for _, s := range append(Standings(), Warned) {
		now += s.Cell().Sign()
	}
	for _, l := range []PastLines{BoxPast, ASCIIPast} {
		seen := ""
		for _, g := range []string{l.Direct, l.Relay, l.Bad, l.Wary, l.Tried, l.Waits, l.Unknown, l.Off} {
			if strings.Contains(now+ASCII(now), g) || strings.Contains(seen, g) {
				t.Errorf("%q is of the past and of now, or is of two things: %s", g, now+ASCII(now))
			}
			if seen += g; glyphStyles[[]rune(g)[0]] == Plain {
				t.Errorf("%q has no colour", g)
			}
		}
	}
}

func TestAPeerOverARelaySaysWhy(t *testing.T) {
	p := api.PeerStatus{Path: api.Path{Kind: api.PathRelay}, Candidates: []api.Candidate{
		{Address: "192.168.1.2:1", Source: api.SourceHost, State: "failed", Reason: "no answer"},
		{Address: "198.51.100.6:2", Source: api.SourceSTUN, State: "standby", Reason: "slower than the relay"},
		{Address: "198.51.100.7:2", Source: api.SourceSTUN, State: "failed", Reason: "no answer"}}}
	if got := NoFault(&p).Text(); !strings.Contains(got, "198.51.100.7:2 cannot be reached directly: no answer") {
		t.Errorf("got %q", got)
	}
}
