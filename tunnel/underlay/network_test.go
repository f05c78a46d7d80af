package underlay

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Someone who has a /48 or a /24 can show the cookies of all its sources. That must not lock out
// strangers or peers with a cookie.
func TestOneNetworkLocksNobodyOut(t *testing.T) {
	for name, source := range map[string]func(n int) netip.Addr{
		"IPv6": func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(n >> 8), 7: byte(n), 15: 1})
		},
		"IPv4": func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := newPublicKey(t)
				b := NewPacket(listenLoopback, Options{})
				if err := b.SetPublicKey(key); err != nil {
					t.Fatal(err)
				}
				a := &b.admission
				proven := func(from netip.Addr) *handshaker {
					h := &handshaker{from: peer.Direct(netip.AddrPortFrom(from, 1000))}
					h.Init(device.NoisePublicKey(key))
					for { // until the burst without a cookie is over
						var reply [sizeCookieReply]byte
						if v := a.judge(h.initiation(1), h.from, false, time.Now(), &reply); v == cookieDue {
							if !h.take(reply[:]) {
								t.Fatal("a cookie cannot be read")
							}
							return h
						}
					}
				}
				var hostile []*handshaker
				for n := range 256 {
					hostile = append(hostile, proven(source(n)))
				}
				// A client in the attacker's own network has no cookie, but is at a peer's
				// address.
				peers := &handshaker{from: peer.Direct(netip.AddrPortFrom(source(9), 2000))}
				peers.Init(device.NoisePublicKey(key))
				// By chance of the seed, one network in a thousand shares its limit with the
				// attacker's.
				elsewhere := netip.MustParseAddr("198.51.100.7")
				for a.networks.of(networkOf(elsewhere)) == a.networks.of(networkOf(source(0))) {
					elsewhere = netip.AddrFrom4([4]byte{198, 51, elsewhere.As4()[2] + 1, 7})
				}
				honest := proven(elsewhere)
				var reply [sizeCookieReply]byte
				for second := range hostileSeconds {
					for range 10 { // 2,560 a second, 10 of each source
						time.Sleep(100 * time.Millisecond) // virtual
						for _, h := range hostile {
							a.judge(h.initiation(1), h.from, false, time.Now(), &reply)
						}
					}
					if v := a.judge(honest.initiation(1), honest.from, false, time.Now(), &reply); v != admitted {
						t.Fatalf("second %d: an honest one with a cookie was %v", second, v)
					}
					if v := a.judge(peers.initiation(1), peers.from, true, time.Now(), &reply); v != admitted {
						t.Fatalf("second %d: a peer at its address was %v", second, v)
					}
				}
			})
		})
	}
}
