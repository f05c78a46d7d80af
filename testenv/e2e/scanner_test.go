//go:build linux && e2e

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// scanTotal datagrams of five kinds are sent at scanRate per second.
	scanTotal = 100_000
	scanRate  = 20_000
	scanBurst = 200 // sent at once

	// Message types and sizes of the WireGuard protocol (whitepaper §5.4).
	typeInitiation, initiationSize = 1, 148
	typeResponse, responseSize     = 2, 92
	typeCookieReply, cookieSize    = 3, 64
	typeTransport                  = 4
	transportMin                   = 32

	// memoryGrowth bounds what scans may add to the gateway's anonymous memory, in bytes, above
	// the peak of the same transfer alone. It includes the handshakes that the gateway handles at
	// once, of 64 KB each, and garbage until the next collection, which comes when the heap has
	// doubled. A leak of 1 KB per datagram would be 100 MB per scan.
	memoryGrowth = 12 << 20
	// repeats more scans follow the first, and none may add more than repeatGrowth, which covers
	// the garbage of the transfer and of the hundred admitted handshakes.
	repeats      = 3
	repeatGrowth = 3 << 20
	// aliveGrowth bounds how much more a collection may find alive after all scans than before
	// them: buffers of 64 KB that the transfer happens to hold. What the scans leave behind
	// stays, so one later collection that finds less is enough.
	aliveGrowth = 2 << 20
	// goroutineGrowth bounds how many goroutines are left afterwards.
	goroutineGrowth = 10
)

// TestScannerGetsSilence sends every kind of datagram that a scanner might try, while a transfer
// runs, four times.
func TestScannerGetsSilence(t *testing.T) {
	w := newWorld(t)
	capture := startCapture(t, w.cloud, initiationSize)
	p := newPeers(t, w)
	handshakes := capture.stop()
	if len(handshakes) == 0 {
		t.Fatal("no handshake was seen on the way to cloud: the search found nothing")
	}

	d := startDownload(t, w.edge, blobLocal, 4<<20)
	pid := p.cloud.proc.PID()
	before := p.alive()
	alone := peakMemory(t, pid, 5*time.Second)
	goroutines := p.goroutines()

	s := newScanner(t, w)
	highest := s.scan(t, d, pid, handshakes)
	t.Logf("peak RssAnon: %.1f MB with the transfer alone, %.1f MB while scanned", mb(alone), mb(highest))
	for range repeats {
		last := highest
		highest = max(last, s.scan(t, d, pid, handshakes))
		t.Logf("peak RssAnon: %.1f MB with another scan", mb(highest))
		if highest > last+repeatGrowth {
			t.Errorf("another scan raised RssAnon from %.1f to %.1f MB, more than by %.0f", mb(last), mb(highest), mb(repeatGrowth))
		}
	}
	if highest > alone+memoryGrowth {
		t.Errorf("scans raised RssAnon from %.1f to %.1f MB, more than by %.0f", mb(alone), mb(highest), mb(memoryGrowth))
	}
	s.checkArrival(t, (1+repeats)*scanTotal)
	eventually(within(t, 4*patience), t, fmt.Sprintf("a collection finds at most %d MB more alive than before the scans", aliveGrowth>>20), func() (bool, string) {
		after := p.alive()
		t.Logf("alive after a collection: %.2f MB before the scans, %.2f MB after them", mb(before), mb(after))
		return after <= before+aliveGrowth, fmt.Sprintf("%.2f MB alive, %.2f before", mb(after), mb(before))
	})

	eventually(within(t, patience), t, "no goroutine is left of the scans", func() (bool, string) {
		now := p.goroutines()
		return now <= goroutines+goroutineGrowth, fmt.Sprintf("%d goroutines, %d before", now, goroutines)
	})
	moved := d.bytes.Load()
	eventually(within(t, patience), t, "the transfer goes on", func() (bool, string) {
		return d.bytes.Load() > moved, "no byte since the scans"
	})
	if dropped, found := p.cloud.metric("postern_underlay_dropped_datagrams_total"); !found || int(dropped) < scanTotal/5 {
		t.Errorf("postern_underlay_dropped_datagrams_total is %v, want at least the %d of one kind", dropped, scanTotal/5)
	}
}

// scan sends scanTotal datagrams of five kinds, checks the replies and that the download
// continues, and returns the process's highest RssAnon meanwhile, in bytes.
func (s *scanner) scan(t *testing.T, d *download, pid int, handshakes [][]byte) (peak int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []struct {
		name    string
		next    func() []byte
		cookies bool // whether cookie replies are within the rules
	}{
		{"random bytes", func() []byte { return randomBytes(random, 1+random.IntN(1400)) }, false},
		{"truncated WireGuard", func() []byte { return truncated(random) }, false},
		{"WireGuard with a wrong mac", func() []byte { return forged(random) }, false},
		{"replayed handshakes", func() []byte { return handshakes[random.IntN(len(handshakes))] }, true},
		{"STUN", func() []byte { return stun(random) }, false},
	}
	stopWatching := watchPeak(t, pid)
	for _, kind := range kinds {
		before := d.bytes.Load()
		start := time.Now()
		s.send(t, scanTotal/len(kinds), kind.next)
		sent := time.Now()
		for d.bytes.Load() == before { // it lasts a second, in which a busy machine may transfer nothing
			if time.Since(start) > patience {
				t.Fatalf("%s: the transfer stood still for %v", kind.name, time.Since(start))
			}
			s.send(t, scanBurst, kind.next)
		}
		late(t, kind.name+": the transfer goes on", time.Since(sent), 2*time.Second)
		cookies, others := s.replies(t)
		switch {
		case len(others) > 0:
			t.Errorf("%s: %d replies, the first of them %x", kind.name, len(others), others[0])
		case cookies > 0 && !kind.cookies:
			t.Errorf("%s: %d cookie replies to messages without a valid mac", kind.name, cookies)
		}
		t.Logf("%s: %d cookie replies; the transfer moved %d KB in %v; RssAnon %.1f MB", kind.name, cookies, (d.bytes.Load()-before)>>10, time.Since(start).Round(time.Millisecond), mb(rssAnon(t, pid)))
	}
	return stopWatching()
}

// TestReplaysKeepNobodyOut: a gateway behind a NAT enrols, and resumes after a restart, while
// another's handshakes are replayed at full speed.
func TestReplaysKeepNobodyOut(t *testing.T) {
	w := newWorld(t)
	cloud := newGateway(t, w.cloud, "cloud").start()
	third := newGateway(t, w.third, "third").start()
	edge := newGateway(t, w.edge, "edge").start()
	capture := startCapture(t, w.cloud, initiationSize)
	enrol(cloud, third, nil, nil)
	handshakes := capture.stop()
	if len(handshakes) == 0 {
		t.Fatal("no handshake was seen on the way to cloud: the search found nothing")
	}

	s := newScanner(t, w)
	stop := s.flood(t, handshakes)
	eventually(within(t, patience), t, "cloud asks for cookies", func() (bool, string) {
		n, _ := cloud.metric("postern_underlay_dropped_datagrams_total", `reason="handshake-cookie"`)
		return n > 0, fmt.Sprintf("%v handshakes were asked for one", n)
	})
	begun := time.Now()
	enrol(cloud, edge, nil, nil)
	t.Logf("enrolled and connected in %v", time.Since(begun).Round(time.Millisecond))
	edge.stop(syscall.SIGKILL)
	begun = time.Now()
	edge.start()
	edge.waitConnected("cloud")
	t.Logf("ready and connected again %v after a kill", time.Since(begun).Round(time.Millisecond))
	sent := stop()
	in, _, err := s.meter.Read(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d replayed handshakes reached cloud; RssAnon %.1f MB", in.Packets, sent, mb(rssAnon(t, cloud.proc.PID())))
	if int(in.Packets) < sent*9/10 {
		t.Errorf("%d datagrams reached cloud, want nearly all of %d", in.Packets, sent)
	}
}

// flood replays handshakes at scanRate until stop or the test's end; stop returns how many were
// sent.
func (s *scanner) flood(t *testing.T, handshakes [][]byte) (stop func() int) {
	t.Helper()
	ended, sent := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { sent <- n }()
		tick := time.NewTicker(scanBurst * time.Second / scanRate)
		defer tick.Stop()
		for {
			if err := s.burst(func() []byte { n++; return handshakes[n%len(handshakes)] }); err != nil {
				t.Errorf("replay handshakes: %v", err)
				return
			}
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	}()
	stop = sync.OnceValue(func() int { close(ended); return <-sent })
	t.Cleanup(func() { stop() })
	return stop
}

// goroutines returns cloud's number of goroutines, from its metrics.
func (p *pair) goroutines() int {
	p.t.Helper()
	n, found := p.cloud.metric("go_goroutines")
	if !found {
		p.t.Fatal("cloud exports no go_goroutines")
	}
	return int(n)
}

// alive returns how many bytes of cloud's heap, including stacks, a collection that begins after
// the call finds alive: half of the size at which the next one is due (GOGC is 100 while there is
// traffic). The heap size itself includes what is not swept yet. The requests create the garbage
// that makes the collector run within seconds instead of once in two minutes.
func (p *pair) alive() (size int) {
	p.t.Helper()
	number := func(text, name string) int {
		n, found := sumSeries(p.t, text, name)
		if !found {
			p.t.Fatalf("cloud exports no %s", name)
		}
		return int(n)
	}
	first := 0
	eventually(within(p.t, 5*time.Minute), p.t, "a collection begins and ends", func() (bool, string) {
		text, err := p.cloud.httpGet("/metrics")
		if err != nil {
			p.t.Fatal(err)
		}
		ran := number(text, "go_gc_duration_seconds_count")
		if first == 0 {
			first = ran
		}
		size = number(text, "go_memstats_next_gc_bytes") / 2
		return ran >= first+2, fmt.Sprintf("%d collections of 2", ran-first)
	})
	return size
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// truncated returns a datagram that begins like a WireGuard message but has an impossible length.
func truncated(r *rand.Rand) []byte {
	sizes := map[byte]int{typeInitiation: initiationSize, typeResponse: responseSize, typeCookieReply: cookieSize, typeTransport: transportMin}
	kind := byte(1 + r.IntN(4))
	b := randomBytes(r, 4+r.IntN(sizes[kind]-4))
	copy(b, []byte{kind, 0, 0, 0})
	return b
}

// forged returns a datagram that only has the form of a WireGuard message.
func forged(r *rand.Rand) []byte {
	sizes := map[byte]int{typeInitiation: initiationSize, typeResponse: responseSize, typeCookieReply: cookieSize, typeTransport: transportMin + 16*r.IntN(80)}
	kind := byte(1 + r.IntN(4))
	b := randomBytes(r, sizes[kind])
	copy(b, []byte{kind, 0, 0, 0})
	return b
}

// stun returns a binding request, indication or success with no attribute or a random one (RFC
// 8489 §5).
func stun(r *rand.Rand) []byte {
	types := []uint16{0x0001, 0x0011, 0x0101}
	var body []byte
	if r.IntN(2) == 0 {
		value := randomBytes(r, 4*(1+r.IntN(8)))
		body = binary.BigEndian.AppendUint16(body, uint16(r.Uint32()))
		body = binary.BigEndian.AppendUint16(body, uint16(len(value)))
		body = append(body, value...)
	}
	b := binary.BigEndian.AppendUint16(nil, types[r.IntN(len(types))])
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = binary.BigEndian.AppendUint32(b, 0x2112A442)
	b = append(b, randomBytes(r, 12)...)
	return append(b, body...)
}

// scanner sends to cloud's port and stores the replies.
type scanner struct {
	conn  *net.UDPConn
	meter *netlab.Meter
	ended chan struct{}

	mu      sync.Mutex
	cookies int
	others  [][]byte
	total   int
}

func newScanner(t *testing.T, w *world) *scanner {
	t.Helper()
	conn, err := w.scanner.ListenUDP(netip.MustParseAddrPort(scannerAddr + ":40000"))
	if err != nil {
		t.Fatal(err)
	}
	// Replies are counted, so none may be lost to a small buffer.
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var sockErr error
	if err := raw.Control(func(fd uintptr) {
		sockErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}); err != nil || sockErr != nil {
		t.Fatal(err, sockErr)
	}
	s := &scanner{conn: conn, meter: w.cloud.MeterUDP(gatewayPort, scannerAddr), ended: make(chan struct{})}
	go s.receive()
	t.Cleanup(func() { conn.Close(); <-s.ended })
	return s
}

func (s *scanner) receive() {
	defer close(s.ended)
	b := make([]byte, 2048)
	for {
		n, err := s.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an earlier datagram
		}
		s.mu.Lock()
		s.total++
		if n == cookieSize && bytes.Equal(b[:4], []byte{typeCookieReply, 0, 0, 0}) {
			s.cookies++
		} else {
			s.others = append(s.others, bytes.Clone(b[:n]))
		}
		s.mu.Unlock()
	}
}

// send sends n datagrams at scanRate.
func (s *scanner) send(t *testing.T, n int, next func() []byte) {
	t.Helper()
	tick := time.NewTicker(scanBurst * time.Second / scanRate)
	defer tick.Stop()
	for sent := 0; sent < n; sent += scanBurst {
		if err := s.burst(next); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// burst sends scanBurst datagrams.
func (s *scanner) burst(next func() []byte) error {
	to := netip.AddrPortFrom(netip.MustParseAddr(cloudAddr), gatewayPort)
	for range scanBurst {
		if _, err := s.conn.WriteToUDPAddrPort(next(), to); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
	}
	return nil
}

// replies waits until cloud has sent its last reply and all have arrived, and returns those since
// the last call.
func (s *scanner) replies(t *testing.T) (cookies int, others [][]byte) {
	t.Helper()
	const quiet = 5 // polls without a further reply
	var last uint64
	same := 0
	eventually(within(t, patience), t, "cloud has answered all it will", func() (bool, string) {
		_, out, err := s.meter.Read(within(t, patience))
		if err != nil {
			t.Fatal(err)
		}
		if out.Packets != last {
			last, same = out.Packets, 0
		}
		same++
		s.mu.Lock()
		defer s.mu.Unlock()
		return same > quiet && last == uint64(s.total), fmt.Sprintf("%d sent by cloud, %d received", last, s.total)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	cookies, others = s.cookies, s.others
	s.cookies, s.others = 0, nil
	return cookies, others
}

// checkArrival reads cloud's own counters: a scan that got lost on the way proves nothing.
func (s *scanner) checkArrival(t *testing.T, sent int) {
	t.Helper()
	in, out, err := s.meter.Read(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d datagrams reached cloud, %d went back", in.Packets, out.Packets)
	if int(in.Packets) < sent*9/10 {
		t.Errorf("%d datagrams reached cloud, want nearly all of %d", in.Packets, sent)
	}
}
