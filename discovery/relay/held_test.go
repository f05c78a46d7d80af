package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// wireGuard returns the beginning of a WireGuard message, identified by n.
func wireGuard(typ, n byte) []byte { return []byte{typ, 0, 0, 0, n} }

func TestHeldHandshakes(t *testing.T) {
	t0 := time.Unix(1000, 0)
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	var h held
	for i, d := range []struct {
		packet  []byte
		to      netip.AddrPort
		dropped bool
	}{
		{wireGuard(1, 0), netip.AddrPortFrom(a, 1), false},
		{wireGuard(2, 1), netip.AddrPortFrom(a, 1), false}, // of another type
		{wireGuard(1, 2), netip.AddrPortFrom(a, 2), false}, // to another port
		{wireGuard(1, 3), netip.AddrPortFrom(a, 1), true},  // replaces the first
		{wireGuard(wireGuardData, 4), netip.AddrPortFrom(a, 1), true},
		{[]byte{1, 1, 0, 0, 5}, netip.AddrPortFrom(a, 1), true}, // an answer to a STUN request
		{nil, netip.AddrPortFrom(a, 1), true},
		{wireGuard(1, 6), netip.AddrPortFrom(b, 1), false},
		{wireGuard(1, 7), netip.AddrPortFrom(c, 1), false},
	} {
		if got := h.add(d.packet, d.to, t0); got != d.dropped {
			t.Errorf("datagram %d: dropped %v, want %v", i, got, d.dropped)
		}
	}
	send, dropped := h.answered(map[netip.Addr]permissionState{a: granted, b: asked, c: denied}, t0)
	var got []string
	for _, d := range send {
		got = append(got, fmt.Sprint(d.packet[4], d.to.Port()))
	}
	if want := []string{"1 1", "2 2", "3 1"}; !slices.Equal(got, want) || dropped != 1 {
		t.Errorf("sent %v and dropped %d, want %v and 1, to the address that is denied", got, dropped, want)
	}
	if send, dropped := h.answered(map[netip.Addr]permissionState{b: granted}, t0.Add(heldFor)); len(send) != 0 || dropped != 1 {
		t.Errorf("after %v %d were sent and %d dropped, want none and 1", heldFor, len(send), dropped)
	}
	if len(h) != 0 {
		t.Errorf("%d are still held", len(h))
	}
}

// The oldest, which are repeated soonest, are dropped first.
func TestHeldHandshakesAreBounded(t *testing.T) {
	to, t0 := netip.MustParseAddr("192.0.2.1"), time.Unix(1000, 0)
	var h held
	for i := range uint16(maxHeld + 2) {
		if dropped := h.add(wireGuard(1, 0), netip.AddrPortFrom(to, 1+i), t0); dropped != (i >= maxHeld) {
			t.Errorf("datagram %d: dropped %v", i, dropped)
		}
	}
	send, _ := h.answered(map[netip.Addr]permissionState{to: granted}, t0)
	if len(send) != maxHeld || send[0].to.Port() != 3 {
		t.Errorf("%d are sent, the first to port %d, want %d and 3", len(send), send[0].to.Port(), maxHeld)
	}
}
