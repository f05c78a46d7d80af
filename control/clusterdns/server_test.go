package clusterdns

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/testenv/patience"
)

// serve runs a server until the test ends.
func serve(t *testing.T) (s *Server, addr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var l *Listener
	for range 10 { // the same port may be taken for UDP
		var err error
		if l, err = Listen(ctx, "127.0.0.1:0"); err == nil {
			break
		}
		t.Log(err)
	}
	if l == nil {
		t.Fatal("there is no port")
	}
	s = New(self, slog.New(slog.DiscardHandler))
	s.SetZone(shop())
	var running sync.WaitGroup
	running.Go(func() { s.Serve(ctx, l) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s, l.Addr().String()
}

func ask(t *testing.T, c *dns.Client, addr string, name string) *dns.Msg {
	t.Helper()
	c.Timeout = patience.Left()
	m, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), addr)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A resolver asks by UDP, and by TCP for what was too long.
func TestTheServerAnswersByBoth(t *testing.T) {
	s, addr := serve(t)
	if m := ask(t, &dns.Client{}, addr, "web.shop.svc."+Domain); brief(m) != "10.96.0.7" {
		t.Errorf("got %v", m)
	}
	if m := ask(t, &dns.Client{}, addr, "many.shop.svc."+Domain); !m.Truncated {
		t.Errorf("got %v", m)
	}
	if m := ask(t, &dns.Client{Net: "tcp"}, addr, "many.shop.svc."+Domain); m.Truncated || len(m.Answer) != 200 {
		t.Errorf("by TCP got %d answers", len(m.Answer))
	}
	ask(t, &dns.Client{}, addr, "none.svc."+Domain)
	ask(t, &dns.Client{}, addr, "example.com.")
	got := s.Queries()
	if got["NOERROR"] != 3 || got["NXDOMAIN"] != 1 || got["REFUSED"] != 1 || len(got) != len(counted)+2 {
		t.Errorf("it counts %v", got)
	}
}

// Whoever asks without end gets answers to so many, and leaves others theirs.
func TestAFloodIsLimited(t *testing.T) {
	s := New(self, slog.New(slog.DiscardHandler))
	s.SetZone(shop())
	wire, err := new(dns.Msg).SetQuestion("web.shop.svc."+Domain, dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	asks := func(from string, n int) (answers int) {
		for range n {
			response := new(dns.Msg)
			if err := response.Unpack(s.handle(t.Context(), wire, byUDP, netip.MustParseAddr(from))); err != nil {
				t.Fatal(err)
			}
			if !response.Truncated {
				answers++
			}
		}
		return answers
	}
	begin := time.Now()
	n := asks("10.244.0.1", 50*sourceBurst)
	if most := sourceBurst + int(time.Since(begin).Seconds()*sourceRate) + 1; n < sourceBurst || n > most {
		t.Errorf("one that floods got %d answers, want %d to %d", n, sourceBurst, most)
	}
	if n := asks("::ffff:10.244.0.2", 10); n != 10 {
		t.Errorf("another got %d answers of 10", n)
	}
	for n := range 2 * maxSources {
		s.handle(t.Context(), wire, byUDP, netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}))
	}
	if n := len(s.limits[byUDP].sources); n > maxSources+1 {
		t.Errorf("%d addresses are remembered", n)
	}
	if n := s.Queries()[resultLimited]; n == 0 {
		t.Error("what is not answered is not counted")
	}
}

// However many addresses ask without end, one that asks as often as its part allows is answered.
func TestAFloodOfManyLeavesOthersTheirPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(self, slog.New(slog.DiscardHandler))
		s.SetZone(shop())
		wire, err := new(dns.Msg).SetQuestion("web.shop.svc."+Domain, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		const floods, each, seconds = 24, 2 * sourceRate / 100, 5
		asks := func(n byte) bool {
			response := s.handle(t.Context(), wire, byUDP, netip.AddrFrom4([4]byte{10, 244, 0, n}))
			return binary.BigEndian.Uint16(response[2:])&flagTruncated == 0
		}
		var flooded, missed int
		for now := range seconds * 100 { // hundredths of a second
			for n := range floods {
				for range each {
					if asks(byte(n)) && now >= 100 { // then they have no burst any more
						flooded++
					}
				}
			}
			for range totalRate / (floods + 1) / 100 {
				if !asks(255) {
					missed++
				}
			}
			time.Sleep(time.Second / 100)
		}
		if missed > 0 {
			t.Errorf("%d queries of one that asks for its part only were not answered", missed)
		}
		if most := (seconds - 1) * 2 * totalRate; flooded > most {
			t.Errorf("%d queries of floods were answered in %d s, at most %d may be", flooded, seconds-1, most)
		}
		time.Sleep(2 * time.Second)
		n := 0
		for range 2 * sourceBurst {
			if asks(1) {
				n++
			}
		}
		for range 100 {
			time.Sleep(time.Second / 100)
			for range 2 * sourceRate / 100 {
				if asks(1) {
					n++
				}
			}
		}
		if least := sourceRate * 9 / 10; n < least {
			t.Errorf("alone it gets %d answers in a second, want at least %d", n, least)
		}
	})
}

// One that asks much, such as the cluster's DNS, is not limited because many others ask, but little.
func TestThoseThatAskLittleLeaveTheRestToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(self, slog.New(slog.DiscardHandler))
		asks := func(n int) bool {
			return s.admit(t.Context(), byUDP, netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)}))
		}
		const others, seconds = 1000, 3
		for now := range seconds * 100 { // hundredths of a second
			for n := range others / 100 {
				if !asks(1 + now%100*others/100 + n) {
					t.Fatal("one that asks once a second is not answered")
				}
			}
			for range sourceRate / 100 {
				if !asks(0) {
					t.Fatalf("%v: one that asks much, but not too much, is not answered", time.Duration(now)*time.Second/100)
				}
			}
			time.Sleep(time.Second / 100)
		}
	})
}

// However many addresses are forged, those that asked before keep their parts, and others get few answers.
func TestForgedAddressesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(self, slog.New(slog.DiscardHandler))
		asks := func(n int) bool {
			return s.admit(t.Context(), byUDP, netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
		}
		asks(0)
		answered := 0
		for now := range 400 { // hundredths of a second
			for n := range 1000 {
				if asks(1+now*1000+n) && now >= 100 {
					answered++
				}
			}
			if now%50 == 49 && !asks(0) {
				t.Fatal("one that asks twice a second is not answered")
			}
			time.Sleep(time.Second / 100)
		}
		if most := 3 * 2 * totalRate; answered > most {
			t.Errorf("%d forged queries are answered in 3 s, at most %d may be", answered, most)
		}
	})
}

// However many queries are forged, also in the name of the cluster's DNS, it is sent to TCP, and answered
// there at once.
func TestForgedQueriesKeepNobodyOutByTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(self, slog.New(slog.DiscardHandler))
		s.SetZone(shop())
		q := new(dns.Msg).SetQuestion("web.shop.svc."+Domain, dns.TypeA).SetEdns0(maxUDP, false)
		wire, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		honest := netip.MustParseAddr("10.244.0.1")
		for n := range 4 * maxSources {
			s.handle(t.Context(), wire, byUDP, netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}))
			s.handle(t.Context(), wire, byUDP, honest)
		}
		m := new(dns.Msg)
		if response := s.handle(t.Context(), wire, byUDP, honest); len(response) > len(wire) {
			t.Errorf("%d bytes are answered to %d", len(response), len(wire))
		} else if err := m.Unpack(response); err != nil || !m.Response || !m.Truncated || m.Id != q.Id || len(m.Question) != 1 || len(m.Answer) != 0 {
			t.Errorf("by UDP got %v, %v", m, err)
		}
		begun := time.Now()
		for range 100 {
			if err := m.Unpack(s.handle(t.Context(), wire, byTCP, honest)); err != nil || m.Truncated || len(m.Answer) == 0 {
				t.Fatalf("by TCP got %v, %v", m, err)
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("by TCP 100 answers take %v", took)
		}
	})
}

// Connections that say nothing keep nobody out: each address has so many, and those that wait go.
func TestConnectionsAreBounded(t *testing.T) {
	_, addr := serve(t)
	var open []net.Conn
	for range sourceConns {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// One that is answered is inside.
		co := &dns.Conn{Conn: c}
		if err := co.WriteMsg(new(dns.Msg).SetQuestion(Domain, dns.TypeSOA)); err != nil {
			t.Fatal(err)
		}
		if _, err := co.ReadMsg(); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	read := func(c net.Conn) error {
		if err := c.SetReadDeadline(time.Now().Add(patience.Left())); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection stays")
		}
		return err
	}
	more, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	if read(more) == nil {
		t.Error("one more connection has an answer")
	}
	for _, c := range open {
		if read(c) == nil {
			t.Error("a connection has an answer to nothing")
		}
	}
	if m := ask(t, &dns.Client{Net: "tcp"}, addr, "web.shop.svc."+Domain); brief(m) != "10.96.0.7" {
		t.Errorf("after them got %v", m)
	}
}
