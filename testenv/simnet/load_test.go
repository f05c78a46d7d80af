package simnet_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/postern-dev/postern/testenv/simnet"
)

// pair returns two hosts, the first behind a NAT, with a socket each.
func pair(tb testing.TB, c simnet.Conditions) (in *simnet.Internet, a, b *simnet.Conn) {
	tb.Helper()
	in = simnet.New(simnet.Options{Seed: 1})
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	nat, err := in.AddNAT(simnet.NATOptions{Name: "nat", Addrs: addrs("198.51.100.7"), Behaviour: simnet.PortRestricted(), Link: simnet.Both(c)})
	must(err)
	ha, err := in.AddHost(simnet.HostOptions{Name: "a", Network: nat.Inside(), Addrs: addrs("192.168.1.2")})
	must(err)
	hb, err := in.AddHost(simnet.HostOptions{Name: "b", Addrs: addrs("192.0.2.1"), ReceiveBuffer: 64 << 20})
	must(err)
	a, err = ha.ListenUDP(1)
	must(err)
	b, err = hb.ListenUDP(2)
	must(err)
	return in, a, b
}

// Several writers and one reader, in real time: everything that is not counted as dropped
// arrives, intact and with the right source.
func TestConcurrentWriters(t *testing.T) {
	const writers, each = 4, 2000
	in, a, b := pair(t, simnet.Conditions{Delay: 1, Loss: 0.1})
	var writing, reading sync.WaitGroup
	received := 0
	reading.Go(func() {
		buf := make([]byte, 100)
		for {
			n, from, err := b.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if n == 1 {
				_ = b.Close()
				return
			}
			if w := binary.BigEndian.Uint64(buf); n != 8+int(w) || from.Addr().String() != "198.51.100.7" {
				t.Errorf("got %d bytes of writer %d from %v", n, w, from)
			}
			received++
		}
	})
	to := netip.MustParseAddrPort("192.0.2.1:2")
	for w := range writers {
		writing.Go(func() {
			p := make([]byte, 8+w)
			binary.BigEndian.PutUint64(p, uint64(w))
			for range each {
				if _, err := a.WriteToUDPAddrPort(p, to); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	for range 100 { // one of them gets through
		if _, err := a.WriteToUDPAddrPort([]byte{0}, to); err != nil {
			t.Error(err)
		}
	}
	reading.Wait()
	in.Close() // what is still under way is dropped
	sum, expected := 0, []simnet.Reason{simnet.DropLoss, simnet.DropPortClosed, simnet.DropInternetClosed}
	for _, e := range in.Trace() {
		if e.Kind == simnet.Dropped && !slices.Contains(expected, e.Reason) {
			t.Errorf("dropped for another reason: %v", e)
		}
	}
	for _, n := range in.Dropped() {
		sum += int(n)
	}
	if want := writers * each; received < want*8/10 || received+sum < want {
		t.Errorf("received %d, dropped %v, sent %d", received, in.Dropped(), want)
	}
}

func benchmarkThroughput(b *testing.B, c simnet.Conditions) {
	const size = 1450
	in, src, dst := pair(b, c)
	defer in.Close()
	to := netip.MustParseAddrPort("192.0.2.1:2")
	var reading sync.WaitGroup
	read := 0
	reading.Go(func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := dst.ReadFromUDPAddrPort(buf); err != nil {
				return
			}
			read++
		}
	})
	p := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		if _, err := src.WriteToUDPAddrPort(p, to); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*size*8/b.Elapsed().Seconds()/1e9, "Gbit/s")
	in.Close()
	reading.Wait()
	b.ReportMetric(100*float64(read)/float64(b.N), "%read")
}

// BenchmarkThroughput sends datagrams of 1450 bytes through a NAT, without delay and with one,
// which uses the scheduler.
func BenchmarkThroughput(b *testing.B) {
	b.Run("direct", func(b *testing.B) { benchmarkThroughput(b, simnet.Conditions{}) })
	b.Run("delayed", func(b *testing.B) { benchmarkThroughput(b, simnet.Conditions{Delay: 1e6}) })
}
