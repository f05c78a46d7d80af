package check

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// Probes that show that a peer answers replace the pings, but changes of its path are still
// noticed.
func TestProbesDoNotHideWhatBecameOfThePath(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*PathFacts)
		check  string
		want   catalogue.Code
	}{
		{"a relay", func(p *PathFacts) { p.Kind, p.Since, p.Answered = api.PathRelay, time.Now(), time.Now() }, api.ServiceGateway, catalogue.RelayInUse},
		{"a narrow path", func(p *PathFacts) { p.MTU = 1216 }, NameMTU, catalogue.PathMTUSmall},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				path := PathFacts{Kind: api.PathDirect, Remote: publicCloud, MTU: 1420, LinkMTU: 1420}
				f.opts.Facts = func(string) (Facts, bool) {
					f.mu.Lock()
					defer f.mu.Unlock()
					x := f.facts
					x.Probed, x.Path = time.Now().Add(-10*time.Second), path
					return x, true
				}
				code := func() catalogue.Code {
					synctest.Wait()
					return f.Finding("cloud", c.check).Code
				}
				before := path
				f.SetPeers([]string{"cloud"})
				if got := code(); got != "" {
					t.Errorf("at first: got %s", got)
				}
				f.mu.Lock()
				c.change(&path)
				f.mu.Unlock()
				time.Sleep(time.Minute + 12*time.Second) // two rounds with their jitter
				if got := code(); got != c.want {
					t.Errorf("after the change: got %q, want %s", got, c.want)
				}
				f.mu.Lock()
				path = before
				f.mu.Unlock()
				time.Sleep(37 * time.Second)
				if got := code(); got != "" {
					t.Errorf("when it was as before: got %s", got)
				}
			})
		})
	}
}

// The pings themselves must not fill the line. With many peers only a few are measured at a time,
// and a report is still complete in time.
func TestLossIsMeasuredOfFewPeersAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := make(map[netip.Addr]int) // in the last 10 ms
		var most int
		began := time.Now()
		peers := make([]string, 40)
		for i := range peers {
			peers[i] = fmt.Sprintf("peer%d", i)
		}
		r := NewRunner(Options{
			Dial: newOverlay(t).Dial,
			Ping: func(_ context.Context, to netip.Addr, _ int) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				if time.Since(began) >= 10*time.Millisecond {
					began = time.Now()
					clear(sent)
				}
				sent[to]++
				most = max(most, len(sent))
				return time.Millisecond, nil
			},
			Facts: func(name string) (Facts, bool) {
				f := facts()
				f.Name = name
				var i int
				if _, err := fmt.Sscanf(name, "peer%d", &i); err != nil {
					return f, false
				}
				f.Address = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)})
				return f, true
			},
		})
		defer r.Close()
		r.SetPeers(peers)
		synctest.Wait()
		time.Sleep(time.Second)
		mu.Lock()
		most = 0
		mu.Unlock()
		start := time.Now()
		_, found, err := r.Find(t.Context(), "", true)
		if took := time.Since(start); err != nil || took > 10*time.Second {
			t.Errorf("the report took %s: %v", took, err)
		}
		gateways := 0
		for _, p := range found {
			if f, _ := verdict.Find(p.Outbound, api.ServiceGateway); f.Outcome == api.OK {
				gateways++
			}
		}
		if gateways != len(peers) {
			t.Errorf("%d of %d gateways are well", gateways, len(peers))
		}
		// The first ping of each peer comes at once; then the bursts.
		if most != len(peers) {
			t.Errorf("%d peers were pinged at once at first, want all", most)
		}
		mu.Lock()
		total := 0
		for range sent {
			total++
		}
		mu.Unlock()
		if total > maxBursts {
			t.Errorf("%d peers were measured at the same time, want at most %d", total, maxBursts)
		}
	})
}
