package relay

import (
	"net/netip"
	"testing"
	"time"
)

func TestRefusedAddressesDoNotFloodTheLog(t *testing.T) {
	var d denials
	addr := netip.MustParseAddr("192.0.2.1")
	news := func(n int, why string) (list []netip.Addr, reasons map[netip.Addr]string) {
		reasons = make(map[netip.Addr]string)
		for range n {
			addr = addr.Next()
			list, reasons[addr] = append(list, addr), why
		}
		return list, reasons
	}
	pass := func(now time.Time, n int, why string) (int, int) {
		list, reasons := news(n, why)
		let, held := d.pass(now, list, reasons)
		return len(let), held
	}
	if let, held := pass(epoch, 3, "403"); let != 3 || held != 0 {
		t.Errorf("the first: %d let through, %d held", let, held)
	}
	if let, held := pass(epoch, 100, "403"); let != deniedBurst-3 || held != 100-let {
		t.Errorf("a flood: %d let through, %d held", let, held)
	}
	for range 100 {
		if let, held := pass(epoch.Add(deniedEvery/2), 100, "403"); let != 0 || held != 0 {
			t.Fatalf("the flood goes on: %d let through, %d told as held", let, held)
		}
	}
	if let, held := pass(epoch, 100, otherFamily); let != 100 || held != 0 {
		t.Errorf("of the other family: %d let through, %d held", let, held)
	}
	if let, held := pass(epoch.Add(deniedEvery), 1, "403"); let != 1 || held != 0 {
		t.Errorf("a minute later: %d let through, %d held", let, held)
	}
}
