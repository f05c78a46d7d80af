package dnssd

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// zoneServer is an authoritative server in memory, over UDP and TCP on one loopback port. Like
// other servers it follows aliases within its zone.
type zoneServer struct {
	addr netip.AddrPort

	mu      sync.Mutex
	records []dns.RR
	rcode   int  // of every answer, except to queries without checking
	edns    bool // it supports EDNS0
	ad      bool
	mute    bool
	stray   bool // it first sends answers to other questions
	asked   []dns.Question
	streams int // questions over TCP
}

func newZoneServer(t *testing.T, zone string) *zoneServer {
	t.Helper()
	z := &zoneServer{edns: true}
	z.set(t, zone)
	udp, tcp := listenBoth(t)
	z.addr = netip.MustParseAddrPort(udp.LocalAddr().String())
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: z}, {Listener: tcp, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		serving.Go(func() {
			if err := s.ActivateAndServe(); err != nil {
				t.Errorf("serve DNS: %v", err)
			}
		})
		<-started
		t.Cleanup(func() {
			if err := s.Shutdown(); err != nil {
				t.Errorf("stop DNS: %v", err)
			}
		})
	}
	return z
}

// listenBoth opens a port that is free for both protocols.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var l net.ListenConfig
	for range 50 {
		udp, err := l.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := l.Listen(t.Context(), "tcp", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}
		if err := udp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

// set replaces the records with those of a zone file.
func (z *zoneServer) set(t *testing.T, zone string) {
	t.Helper()
	var records []dns.RR
	p := dns.NewZoneParser(strings.NewReader("$ORIGIN example.com.\n$TTL 60\n"+zone), "", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		records = append(records, rr)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	z.change(func() { z.records = records })
}

func (z *zoneServer) change(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

func (z *zoneServer) questions() []dns.Question {
	z.mu.Lock()
	defer z.mu.Unlock()
	return append([]dns.Question{}, z.asked...)
}

// ServeDNS answers one question.
func (z *zoneServer) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, r.Question[0])
	m := new(dns.Msg)
	m.SetReply(r)
	opt := r.IsEdns0()
	_, stream := w.RemoteAddr().(*net.TCPAddr)
	if stream {
		z.streams++
	}
	switch {
	case z.mute:
		return
	case opt != nil && !z.edns:
		m.Rcode = dns.RcodeFormatError
	case z.rcode != 0 && !r.CheckingDisabled:
		m.Rcode = z.rcode
	default:
		z.answer(m, r.Question[0])
		m.AuthenticatedData = z.ad
	}
	if opt != nil && z.edns {
		m.SetEdns0(udpSize, false)
	}
	if !stream {
		size := dns.MinMsgSize
		if opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	if z.stray {
		other := m.Copy()
		other.Id++
		_ = w.WriteMsg(other)
		other = m.Copy()
		other.Question[0].Name = "other.example.com."
		_ = w.WriteMsg(other)
		_, _ = w.Write([]byte{1, 2, 3})
	}
	_ = w.WriteMsg(m)
}

func (z *zoneServer) answer(m *dns.Msg, q dns.Question) {
	name, exists := q.Name, false
	for range 20 {
		next := ""
		for _, rr := range z.records {
			if !strings.EqualFold(rr.Header().Name, name) {
				continue
			}
			exists = true
			if c, is := rr.(*dns.CNAME); is && q.Qtype != dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
				next = c.Target
			} else if rr.Header().Rrtype == q.Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if name = next; name == "" || !dns.IsSubDomain("example.com.", name) {
			break
		}
		exists = false
	}
	if !exists {
		m.Rcode = dns.RcodeNameError
	}
	if !exists || len(m.Answer) == 0 {
		soa, _ := dns.NewRR("example.com. 300 IN SOA ns.example.com. me.example.com. 1 2 3 4 30")
		m.Ns = append(m.Ns, soa)
	}
}
