package screen

import (
	"fmt"
	"slices"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
)

// crowd is a screen over a gateway with n peers, with an hour of their traffic, services, events
// and a full log.
func crowd(tb testing.TB, n, width, height int) (*model, *time.Time) {
	tb.Helper()
	f := many(n)
	for i := range n {
		p := &f.status.Peers[i]
		f.services.Services = append(f.services.Services, api.ClusterService{
			Service: fmt.Sprintf("shop/db-%d", i), Peer: p.Name, Direction: []string{api.ServiceExported, api.ServiceImported}[i%2], State: []string{api.ServiceInUse, api.ServiceWaiting, api.ServiceRefused}[i%3],
			Connections: i % 7, Ports: []string{"5432"},
		})
		h := api.PeerHistory{Peer: p.Name}
		for at := noon.Add(-hour); at.Before(noon); at = at.Add(time.Minute) {
			h.Points = append(h.Points, api.HistoryPoint{At: at, Seconds: 60, State: p.State, Path: api.PathDirect, RTTSeconds: 0.01})
			h.Events = append(h.Events, api.HistoryEvent{At: at, Kind: api.EventPath, Event: "direct", Reason: "first answer"})
		}
		f.past.Peers = append(f.past.Peers, h)
	}
	f.services.Enabled = true
	f.past.Since, f.past.To = noon.Add(-hour), noon
	for i := range maxLog {
		f.log.Records = append(f.log.Records, api.LogRecord{Seq: uint64(i + 1), Time: noon, Level: "INFO", Message: "path changed", Attrs: []api.LogAttr{{Key: "peer", Value: fmt.Sprint("peer-", i)}}})
	}
	clock := noon
	tasks := newTasks(tb.Context())
	tb.Cleanup(tasks.close)
	m := newModel(Options{Source: f, Color: true, Now: func() time.Time { return clock }}, tasks)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(m.poll()())
	for i := range m.data.status.Peers {
		p := &m.data.status.Peers[i]
		r := m.data.traffic[peerID(p)]
		r.samples = r.samples[:0]
		for at := noon.Add(-keep); !at.After(noon); at = at.Add(3 * time.Second) {
			r.samples = append(r.samples, sample{at.UnixMilli(), float32(i) * 1000, float32(i) * 100})
		}
	}
	return m, &clock
}

// look shows a view, and handles all its requests.
func (m *model) look(i int) {
	m.show(i)
	for range 2 {
		m.View()
		m.data.polling, m.data.polledAt = false, time.Time{}
		m.Update(m.ask(m.now())())
	}
	m.View()
}

// keysOf returns the keys that go through a view's content.
func keysOf(title string) string {
	if title == titleThroughput { // j selects a single peer
		return "++--"
	}
	return "jjjk"
}

func pressOf(k byte) tea.KeyMsg { return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{rune(k)}} }

// TestAPictureTakesNoMoreOfMorePeers counts the allocations from a key to its frame: they depend on
// what fits the screen, not on all there is.
func TestAPictureTakesNoMoreOfMorePeers(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}} {
		allocated := map[string]float64{}
		for _, n := range []int{100, 1000} {
			m, _ := crowd(t, n, size[0], size[1])
			for i := range m.views {
				m.look(i)
				title, keys := m.view().title(), 0
				now := testing.AllocsPerRun(4, func() {
					m.Update(pressOf(keysOf(title)[keys%4]))
					m.View()
					keys++
				})
				if of100 := allocated[title]; n == 1000 && now > of100*1.2+50 {
					t.Errorf("%s at %dx%d: %.0f allocations from a key to its picture of 1,000 peers, %.0f of 100", title, size[0], size[1], now, of100)
				}
				allocated[title] = now
			}
		}
	}
}

// BenchmarkView measures the frame of 1,000 peers after a key, after a letter of a filter, and
// after a snapshot.
func BenchmarkView(b *testing.B) {
	for _, size := range [][2]int{{80, 24}, {200, 60}} {
		m, clock := crowd(b, 1000, size[0], size[1])
		for i := range len(views()) {
			m.look(i)
			name := fmt.Sprintf("%s/%dx%d", m.view().title(), size[0], size[1])
			b.Run("key/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					m.Update(pressOf(keysOf(m.view().title())[i%4]))
					m.View()
				}
			})
			m.Update(pressOf('/'))
			b.Run("filter/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%2 == 0 {
						m.Update(pressOf('1'))
					} else {
						m.Update(tea.KeyMsg{Type: tea.KeyBackspace})
					}
					m.View()
				}
			})
			m.Update(tea.KeyMsg{Type: tea.KeyEsc})
			m.data.polling, m.data.polledAt, m.data.checksAt = false, time.Time{}, time.Time{}
			news := m.ask(*clock)()
			b.Run("news/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					*clock = clock.Add(3 * time.Second)
					m.Update(news)
					m.View()
				}
			})
		}
	}
}

// TestAListIsSortedOnce checks that a list is rebuilt only when something changes that it depends
// on.
func TestAListIsSortedOnce(t *testing.T) {
	m, clock := crowd(t, 50, 80, 24)
	of := func() any {
		switch v := m.view().(type) {
		case *overview:
			return firstOf(v.rows)
		case *checksView:
			return firstOf(v.rows)
		case *flows:
			return firstOf(v.rows)
		case *services:
			return firstOf(v.rows)
		}
		return nil
	}
	for i := range m.views {
		m.look(i)
		title, last := m.view().title(), of()
		if last == nil {
			continue
		}
		again := func(what string, want bool) {
			t.Helper()
			m.View()
			now := of()
			if (now != last) != want {
				t.Errorf("%s: made again after %s: %v", title, what, now != last)
			}
			last = now
		}
		for _, k := range "jjkGg" {
			m.Update(pressOf(byte(k)))
			again("a key", false)
		}
		m.Update(pressOf('s'))
		again("another order", true)
		m.Update(pressOf('/'))
		m.Update(pressOf('1'))
		again("a filter", true)
		m.Update(tea.KeyMsg{Type: tea.KeyEsc})
		again("no filter", true)
		*clock = clock.Add(time.Minute)
		f := m.sources[0].Source.(*fake)
		f.report.Checks = slices.Clone(f.report.Checks) // as from a remote gateway
		m.Update(m.ask(*clock)())
		again("news", true)
	}
}
