package discovery_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A hub whose only relay was restarted probes its ports for one peer after the other, and for
// none that was removed.
func TestAHubAsksARelaysPortsForOnePeerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers = 4
		relay := netip.MustParseAddr("192.0.2.1")
		key, err := peer.NewPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards the following
		via, port := "before", uint16(60000)
		var began time.Time
		perSecond := make(map[time.Duration]int)
		f, err := discovery.NewPathfinder(discovery.PathfinderOptions{
			PrivateKey: key, BootID: 1, Route: func(peer.PublicKey, path.Routing) {},
			Send: func(_ []byte, to peer.Path, _ int, _ bool) error {
				mu.Lock()
				defer mu.Unlock()
				if to.Via == "after" {
					perSecond[time.Since(began)/time.Second]++
				}
				return nil
			},
			Own: func() ([]netip.Addr, error) { return nil, nil },
			Local: func() path.Local {
				mu.Lock()
				defer mu.Unlock()
				if via == "" {
					return path.Local{}
				}
				return path.Local{Relays: []path.Relay{{Via: via, Addr: netip.AddrPortFrom(relay, port), Server: "turn.example.net:3478"}}}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []discovery.PathPeer
		for i := range peers {
			k, err := peer.NewPrivateKey()
			if err != nil {
				t.Fatal(err)
			}
			at := netip.AddrPortFrom(relay, uint16(50000+i))
			all = append(all, discovery.PathPeer{Key: k.Public(), Candidates: []discovery.Candidate{{Addr: at, Source: path.SourceRelay}}})
		}
		if err := f.SetPeers(all); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = f.Run(ctx) })
		synctest.Wait()
		for _, p := range all {
			f.HandshakeDone(p.Key, peer.Path{Via: "before", Remote: p.Candidates[0].Addr})
		}
		time.Sleep(time.Second) // they are selected
		restart := func(now string, at uint16) {
			mu.Lock()
			via, port, began = now, at, time.Now()
			mu.Unlock()
			f.LocalChanged()
			time.Sleep(time.Second)
		}
		restart("", 0)
		restart("after", 60001)
		if err := f.SetPeers(all[1:]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(peers * 6 * time.Second)
		cancel()
		running.Wait()
		total := 0
		for second, n := range perSecond {
			total += n
			if n > 4200 {
				t.Errorf("%d probes over the new allocation in second %d, want 4,000 and a few", n, second)
			}
		}
		if total < (peers-1)*16383 {
			t.Errorf("%d probes over the new allocation, want a round of 16,383 for each of %d peers", total, peers-1)
		}
	})
}
