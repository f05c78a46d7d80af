package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
)

// connected is busy with more flows, after two snapshots a second apart.
func connected(t *testing.T, width, height int, color bool) *stage {
	t.Helper()
	f := busy()
	hub := &f.status.Peers[3]
	for i := range 30 {
		hub.Flows = append(hub.Flows, api.Flow{
			Direction: api.DirectionInbound, Service: "apiServer", Remote: fmt.Sprintf("[fd12::9]:%d", 40000+i),
			RxBytes: uint64(i) * 1000, TxBytes: 50, StartedAt: noon.Add(-time.Duration(i) * time.Minute),
		})
	}
	evil := &f.status.Peers[2]
	evil.Flows = []api.Flow{{Direction: "side\x1bways", Service: "reg\u202eistry\n", Remote: "\x1b]52;c;ZXZpbA==\a"}}
	s := play(t, f, width, height, color).press("5")
	f.advance(func(p *api.PeerStatus, f *api.Flow) {
		f.RxBytes += uint64(f.StartedAt.Minute()) * 100
		f.TxBytes += 7
	})
	s.clock = s.clock.Add(time.Second)
	s.Update(nil)
	s.do(s.poll())
	s.View()
	return s
}

// advance changes every flow of the next snapshot.
func (f *fake) advance(change func(*api.PeerStatus, *api.Flow)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	peers := slices.Clone(f.status.Peers)
	for i := range peers {
		peers[i].Flows = slices.Clone(peers[i].Flows)
		for j := range peers[i].Flows {
			change(&peers[i], &peers[i].Flows[j])
		}
	}
	f.status.Peers = peers
}

// listed returns the rows of the view: peer, direction, service and remote address each.
func listed(s *stage) []flowRow {
	v := s.views[4].(*flows)
	v.list(s.data)
	return v.rows
}

func TestRatesOfFlowsAreDifferencesOfTheirCounters(t *testing.T) {
	s := play(t, busy(), 120, 30, false).press("5")
	for _, r := range listed(s) {
		if r.known {
			t.Errorf("a rate of %s is known from one snapshot", r.id)
		}
	}
	s.gateway.advance(func(_ *api.PeerStatus, f *api.Flow) { f.RxBytes += 3000; f.TxBytes += 100 })
	// A new flow counts from zero.
	for i := range s.gateway.status.Peers {
		if p := &s.gateway.status.Peers[i]; p.Name == "hub" {
			p.Flows = []api.Flow{{Direction: api.DirectionOutbound, Service: "auth", Remote: "127.0.0.1:1", RxBytes: 500, StartedAt: noon.Add(time.Second)}}
		}
	}
	s.pass(2 * time.Second).View()
	for _, r := range listed(s) {
		rx, tx := 1500.0, 50.0
		if r.peer.Name == "hub" {
			rx, tx = 250, 0
		}
		if !r.known || r.rx != rx || r.tx != tx {
			t.Errorf("%s %s: known %v, rx %v, tx %v, want %v and %v", r.peer.Name, r.flow.Service, r.known, r.rx, r.tx, rx, tx)
		}
	}
	// After a long pause no rate is shown.
	s.press("p")
	s.clock = s.clock.Add(time.Minute)
	s.press("p")
	s.do(s.poll())
	s.View()
	for _, r := range listed(s) {
		if r.known {
			t.Errorf("%s: a mean over a minute passes for a rate", r.id)
		}
	}
	// Decreased counters yield no rate either.
	s.gateway.advance(func(_ *api.PeerStatus, f *api.Flow) { f.RxBytes = 0 })
	s.pass(time.Second).View()
	for _, r := range listed(s) {
		if r.known {
			t.Errorf("%s: a counter that went back makes a rate of %v", r.id, r.rx)
		}
	}
}

func TestFlowsOfOneIdentityAreTwo(t *testing.T) {
	f := busy()
	same := api.Flow{Direction: api.DirectionOutbound, Service: "auth", Remote: "127.0.0.1:1", StartedAt: noon.Add(-time.Hour)}
	f.status.Peers[3].Flows = []api.Flow{same, same}
	s := play(t, f, 120, 30, false).press("5").typed("/hub").press("enter")
	n := 0
	s.gateway.advance(func(_ *api.PeerStatus, f *api.Flow) { n++; f.RxBytes += uint64(n) * 1000 })
	s.pass(time.Second).View()
	rows := listed(s)
	if len(rows) != 2 || rows[0].id == rows[1].id || rows[0].rx == rows[1].rx || !rows[0].known || !rows[1].known {
		t.Errorf("got %+v", rows)
	}
}

func TestFlowsAreSorted(t *testing.T) {
	s := connected(t, 200, 60, false)
	for _, tt := range []struct {
		column     string
		descending bool
		less       func(a, b flowRow) bool // strictly before
	}{
		{sortRate, true, func(a, b flowRow) bool { return a.rx+a.tx > b.rx+b.tx }},
		{sortBytes, true, func(a, b flowRow) bool { return a.flow.RxBytes+a.flow.TxBytes > b.flow.RxBytes+b.flow.TxBytes }},
		{sortAge, true, func(a, b flowRow) bool { return a.flow.StartedAt.Before(b.flow.StartedAt) }},
		{sortPeer, false, func(a, b flowRow) bool { return cell.CompareNames(a.peer.Name, b.peer.Name) < 0 }},
		{sortService, false, func(a, b flowRow) bool { return cell.CompareNames(a.flow.Service, b.flow.Service) < 0 }},
		{sortDirection, false, func(a, b flowRow) bool { return a.flow.Direction < b.flow.Direction }},
		{sortRemote, false, func(a, b flowRow) bool { return cell.CompareNames(a.flow.Remote, b.flow.Remote) < 0 }},
	} {
		v := s.views[4].(*flows)
		if v.column != tt.column || v.descending != tt.descending {
			t.Fatalf("sorted by %s, descending %v; want %s, %v", v.column, v.descending, tt.column, tt.descending)
		}
		for _, turned := range []bool{false, true} {
			rows := listed(s)
			for i := 1; i < len(rows); i++ {
				a, b := rows[i-1], rows[i]
				if turned {
					a, b = b, a
				}
				if tt.less(b, a) {
					t.Errorf("by %s, turned %v: %s stands before %s", tt.column, turned, rows[i-1].id, rows[i].id)
				}
			}
			v.sortBy(tt.column) // The second time reverses it.
		}
		s.press("s")
	}
}

func TestTheSelectedFlowStaysSelected(t *testing.T) {
	s := connected(t, 120, 30, false).press("j", "j", "j")
	id := s.data.flows.id
	if id == "" {
		t.Fatal("nothing is selected")
	}
	s.press("s").press("s")
	s.gateway.advance(func(_ *api.PeerStatus, f *api.Flow) { f.RxBytes += 1_000_000 - f.RxBytes%1_000_000 })
	s.pass(time.Second)
	if !strings.Contains(s.View(), "▸") || s.data.flows.id != id {
		t.Errorf("%q was selected, now it is %q", id, s.data.flows.id)
	}
	var want string
	for _, r := range listed(s) {
		if r.id == id {
			want = peerID(r.peer)
		}
	}
	s.press("enter")
	if s.view().title() != titlePeer || s.data.peers.id != want {
		t.Errorf("enter opens %s of %s", s.view().title(), s.data.peers.id)
	}
}

func TestFlowsAreFiltered(t *testing.T) {
	s := connected(t, 120, 30, false)
	for filter, want := range map[string]int{"hub": 30, "!hub": 3, "inbound": 31, "40112": 1, "AUTH": 1, "nowhere": 0} {
		s.press("esc").typed("/" + filter).press("enter")
		if got := len(listed(s)); got != want {
			t.Errorf("%q picks %d flows, want %d", filter, got, want)
		}
		if want == 0 && !strings.Contains(s.View(), "no flow has nowhere") {
			t.Errorf("the view does not say why it is empty:\n%s", s.View())
		}
	}
}

func TestColumnsOfFlowsGoByTheirRank(t *testing.T) {
	titles := func(width int) []string {
		s := connected(t, width, 30, false)
		for line := range strings.Lines(ansi.Strip(s.View())) {
			if strings.Contains(line, "PEER") {
				return strings.Fields(line)
			}
		}
		return nil
	}
	for width, want := range map[int]string{
		200: "PEER DIR SERVICE REMOTE RX/s TX/s LIMIT RX TX AGE",
		80:  "PEER DIR SERVICE REMOTE RX/s TX/s RX AGE",
		50:  "PEER DIR SERVICE RX/s TX/s",
		40:  "PEER SERVICE RX/s TX/s",
	} {
		if got := strings.Join(titles(width), " "); got != want {
			t.Errorf("%d cells show %q, want %q", width, got, want)
		}
	}
}

func TestTheMouseSelectsAndScrolls(t *testing.T) {
	s := connected(t, 120, 30, false)
	click := func(view, y int, b tea.MouseButton) {
		s.views[view].update(tea.MouseMsg{Y: y, Button: b, Action: tea.MouseActionPress}, s.data)
		s.View()
	}
	click(4, flowsTop+3, tea.MouseButtonLeft)
	if want := listed(s)[s.data.flows.top+3].id; s.data.flows.id != want {
		t.Errorf("a click selects %q, want %q", s.data.flows.id, want)
	}
	before := s.data.flows.id
	click(4, 0, tea.MouseButtonLeft) // the summary
	if s.data.flows.id != before {
		t.Error("a click beside the rows moves the selection")
	}
	s.press("3")
	click(2, 0, tea.MouseButtonWheelDown)
	if got := whose(s); got != "cloud" {
		t.Errorf("the wheel leads from all peers to %q", got)
	}
	click(2, 0, tea.MouseButtonWheelUp)
	if got := whose(s); got != "all peers" {
		t.Errorf("the wheel leads back to %q", got)
	}
	s.press("6")
	for i := range 100 {
		s.data.log = append(s.data.log, api.LogRecord{Seq: uint64(10 + i), Time: noon, Level: "INFO", Message: "more"})
	}
	s.View()
	click(5, 0, tea.MouseButtonWheelUp)
	if !s.views[5].(*logTail).still {
		t.Error("the wheel does not leave the newest record")
	}
	click(5, 0, tea.MouseButtonWheelDown)
	click(5, 0, tea.MouseButtonWheelDown)
	if s.views[5].(*logTail).still {
		t.Error("the wheel does not lead back to the newest record")
	}
}
