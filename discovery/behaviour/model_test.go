package behaviour

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

var (
	a1p1 = netip.MustParseAddrPort("192.0.2.1:3478")
	a1p2 = netip.MustParseAddrPort("192.0.2.1:3479")
	a2p1 = netip.MustParseAddrPort("192.0.2.2:3478")
	a2p2 = netip.MustParseAddrPort("192.0.2.2:3479")

	public  = netip.MustParseAddrPort("198.51.100.7:40000")
	public2 = netip.MustParseAddrPort("198.51.100.7:40001")
	public3 = netip.MustParseAddrPort("198.51.100.7:40002")
)

// model is a NAT and a server in one: which answer a request to an address gets, and from where;
// none if it is lost or refused.
type model struct {
	// mapped is the mapping towards a destination; public if there is none.
	mapped map[netip.AddrPort]netip.AddrPort
	// admits reports whether the NAT lets in an answer from an address to a request to A1:P1.
	admits func(from netip.AddrPort) bool
	// dead are the server's addresses that never answer.
	dead []netip.AddrPort
	// answer replaces the server's answer if set.
	answer func(m *stunwire.Message, to netip.AddrPort) (reply *stunwire.Message, from netip.AddrPort)
	loss   float64 // each way
	rng    *rand.Rand
}

func everybody(netip.AddrPort) bool { return true }

func (s *model) serve(t *testing.T, d Datagram) (packet []byte, from netip.AddrPort) {
	t.Helper()
	m, err := stunwire.Parse(d.Packet)
	if err != nil || m.Class != stunwire.Request {
		t.Fatalf("%v is sent % x: %v", d.To, d.Packet, err)
	}
	for _, a := range s.dead {
		if a == d.To {
			return nil, from
		}
	}
	if s.rng != nil && 1-(1-s.loss)*(1-s.loss) > s.rng.Float64() {
		return nil, from
	}
	reply, from := s.honest(m, d.To)
	if s.answer != nil {
		reply, from = s.answer(m, d.To)
	}
	if reply == nil || from != d.To && !s.admits(from) {
		return nil, from
	}
	reply.TxID = m.TxID
	if packet, err = stunwire.Encode(reply, nil); err != nil {
		t.Fatal(err)
	}
	return packet, from
}

func (s *model) honest(m *stunwire.Message, to netip.AddrPort) (*stunwire.Message, netip.AddrPort) {
	from := to
	if m.Change&stunwire.ChangePort != 0 {
		from = netip.AddrPortFrom(from.Addr(), a1p1.Port()+a1p2.Port()-from.Port())
	}
	if m.Change&stunwire.ChangeAddress != 0 {
		other := a1p1.Addr()
		if from.Addr() == other {
			other = a2p2.Addr()
		}
		from = netip.AddrPortFrom(other, from.Port())
	}
	mapped, ok := s.mapped[to]
	if !ok {
		mapped = public
	}
	return &stunwire.Message{Class: stunwire.Success, Mapped: mapped, Other: a2p2, Origin: from}, from
}

// run drives a test in virtual time, with answers after 20 ms, and returns how long it took.
func run(t *testing.T, test *Test, s *model) time.Duration {
	t.Helper()
	type arrival struct {
		at     time.Time
		packet []byte
		from   netip.AddrPort
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now, inFlight, sent := begin, []arrival(nil), 0
	for {
		send, next := test.Poll(now)
		sent += len(send)
		if sent > 6*6 {
			t.Fatalf("%d datagrams were sent", sent)
		}
		for _, d := range send {
			if packet, from := s.serve(t, d); packet != nil {
				inFlight = append(inFlight, arrival{now.Add(20 * time.Millisecond), packet, from})
			}
		}
		if next.IsZero() {
			return now.Sub(begin)
		}
		if !next.After(now) {
			t.Fatalf("the next deadline %v is not after now, %v", next, now)
		}
		if len(inFlight) > 0 && !inFlight[0].at.After(next) {
			a := inFlight[0]
			inFlight, now = inFlight[1:], a.at
			if !test.Handle(now, a.packet, a.from) {
				t.Errorf("an answer from %v was not recognized", a.from)
			}
			continue
		}
		now = next
	}
}

// only admits answers from the given addresses.
func only(from ...netip.AddrPort) func(netip.AddrPort) bool {
	return func(a netip.AddrPort) bool {
		for _, f := range from {
			if a == f {
				return true
			}
		}
		return false
	}
}
