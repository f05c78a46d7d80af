//go:build linux && e2e

package e2e

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// pathIllnesses are paths that work badly.
func pathIllnesses() []illness {
	return []illness{
		{
			name: "one packet in twenty is lost", setting: plain(),
			harm:  func(f *faultLab) { f.left.host.DropIncoming("eth0", 50) },
			left:  []diagnosis{outbound("PST0112", gatewayCheck).because("right", rightEndpoint, "%").until("mtr", rightPublic)},
			right: []diagnosis{outbound("PST0112", gatewayCheck).because("left", leftEndpoint, "%").until("mtr", leftPublic)},
			fix:   func(f *faultLab, _, _ []api.Check) { f.left.host.DropIncoming("eth0", 0) },
		},
		{
			name: "a path of 1280 bytes whose ICMP is filtered", sick: true, setting: narrow(),
			harm:  func(f *faultLab) { f.core.DropICMPErrors(); f.right.nat.DropICMPErrors() },
			left:  []diagnosis{outbound("PST0601", "mtu").because("right", "smaller MTU", "1420").until("spec.mtu: 1280 on both", "icmp type destination-unreachable")},
			right: []diagnosis{outbound("PST0601", "mtu").because("left", "smaller MTU", "1420").until("spec.mtu: 1280 on both", "icmp type destination-unreachable")},
			fix: func(f *faultLab, left, right []api.Check) {
				f.left.restartWith(func(s *api.GatewaySpec) { s.MTU = atoi(f.t, value(f.t, left[0].Fix, "spec.mtu: ")) })
				f.right.restartWith(func(s *api.GatewaySpec) { s.MTU = atoi(f.t, value(f.t, right[0].Fix, "spec.mtu: ")) })
			},
		},
		{
			name: "a path of 1280 bytes that swallows fragments as well", sick: true, setting: narrow(),
			harm: func(f *faultLab) {
				f.core.DropICMPErrors()
				f.right.nat.DropICMPErrors()
				f.core.DropFragments()
			},
			left:  []diagnosis{outbound("PST0601", "mtu").because("right", "are lost", "nor fragments").until("let UDP fragments through")},
			right: []diagnosis{outbound("PST0601", "mtu").because("left", "are lost", "nor fragments").until("let UDP fragments through")},
		},
		{
			name: "two symmetric NATs, so the relay is used", sick: true, joined: true,
			setting: setting{left: symmetric, right: symmetric, edit: strangers},
			left:    []diagnosis{outbound("PST0411", gatewayCheck).because("right", relayAddr, "symmetric").until("forward UDP 51820", "spec.discovery.advertise")},
			right:   []diagnosis{outbound("PST0411", gatewayCheck).because("left", relayAddr, "symmetric").until("forward UDP 51820", "spec.discovery.advertise")},
			fix:     func(f *faultLab, _, _ []api.Check) { f.right.forward() },
		},
		{
			name: "left's socket overflows", setting: plain(), lasts: 2 * time.Minute,
			harm:  func(f *faultLab) { f.flood(f.left) },
			left:  []diagnosis{own("PST0810", "resources").because("dropped").until("sysctl -w net.core.rmem_max=", "more CPU")},
			right: nil,
			// The gateway had no CPU, and now it has some again.
			fix: func(*faultLab, []api.Check, []api.Check) {},
		},
	}
}

// narrow is a path with a link of 1280 bytes in the middle.
func narrow() setting {
	return setting{left: dial, right: portRestricted, ways: ways{noTURN: true, mtu: 1280}, edit: withoutServers}
}

// restartWith changes a side's file and restarts its gateway.
func (w *ward) restartWith(change func(*api.GatewaySpec)) {
	w.t.Helper()
	change(&w.doc.Spec)
	w.write()
	w.stop(syscall.SIGTERM)
	w.launch()
	w.waitReady()
}

// forward does what a fix says about a router, and about the gateway behind it.
func (w *ward) forward() {
	w.t.Helper()
	w.nat.Forward(gatewayPort, netip.AddrPortFrom(w.inner, gatewayPort))
	w.doc.Spec.Discovery.Advertise = []string{netip.AddrPortFrom(w.outer, gatewayPort).String()}
	w.reload()
}

// flood sends a side more than its socket holds while its gateway gets no CPU.
func (f *faultLab) flood(w *ward) {
	f.t.Helper()
	c, err := f.core.ListenUDP(netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	if err := w.proc.Signal(syscall.SIGSTOP); err != nil {
		f.t.Fatal(err)
	}
	// A datagram of this size takes at least 2 KB, and the socket holds at most 8 MB.
	to, noise := netip.AddrPortFrom(w.outer, gatewayPort), make([]byte, 1200)
	for range 6000 {
		if _, err := c.WriteToUDPAddrPort(noise, to); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := w.proc.Signal(syscall.SIGCONT); err != nil {
		f.t.Fatal(err)
	}
}
