package discovery_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// exchange connects path finders without a network: what one sends, another handles in the same
// call.
type exchange struct {
	at    sync.Map // of netip.AddrPort → *discovery.Pathfinder
	bytes atomic.Uint64
	count atomic.Uint64
}

// join creates a path finder with an address.
func (x *exchange) join(b *testing.B, at netip.AddrPort) (*discovery.Pathfinder, peer.PublicKey) {
	b.Helper()
	key, err := peer.NewPrivateKey()
	if err != nil {
		b.Fatal(err)
	}
	f, err := discovery.NewPathfinder(discovery.PathfinderOptions{
		PrivateKey: key, BootID: 1, Route: func(peer.PublicKey, path.Routing) {},
		Send: func(packet []byte, to peer.Path, _ int, _ bool) error {
			if other, ok := x.at.Load(to.Remote); ok && to.Via == "" {
				x.bytes.Add(uint64(len(packet)) + 28) // IPv4 and UDP headers
				x.count.Add(1)
				other.(*discovery.Pathfinder).HandleSTUN(packet, peer.Direct(at))
			}
			return nil
		},
		Local: func() path.Local { return path.Local{Hosts: []netip.Addr{at.Addr()}} },
	})
	if err != nil {
		b.Fatal(err)
	}
	x.at.Store(at, f)
	return f, key.Public()
}

// BenchmarkIdlePeers measures the cost of 500 idle peers: the processor time of the hub and of
// its 500 peers together, in real time, and the bytes on the wire.
func BenchmarkIdlePeers(b *testing.B) {
	const peers = 500
	const measured = 40 * time.Second // two keepalives
	var x exchange
	hubAt := netip.MustParseAddrPort("203.0.113.1:51820")
	hub, hubKey := x.join(b, hubAt)
	all := []*discovery.Pathfinder{hub}
	var known []discovery.PathPeer
	for i := range peers {
		f, key := x.join(b, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 51820))
		known = append(known, discovery.PathPeer{Key: key, Name: fmt.Sprintf("peer-%d", i)})
		err := f.SetPeers([]discovery.PathPeer{{
			Key: hubKey, Name: "hub",
			Candidates: []discovery.Candidate{{Addr: hubAt, Source: discovery.SourceAdvertised}},
		}})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, f)
	}
	if err := hub.SetPeers(known); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, f := range all {
		running.Go(func() { _ = f.Run(ctx) })
	}
	for _, p := range known {
		for s, _ := hub.Snapshot(p.Key); s.Kind != path.KindDirect; s, _ = hub.Snapshot(p.Key) {
			waitABit(b, 10*time.Millisecond)
		}
	}
	for b.Loop() {
		waitABit(b, measured) // probes for the MTU come in the first round
		cpu, bytes, count := cpuTime(b), x.bytes.Load(), x.count.Load()
		waitABit(b, measured)
		b.ReportMetric(100*float64(cpuTime(b)-cpu)/float64(measured), "%core")
		day := float64(24*time.Hour) / float64(measured)
		b.ReportMetric(float64(x.bytes.Load()-bytes)*day/peers/1e6, "MB/peer/day")
		b.ReportMetric(float64(x.count.Load()-count)/measured.Seconds(), "datagrams/s")
	}
}

// waitABit is for benchmarks, which measure what happens in a given time.
func waitABit(b *testing.B, d time.Duration) {
	b.Helper()
	select {
	case <-time.After(d):
	case <-b.Context().Done():
		b.Fatal("stopped")
	}
}

// cpuTime returns the process's CPU time.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
