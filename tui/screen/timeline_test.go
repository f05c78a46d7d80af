package screen

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
)

// cloudsTimeline opens the timeline of the peer cloud.
func cloudsTimeline(t *testing.T, width, height int) *stage {
	t.Helper()
	return play(t, busy(), width, height, false).press(":").typed("peer cloud").press("enter", "7")
}

func TestTheTimelineShowsHowItWas(t *testing.T) {
	s := cloudsTimeline(t, 120, 40)
	s.want("[7 Timeline]", "cloud ● connected", "10 min [1 h] 6 h 24 h", "as it was at 12:00:00, the latest", "● connected · direct · rtt 12 ms · loss 0.3%", "events 6")
	// From event to event, the last one first.
	s.press("k").want("events 6 of 6", "as it was at 11:48:00, 12m before", "K 11:48:00  the peer has another key: its", "fingerprint is fcb4-8bb5-2120-8f10")
	s.press("k", "k").want("events 4 of 6", "✗ failed · none", "→gw ✗ error", "✗ PST0101 →gateway the peer has never answered:", "for 2m0s")
	// Findings of that time are shown with earlier ones that lasted.
	s.want("! PST0503 →apiServer the certificate is for another name:")
	s.press("left", "left").wantNot("PST0101 →gateway the peer has never answered:\n")
	s.want("● connected · direct", "events 3 of 6")
	s.press("g").want("events 1 of 6", "as it was at 11:10:05")
	s.press("G").want("the latest")
	s.press("left").want("as it was at 11:58:00")
	s.press("right", "right").want("the latest")
}

func TestTheWindowOfTheTimeline(t *testing.T) {
	s := cloudsTimeline(t, 80, 24)
	s.press("+").want("10 min 1 h [6 h] 24 h", "J ")
	s.press("+", "+").want("[24 h]", "gateway started at 04:48:00")
	s.press("-", "-", "-", "-").want("[10 min]", "┴11:50:00")
	s.wantNot("gateway started")
}

// A narrower window stays around the cursor, and moves with it.
func TestTheTimelineMovesWithTheCursor(t *testing.T) {
	s := cloudsTimeline(t, 120, 40).press("k", "k", "k")
	s.press("-").want("[10 min]", "▲11:34:05", "as it was at 11:34:05", "┴11:30:00")
	s.wantNot("┴11:50")
	for range 60 {
		s.press("left")
	}
	s.want("as it was at 11:20", "events 2 of 6", "● connected")
	n := len(s.gateway.histories)
	s.press("left", "right", "left")
	if len(s.gateway.histories) != n {
		t.Errorf("for a step %+v was asked", s.gateway.histories[n:])
	}
	s.press("+", "+").want("[6 h]", "as it was at 11:20")
	for range 60 {
		s.press("left")
	}
	s.want("as it was at 04:48:00", "nothing is known of this time") // the gateway's start
	// A frozen screen can be explored as well.
	s.press("p", "-", "-", "G").want("the latest", "= frozen", "● connected · direct")
}

func TestTheTimelineGoesFromPeerToPeer(t *testing.T) {
	s := cloudsTimeline(t, 80, 24)
	s.press("s").want("hub ◌ connecting")
	s.press("s", "s", "s").want("cloud ● connected")
	s.press("enter").want("[2 Peer]", "cloud  ● connected")
	s.press("esc").want("[7 Timeline]")
	s.press("r")
	if want := []string{"cloud"}; !slices.Equal(s.gateway.checked, want) {
		t.Errorf("checked %q, want %q", s.gateway.checked, want)
	}
}

func TestTheMousePointsToATime(t *testing.T) {
	s := cloudsTimeline(t, 80, 24)
	click := func(x, y int) {
		s.Update(tea.MouseMsg{X: x, Y: y, Button: tea.MouseButtonLeft, Action: tea.MouseActionPress})
		s.View()
	}
	click(7+35, s.viewTop+3)
	s.want("as it was at 11:35:30", "✗ failed")
	click(79, s.viewTop+3)
	s.want("the latest")
	s.Update(tea.MouseMsg{Button: tea.MouseButtonWheelUp, Y: s.viewTop + 1})
	s.want("events 6 of 6")
}

// The history belongs to the gateway: it is there again when the gateway is shown again, and on
// another screen.
func TestThePastSurvivesAnotherGateway(t *testing.T) {
	s, edge, _ := twoGateways(t, 120, 40, nil)
	s.remember()
	s.want("LAST HOUR", "━━━┅┅▓▓━━━")
	s.press("n")
	s.press("n").want("━━━┅┅▓▓━━━")
	// After a restart of the gateway it starts over, and says so.
	edge.mu.Lock()
	edge.status.Gateway.StartedAt = s.clock
	edge.past = api.History{Gateway: "edge", Since: s.clock, From: s.clock, To: s.clock.Add(time.Second), Peers: []api.PeerHistory{{Peer: "cloud"}}}
	edge.mu.Unlock()
	s.pass(2 * time.Second).remember()
	s.wantNot("━━━┅┅▓▓━━━")
	s.press(":").typed("peer cloud").press("enter", "7").want("gateway started at 12:00:00", "nothing happened in this time")
}

// Known history is not requested again, nor that of peers that are not shown.
func TestThePastIsAskedForAsFarAsItIsNotThere(t *testing.T) {
	f := many(100)
	for _, p := range f.status.Peers {
		f.past.Peers = append(f.past.Peers, api.PeerHistory{Peer: p.Name, Points: []api.HistoryPoint{{At: noon.Add(-time.Hour), Seconds: 3601, State: api.StateConnected}}})
	}
	f.past.To = noon
	s := play(t, f, 120, 40, false)
	first := f.histories[0]
	if len(first.Peers) == 0 || len(first.Peers) > 40 || first.Since != hour || first.Step == 0 {
		t.Errorf("at first %+v was asked", first)
	}
	n := len(f.histories)
	for range 5 {
		s.pass(time.Second).View()
	}
	if len(f.histories) > n {
		t.Errorf("within 5 s %+v was asked as well", f.histories[n:])
	}
	f.past.To = noon.Add(12 * time.Second)
	s.pass(6 * time.Second)
	// The hour of the selected peer leaves less room for rows, so fewer are requested.
	if last := f.histories[len(f.histories)-1]; len(f.histories) != n+1 || last.Since > 3*time.Minute || len(last.Peers) == 0 || len(last.Peers) > len(first.Peers) {
		t.Errorf("after 11 s %+v was asked", f.histories[n:])
	}
	h := s.data.past.hours[first.Peers[0]]
	if len(h.Points) != 1 || h.Points[0].Seconds != 3601 {
		t.Errorf("what came twice is there as %+v", h.Points)
	}
}

func TestTheLastHourGrows(t *testing.T) {
	at := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	until := at(63)
	verdict := api.HistoryEvent{At: at(58), Kind: api.EventVerdict, Code: "PST0101"}
	gone := verdict
	gone.Until = &until
	h := &lastHour{}
	h.extend(api.PeerHistory{Peer: "cloud", Points: []api.HistoryPoint{
		{At: at(0), Seconds: 120, State: api.StateFailed}, {At: at(2), Seconds: 3480, State: api.StateConnected},
	}, Events: []api.HistoryEvent{{At: at(1), Kind: api.EventPath}, verdict}}, at(60))
	h.extend(api.PeerHistory{Peer: "cloud", Points: []api.HistoryPoint{
		{At: at(60), Seconds: 180, State: api.StateConnected}, {At: at(63), Seconds: 1, State: api.StateFailed},
	}, Events: []api.HistoryEvent{gone}}, at(63))
	var got []int64
	for i, p := range h.Points {
		got = append(got, p.Seconds)
		if i > 0 && !h.Points[i-1].At.Add(time.Duration(h.Points[i-1].Seconds)*time.Second).Equal(p.At) {
			t.Errorf("the point at %v does not follow the one before", p.At)
		}
	}
	if want := []int64{3480, 180, 1}; !slices.Equal(got, want) { // the first is more than an hour old
		t.Errorf("points of %v s, want %v", got, want)
	}
	if len(h.Events) != 1 || h.Events[0].Until == nil {
		t.Errorf("events %+v, want the verdict that has gone", h.Events)
	}
}

func TestAGatewayWithoutHistorySaysSo(t *testing.T) {
	f := busy()
	s := play(t, f, 80, 24, false)
	s.press("7")
	s.data.past = remembered{hours: map[string]*lastHour{}}
	s.View()
	asks := s.data.past.ask(s.clock)
	asks.err = errors.New("the gateway knows no GET /v1/history\x1b[2J")
	s.data.past.took(asks)
	s.want("no history: the gateway knows no GET /v1/history")
	if again := s.data.past.ask(s.clock.Add(time.Second)); again.hours != nil || again.timeline != nil {
		t.Error("it is asked again at once")
	}
	fits(t, s.View(), 80, 24)
}

// A lost gateway keeps its history on the screen, in grey.
func TestTheTimelineOfALostGatewayStays(t *testing.T) {
	s := play(t, busy(), 120, 40, true).press(":").typed("peer cloud").press("enter", "7")
	s.gateway.err = errors.New("connection refused")
	s.pass(3 * time.Second)
	s.want("lost the gateway", "┅┅┅", "events 6")
	for line := range strings.SplitSeq(s.View(), "\n") {
		if strings.Contains(line, "┅┅┅") && (strings.Contains(line, "\x1b[32m") || !strings.Contains(line, "\x1b[2m")) {
			t.Errorf("it is not grey: %q", line)
		}
	}
}

func TestTheTimelineWithoutPeers(t *testing.T) {
	s := play(t, &fake{}, 80, 24, false).press("7", "left", "right", "k", "j", "g", "G", "+", "s", "enter")
	s.want("no peers yet")
}
