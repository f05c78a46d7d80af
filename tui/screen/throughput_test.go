package screen

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui/cell"
	"github.com/postern-dev/postern/tui/chart"
)

// flowing has nine peers with an hour of traffic each; cloud was silent for a while.
func flowing(t *testing.T, width, height int, color bool) *stage {
	t.Helper()
	f := busy()
	for i := range 5 {
		f.status.Peers = append(f.status.Peers, api.PeerStatus{
			Name: fmt.Sprintf("site-%d", i), PublicKey: fmt.Sprintf("key-%d", i), State: api.StateConnected,
			Path: api.Path{Kind: api.PathRelay}, RxBytes: 1e9, TxBytes: 1e6,
		})
	}
	s := play(t, f, width, height, color)
	for i := range s.data.status.Peers {
		p := &s.data.status.Peers[i]
		r := &ring{rxBytes: p.RxBytes, txBytes: p.TxBytes}
		for back := 3599; back >= 0; back-- {
			if p.Name == "cloud" && back > 30 && back < 42 {
				continue
			}
			swing := 1 + math.Sin(float64(back)/50+float64(i))
			r.samples = append(r.samples, sample{
				noon.Add(-time.Duration(back) * time.Second).UnixMilli(),
				float32(swing * 1e5 * float64(i+1)), float32(swing * 1e3 * float64(9-i)),
			})
		}
		s.data.traffic[peerID(p)] = r
	}
	return s
}

func TestPicturesOfThroughput(t *testing.T) {
	everySize(t, "throughput-peer", flowing, "3", "j")
	for _, g := range graphs() {
		picture := flowing(t, 80, 24, false).press("3", "+", "+").typed(":graph " + g).press("enter").View()
		fits(t, picture, 80, 24)
		golden(t, "throughput-80x24-"+g, picture)
	}
}

// TestTrafficFitsSmallScreens goes down to screens on which nothing has room.
func TestTrafficFitsSmallScreens(t *testing.T) {
	s := flowing(t, 80, 24, true)
	for _, keys := range [][]string{{"3"}, {"3", "j"}, {"5"}, {"6"}} {
		s.press(keys...)
		for width := 1; width < 60; width += 3 {
			for height := 1; height < 20; height += 2 {
				s.Update(tea.WindowSizeMsg{Width: width, Height: height})
				fits(t, s.View(), width, height)
			}
		}
	}
}

func TestThroughputWindowsEndAtTheirEnds(t *testing.T) {
	s := flowing(t, 100, 30, false).press("3")
	for _, step := range []struct{ key, want string }{
		{"-", "[1 min]"}, {"+", "[10 min]"}, {"=", "[1 h]"}, {"+", "[1 h]"}, {"-", "[10 min]"},
	} {
		if s.press(step.key); !strings.Contains(s.View(), step.want) {
			t.Errorf("after %s the window is not %s:\n%s", step.key, step.want, s.View())
		}
	}
}

// whose returns the peer in the view's heading.
func whose(s *stage) string {
	d := s.data
	line, _, _ := strings.Cut(ansi.Strip(s.views[2].draw(d, 120, 20)), "\n")
	name, _, _ := strings.Cut(line, "  ")
	name, _, _ = strings.Cut(name, " · ")
	return name
}

func TestThroughputGoesThroughAllPeers(t *testing.T) {
	s := flowing(t, 100, 30, false).press("3")
	if got := whose(s); got != "all peers" {
		t.Fatalf("it begins with %q", got)
	}
	var names []string
	for range s.data.status.Peers {
		names = append(names, whose(s.press("s")))
	}
	for i, p := range s.data.status.Peers {
		if want := cell.Printable(p.Name); names[i] != want {
			t.Errorf("step %d shows %q, want %q", i+1, names[i], want)
		}
	}
	if got := whose(s.press("s")); got != "all peers" {
		t.Errorf("after the last peer comes %q", got)
	}
	if got := whose(s.press("G")); got != "site-with-a-name-of-forty-characters-xyz" {
		t.Errorf("the last one is %q", got)
	}
	if got := whose(s.press("g")); got != "all peers" {
		t.Errorf("the first one is %q", got)
	}
}

func TestThroughputShowsTheSelectedPeer(t *testing.T) {
	s := flowing(t, 100, 30, false)
	s.data.peers.id = "hub-key"
	s.press("3", "j")
	if got := whose(s); got != "cloud" { // from all peers to the first
		t.Errorf("after all peers comes %q", got)
	}
	s.press("j")
	if got := s.data.peer().Name; got != "hub" {
		t.Errorf("the selection is %q, the next peer hub", got)
	}
	// A snapshot that puts another peer first leaves the selection where it is.
	s.gateway.status.Peers = append([]api.PeerStatus{{Name: "aaa", PublicKey: "aaa-key", State: api.StateConnected}}, s.gateway.status.Peers...)
	s.pass(time.Second)
	if got := whose(s); got != "hub" {
		t.Errorf("after a refresh %q is shown", got)
	}
	// When the peer is gone, all are shown.
	s.gateway.status.Peers = s.gateway.status.Peers[:1]
	s.pass(time.Second)
	if got := whose(s); got != "all peers" {
		t.Errorf("without the peer %q is shown", got)
	}
	s.press("g", "j", "enter")
	if got := s.view().title(); got != titlePeer {
		t.Errorf("enter opens %s", got)
	}
}

func TestThroughputSumsWhatTheFilterPicks(t *testing.T) {
	s := flowing(t, 120, 30, false).press("3").typed("/site-0").press("enter")
	one := s.views[2].draw(s.data, 120, 20)
	if !strings.Contains(one, "1 of 9 peers") {
		t.Errorf("the heading does not count the picked peers:\n%s", one)
	}
	s.press("esc").typed("/!site").press("enter")
	v := &throughput{}
	if got := len(v.traffic(s.data).rx); got != 3 {
		t.Errorf("%d peers have no site in their name, want 3", got)
	}
}

// TestThroughputFiguresAreThoseOfTheSamples uses constant rates, of which all figures are known.
func TestThroughputFiguresAreThoseOfTheSamples(t *testing.T) {
	s := flowing(t, 120, 30, false).press("3")
	for _, r := range s.data.traffic {
		for i := range r.samples {
			r.samples[i].rx, r.samples[i].tx = 1000, 10
		}
	}
	lines := strings.Split(s.View(), "\n")
	var rx string
	for _, l := range lines {
		if strings.HasPrefix(l, "rx ") && !strings.ContainsAny(l, "┤│") {
			rx = strings.Join(strings.Fields(l), " ")
		}
	}
	if !strings.HasPrefix(rx, "rx 9.0 kB/s") || !strings.Contains(rx, "9.0 kB/s 6.2 GB") {
		t.Errorf("the figures of nine peers at 1 kB/s are %q", rx)
	}
}

func TestThroughputNamesTheLargestAndCountsTheRest(t *testing.T) {
	s := flowing(t, 120, 30, false)
	legend := (&throughput{}).traffic(s.data).legend
	if len(legend) != chart.Layers || legend[len(legend)-1].Name != "4 others" {
		t.Errorf("the legend is %+v", legend)
	}
}

// BenchmarkThroughput draws 100 peers over an hour.
func BenchmarkThroughput(b *testing.B) {
	d := newData(noon)
	d.statusAt = noon
	for i := range 100 {
		p := api.PeerStatus{Name: fmt.Sprintf("site-%d", i), PublicKey: fmt.Sprintf("key-%d", i)}
		d.status.Peers = append(d.status.Peers, p)
		r := &ring{}
		for back := 3599; back >= 0; back-- {
			r.samples = append(r.samples, sample{noon.Add(-time.Duration(back) * time.Second).UnixMilli(), float32(i), 1})
		}
		d.traffic[p.PublicKey] = r
	}
	v := &throughput{window: 2}
	b.ReportAllocs()
	for b.Loop() {
		v.draw(d, 200, 50)
	}
}
