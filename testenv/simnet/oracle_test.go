package simnet

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// oracle applies the definitions of RFC 4787 to the list of everything sent.
type oracle struct {
	b    Behaviour
	sent []sending
}

type sending struct {
	at                time.Time
	src, dst, outside netip.AddrPort
}

func (o *oracle) live(s sending, now time.Time) bool { return now.Before(s.at.Add(o.b.Timeout)) }

func related(d Dependence, a, b netip.AddrPort) bool {
	return d == EndpointIndependent || a.Addr() == b.Addr() && (d == AddressDependent || a.Port() == b.Port())
}

// TestAgainstAnOracle compares the NAT with a list of everything that was sent. Inbound datagrams
// refresh nothing here, so the list of sent datagrams is sufficient.
func TestAgainstAnOracle(t *testing.T) {
	kinds := []Dependence{EndpointIndependent, AddressDependent, AddressAndPortDependent}
	for i := range 9 {
		b := Behaviour{
			Mapping: kinds[i%3], Filtering: kinds[i/3], Ports: RandomPorts, OutboundRefreshOnly: true,
			Unreplied: 60 * time.Second, Timeout: 60 * time.Second,
		}
		r := rand.New(rand.NewPCG(uint64(i), 2))
		pick := func(net byte, n int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{net, 0, 0, byte(r.IntN(n))}), uint16(5000+r.IntN(3)))
		}
		n, o := newModel(t, b), oracle{b: b}
		now := epoch
		for step := range 3000 {
			now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
			if r.IntN(2) == 0 || len(o.sent) == 0 {
				o.checkOutbound(t, n, step, sending{at: now, src: pick(10, 3), dst: pick(203, 4)})
			} else {
				o.checkInbound(t, n, step, now, pick(203, 4), o.sent[r.IntN(len(o.sent))].outside)
			}
			if t.Failed() {
				t.Fatalf("behaviour %+v", b)
			}
		}
	}
}

func (o *oracle) checkOutbound(t *testing.T, n *translator, step int, s sending) {
	t.Helper()
	s.outside = out(t, n, s.at, s.src, s.dst)
	for _, x := range o.sent {
		if !o.live(x, s.at) {
			continue
		}
		same := x.src == s.src && related(o.b.Mapping, x.dst, s.dst)
		if same != (x.outside == s.outside) {
			t.Errorf("step %d: %v → %v leaves from %v; %v → %v, %v before, from %v: want the same: %v",
				step, s.src, s.dst, s.outside, x.src, x.dst, s.at.Sub(x.at), x.outside, same)
		}
	}
	o.sent = append(slices.DeleteFunc(o.sent, func(x sending) bool {
		return s.at.Sub(x.at) > 2*o.b.Timeout // kept for a while, to ask for expired ones
	}), s)
}

func (o *oracle) checkInbound(t *testing.T, n *translator, step int, now time.Time, from, to netip.AddrPort) {
	t.Helper()
	var want netip.AddrPort
	owner := make(map[netip.AddrPort]bool) // current owner of the outside port
	for _, x := range o.sent {
		if o.live(x, now) && x.outside == to {
			owner[x.src] = true
			if related(o.b.Filtering, x.dst, from) {
				want = x.src
			}
		}
	}
	if len(owner) > 1 {
		t.Errorf("step %d: %v serves %d inside endpoints", step, to, len(owner))
	}
	if got, _ := n.inbound(now, from, to); got != want {
		t.Errorf("step %d: %v → %v goes to %v, want %v", step, from, to, got, want)
	}
}
