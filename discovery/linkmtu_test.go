package discovery

import (
	"net"
	"testing"
)

func TestLinkMTUIsTheLeastOfThoseThatLeadOut(t *testing.T) {
	up := net.FlagUp
	all := []net.Interface{
		{Name: "lo", MTU: 1280, Flags: up}, {Name: "cni0", MTU: 1300, Flags: up}, {Name: "eth0", MTU: 1500, Flags: up},
		{Name: "eth1", MTU: 1450, Flags: up}, {Name: "eth2", MTU: 1200}, {Name: "eth3", MTU: 1400, Flags: up},
	}
	addressed := func(i net.Interface) bool { return i.Name != "eth3" }
	if got := linkMTU(all, addressed); got != 1450 {
		t.Errorf("got %d, want 1450, that of eth1", got)
	}
	if got := linkMTU(all[:2], addressed); got != 0 {
		t.Errorf("without an interface that leads out: got %d, want 0", got)
	}
	if got, err := LinkMTU(); err != nil || got < 0 {
		t.Errorf("this machine: got %d, %v", got, err)
	}
}
