//go:build linux && e2e

package e2e

import (
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/handshake"
)

// keyIllnesses are faults of keys and handshakes.
func keyIllnesses() []illness {
	return []illness{
		{
			name: "the preshared keys differ", sick: true,
			setting: plain(func(f *faultLab) {
				f.left.other.PresharedKeyFile, f.right.other.PresharedKeyFile = f.left.presharedKey(), f.right.presharedKey()
			}),
			left:  []diagnosis{outbound("PST0109", gatewayCheck).because("right", "preshared").until("spec.peers[name=right].presharedKeyFile")},
			right: []diagnosis{outbound("PST0109", gatewayCheck).because("left", "preshared").until("spec.peers[name=left].presharedKeyFile")},
			fix: func(f *faultLab, _, _ []api.Check) {
				f.left.other.PresharedKeyFile = f.right.other.PresharedKeyFile
				f.left.reload()
			},
		},
		{
			name: "left has a wrong key of right", sick: true,
			setting: plain(func(f *faultLab) { f.left.other.PublicKey = newKey(f.t).Public().String() }),
			left:    []diagnosis{outbound("PST0110", gatewayCheck).because(rightPublic, "key").until("ask the owner of right", "postern key pub", "spec.peers[name=right].publicKey")},
			right:   []diagnosis{outbound("PST0110", gatewayCheck).because("left", "a public key that is not this gateway's").until("postern key pub")},
			fix: func(f *faultLab, left, _ []api.Check) {
				// Anyone could have sent what was seen. So the key is only shown for comparison
				// with the one from right's owner, and is not offered as a setting.
				right := f.right.key.Public().String()
				if !strings.Contains(left[0].Cause, right) || strings.Contains(left[0].Fix, right) {
					f.t.Fatalf("want right's key in the cause and not in the fix: %s; %s", left[0].Cause, left[0].Fix)
				}
				f.left.other.PublicKey = right
				f.left.reload()
			},
		},
		{
			name: "right's clock went back", setting: plain(oneWay), sick: true, lasts: 2 * time.Minute,
			harm: func(f *faultLab) { f.left.launch(); f.left.waitReady(); f.fromTheFuture(ahead) },
			left: []diagnosis{outbound("PST0111", gatewayCheck).because("right", rightEndpoint, "clock went back").
				until("at right", "date -u", "timedatectl set-ntp true")},
			right: []diagnosis{outbound("PST0101", gatewayCheck).because("left").until("PST0111")},
			// A single process's clock cannot be set, but time has the same effect: the clock
			// passes the accepted timestamp.
			fix: func(*faultLab, []api.Check, []api.Check) {},
		},
		{
			name: "two gateways have right's key", setting: plain(), lasts: 2 * time.Minute,
			harm:  func(f *faultLab) { f.copyOf(f.right).launch() },
			left:  []diagnosis{outbound("PST0113", gatewayCheck).because("right", "same key").until("remove the copy's state directory")},
			right: []diagnosis{own("PST0117", "key").because("left has heard from one that started later").until("remove its state directory")},
			fix:   func(f *faultLab, _, _ []api.Check) { f.copied.stop(syscall.SIGTERM) },
		},
	}
}

// ahead is how far in the future the timestamp of right's earlier initiation is: long enough to
// see the fault, and to see it end.
const ahead = 100 * time.Second

// fromTheFuture sends left an initiation by right, from right's address, as if right's clock had
// been wrong before. Left's own initiations are dropped: they would complete a handshake although
// right's cannot.
func (f *faultLab) fromTheFuture(by time.Duration) {
	f.t.Helper()
	m, err := handshake.Initiation(f.right.key, newKey(f.t), f.left.key.Public(), time.Now().Add(by))
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := f.right.host.ListenUDP(netip.MustParseAddrPort(rightEndpoint))
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := c.WriteToUDPAddrPort(m, netip.MustParseAddrPort(leftEndpoint)); err != nil {
		f.t.Fatal(err)
	}
	if _, _, err := c.ReadFromUDPAddrPort(make([]byte, 256)); err != nil {
		f.t.Fatalf("left did not answer: %v", err)
	}
	f.left.check()                                                             // it notes the timestamp, as for completed handshakes
	f.right.host.Drop("ip saddr " + leftPublic + " udp length 156 @th,64,8 1") // initiations (148 bytes)
}

// copyOf creates a gateway with a side's key and configuration on another machine, like a
// restored backup, with an API server like the side's.
func (f *faultLab) copyOf(w *ward) *ward {
	f.t.Helper()
	host := f.lab.Host("copy")
	host.Attach("eth0", f.servers, netip.MustParseAddr(copyAddr))
	host.DefaultRoute(gatewayAddr(netip.MustParsePrefix("192.0.2.0/24")))
	c := &ward{site: &site{access: dial, gateway: newGateway(f.t, host, w.name)}, key: w.key, other: w.other}
	own := c.doc.Spec
	c.doc.Spec = w.doc.Spec
	c.doc.Spec.StateDir, c.doc.Spec.Admin = own.StateDir, own.Admin
	c.api = &apiStandIn{ca: w.api.ca, w: c}
	c.api.show(w.api.ca, apiName)
	c.api.start()
	c.write()
	f.copied = c
	return c
}

const copyAddr = "192.0.2.50"
