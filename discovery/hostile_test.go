package discovery_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

func TestForgedAndReplayedProbesMeetSilence(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		var requests [][]byte
		cloud.mu.Lock()
		cloud.tap = func(b []byte, _ peer.Path) {
			if len(b) > 1 && b[0] == 0 && b[1] == 1 && len(requests) < 20 {
				requests = append(requests, append([]byte(nil), b...))
			}
		}
		cloud.mu.Unlock()
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		synctest.Wait()
		if len(requests) == 0 {
			t.Fatal("no request was seen")
		}
		before, counts := cloud.to(edge), cloud.pf.Counts()
		stranger := netip.MustParseAddr("203.0.113.200")
		over := peer.Direct(netip.AddrPortFrom(stranger, 1))
		var refused uint64
		for i := range 1000 {
			replay := append([]byte(nil), requests[i%len(requests)]...)
			if i%2 == 1 {
				replay[len(replay)-1-i/2%40] ^= 1 << (i % 8)
			}
			if cloud.pf.HandleSTUN(replay, over) {
				refused++
			}
		}
		synctest.Wait()
		cloud.mu.Lock()
		sent := cloud.sentTo[stranger]
		cloud.mu.Unlock()
		if sent != 0 {
			t.Errorf("%d datagrams went to the stranger", sent)
		}
		if got := cloud.pf.Counts(); got.Refused-counts.Refused != refused || refused == 0 {
			t.Errorf("%d packets were probes and %d were refused", refused, got.Refused-counts.Refused)
		}
		if after := cloud.to(edge); len(after.Candidates) != len(before.Candidates) || after.Selected != before.Selected {
			t.Errorf("the candidates changed from %+v to %+v", before.Candidates, after.Candidates)
		}
	})
}

func TestNothingIsSentToHostileCandidates(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.know(cloud, advertised("203.0.113.1:51820"))
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		cloud.mu.Lock()
		clear(cloud.sentTo)
		cloud.mu.Unlock()
		hostile := []string{
			"127.0.0.1:51820", "[::1]:51820", "169.254.169.254:80", "[fd00:ec2::254]:80", "224.0.0.1:1", "255.255.255.255:9",
			"0.0.0.0:1", "10.43.0.1:443", "203.0.113.1:22", "[fe80::1]:1", "[fd12::1]:1", "203.0.113.9:0", "[::ffff:127.0.0.1]:1",
		}
		m := path.Message{Version: path.MessageVersion, Boot: 1, Seq: 1 << 40, Candidates: make([]discovery.Candidate, 0, 10_000)}
		for i := range 10_000 {
			m.Candidates = append(m.Candidates, advertised(hostile[i%len(hostile)]))
		}
		m.Candidates[100] = advertised("203.0.113.66:4000") // an acceptable one
		cloud.pf.Receive(edge.public(), m)
		time.Sleep(10 * time.Minute) // virtual
		cloud.mu.Lock()
		defer cloud.mu.Unlock()
		for _, text := range hostile {
			a := netip.MustParseAddrPort(text)
			if a.Port() == 0 {
				continue
			}
			if n := cloud.sentTo[a.Addr()]; n != 0 {
				t.Errorf("%d datagrams were sent to %v", n, a)
			}
		}
		if cloud.sentTo[netip.MustParseAddr("203.0.113.66")] == 0 {
			t.Error("the candidate that may be tried was not")
		}
	})
}

func TestAnnouncedCandidatesOfBeforeAreCheckedToo(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		peers := []discovery.PathPeer{{
			Key: cloud.public(), Name: "cloud",
			Candidates: []discovery.Candidate{advertised("169.254.169.254:80")},
			Announced:  []discovery.Candidate{advertised("127.0.0.1:1"), advertised("10.43.0.1:443"), advertised("203.0.113.1:51820")},
		}}
		edge.mu.Lock()
		edge.peers = peers
		edge.mu.Unlock()
		if err := edge.pf.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
		for _, c := range edge.to(cloud).Candidates {
			if c.Path.Remote.String() != "203.0.113.1:51820" {
				t.Errorf("candidate %v is tried", c.Path)
			}
		}
	})
}

func TestForbiddenRangesCanBeReplaced(t *testing.T) {
	inParty(t, false, func(t *testing.T, p *party) {
		cloud, edge := p.add("cloud", nil), p.add("edge", nil)
		cloud.know(edge)
		edge.pf.SetForbidden([]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")})
		peers := []discovery.PathPeer{{
			Key: cloud.public(), Name: "cloud",
			Announced: []discovery.Candidate{advertised("203.0.113.1:51820")},
		}}
		edge.mu.Lock()
		edge.peers = peers
		edge.mu.Unlock()
		if err := edge.pf.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // virtual
		synctest.Wait()
		if s := edge.to(cloud); len(s.Candidates) != 0 || s.Kind != path.KindNone {
			t.Errorf("with the range forbidden: got %+v", s)
		}
		edge.pf.SetForbidden(nil)
		p.connected(3*time.Second, path.KindDirect, edge, cloud)
	})
}

func TestNothingAnnouncedIsDialledWhileOwnAddressesAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own, other peer.PrivateKey
		var err error
		for _, k := range []*peer.PrivateKey{&own, &other} {
			if *k, err = peer.NewPrivateKey(); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		fails := errors.New("no netlink")
		var sent []peer.Path
		f, err := discovery.NewPathfinder(discovery.PathfinderOptions{
			PrivateKey: own, BootID: 1, Route: func(peer.PublicKey, path.Routing) {},
			Own: func() ([]netip.Addr, error) { mu.Lock(); defer mu.Unlock(); return nil, fails },
			Send: func(_ []byte, to peer.Path, _ int, _ bool) error {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, to)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = f.SetPeers([]discovery.PathPeer{{Key: other.Public(), Name: "cloud", Announced: []discovery.Candidate{advertised("203.0.113.1:51820")}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = f.Run(ctx) })
		time.Sleep(time.Second) // virtual
		f.Receive(other.Public(), path.Message{Version: path.MessageVersion, Boot: 1, Seq: 1, Candidates: []discovery.Candidate{advertised("203.0.113.2:51820")}})
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		mu.Lock()
		if len(sent) != 0 {
			t.Errorf("sent to %v", sent)
		}
		fails = nil
		mu.Unlock()
		f.LocalChanged()
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		mu.Lock()
		if len(sent) == 0 || sent[0].Remote.String() != "203.0.113.1:51820" {
			t.Errorf("once they are known: sent to %v", sent)
		}
		mu.Unlock()
		cancel()
		running.Wait()
	})
}
