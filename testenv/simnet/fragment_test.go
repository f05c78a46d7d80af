package simnet_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/simnet"
)

// A path with a smaller MTU than the senders' own links, and what happens to a datagram with 1400
// bytes of payload.
func TestTooLargeForThePath(t *testing.T) {
	const fits, tooLarge = 1280 - 28, 1400
	for _, c := range []struct {
		name                string
		narrow              simnet.Conditions
		plain, dontFragment bool // whether it arrives
		icmp                bool // whether an ICMP error reports those that do not
	}{
		{"cut", simnet.Conditions{MTU: 1280, Fragment: true}, true, false, true},
		{"cut, ICMP filtered", simnet.Conditions{MTU: 1280, Fragment: true, SilentMTU: true}, true, false, false},
		{"fragments filtered", simnet.Conditions{MTU: 1280}, false, false, true},
		{"black hole", simnet.Conditions{MTU: 1280, SilentMTU: true}, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtually(t, 1, func(t *testing.T, in internet) {
				a := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{}), 1)
				b := in.listen(in.host("b", "192.0.2.2", nil, c.narrow), 2)
				for _, dontFragment := range []bool{false, true} {
					in.write(a, fits, "192.0.2.2:2", dontFragment)
					in.receive(b, strings.Repeat("x", fits))
					in.write(a, tooLarge, "192.0.2.2:2", dontFragment)
					want := map[bool]bool{false: c.plain, true: c.dontFragment}[dontFragment]
					got, _ := in.read(b, time.Minute)
					if arrived := len(got) == tooLarge; arrived != want {
						t.Errorf("with the don't-fragment bit %v: arrives %v, want %v", dontFragment, arrived, want)
					}
					if told, wantTold := in.told(a), !want && c.icmp; told != wantTold {
						t.Errorf("with the don't-fragment bit %v: got too big %v, want %v", dontFragment, told, wantTold)
					}
				}
			})
		})
	}
}

// write sends a datagram with size bytes of payload.
func (in internet) write(c *simnet.Conn, size int, to string, dontFragment bool) {
	in.t.Helper()
	b := []byte(strings.Repeat("x", size))
	if _, err := c.WriteWith(b, netip.MustParseAddrPort(to), 0, dontFragment); err != nil {
		in.t.Errorf("send %d bytes to %s: %v", size, to, err)
	}
}

// told reports whether an ICMP error "packet too big" is waiting at the socket.
func (in internet) told(c *simnet.Conn) bool {
	select {
	case e := <-c.ICMP():
		return e.Kind == simnet.PacketTooBig
	default:
		return false
	}
}

func TestTooLargeForTheOwnLink(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		a := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{MTU: 1280, Fragment: true}), 1)
		b := in.listen(in.host("b", "192.0.2.2", nil, simnet.Conditions{}), 2)
		to := netip.MustParseAddrPort("192.0.2.2:2")
		if _, err := a.WriteWith(make([]byte, 1280-28+1), to, 0, true); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("with the don't-fragment bit: got %v, want EMSGSIZE", err)
		}
		in.write(a, 1280-28+1, "192.0.2.2:2", false)
		in.receive(b, strings.Repeat("x", 1280-28+1))
	})
}

func TestOnlyTheSendingHostCutsIPv6(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		narrow := simnet.Conditions{MTU: 1280, Fragment: true}
		a := in.listen(in.host("a", "2001:db8::1", nil, narrow), 1)
		b := in.listen(in.host("b", "2001:db8::2", nil, simnet.Conditions{}), 2)
		in.write(a, 1400, "[2001:db8::2]:2", false)
		in.receive(b, strings.Repeat("x", 1400))
		in.write(b, 1400, "[2001:db8::1]:1", false) // a's link is narrow on the way back as well
		in.nothing(a)
		if !in.told(b) {
			t.Error("the sender got no error about the path's MTU")
		}
	})
}

// A fragmented datagram counts as its fragments: 1400 bytes of payload through an MTU of 600 are
// 1408 bytes of UDP in fragments of at most 576, so three packets and 1468 bytes.
func TestFragmentsCountAndStayCut(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		ha, hb := in.host("a", "192.0.2.1", nil, simnet.Conditions{MTU: 600, Fragment: true}), in.host("b", "192.0.2.2", nil, simnet.Conditions{})
		a, b := in.listen(ha, 1), in.listen(hb, 2)
		in.write(a, 1400, "192.0.2.2:2", false)
		in.receive(b, strings.Repeat("x", 1400))
		for _, l := range []struct {
			name string
			got  simnet.Counters
		}{{"cut by a", ha.Link().Counters(simnet.Up)}, {"still in pieces at b", hb.Link().Counters(simnet.Down)}} {
			if l.got.Packets != 3 || l.got.Bytes != 1468 {
				t.Errorf("%s: %d packets of %d bytes, want 3 of 1468", l.name, l.got.Packets, l.got.Bytes)
			}
		}
	})
}

func TestADatagramIsLostWithAnyOfItsFragments(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		const n, loss = 4000, 0.1
		a := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{MTU: 600, Fragment: true, Loss: loss}), 1)
		in.host("b", "192.0.2.2", nil, simnet.Conditions{})
		for range n {
			in.write(a, 1400, "192.0.2.2:2", false) // three fragments
		}
		// 1 - 0.9³ = 27.1 %, five standard deviations either way.
		if got := in.Dropped()[simnet.DropLoss]; got < 940 || got > 1230 {
			t.Errorf("%d of %d datagrams in three fragments were lost at 10 %%, want about 1084", got, n)
		}
	})
}

func TestTTLOutOfRange(t *testing.T) {
	virtually(t, 1, func(t *testing.T, in internet) {
		a := in.listen(in.host("a", "192.0.2.1", nil, simnet.Conditions{}), 1)
		for _, ttl := range []int{-1, 256} {
			if _, err := a.WriteWithTTL(nil, netip.MustParseAddrPort("192.0.2.2:2"), ttl); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("a TTL of %d: got %v, want EINVAL", ttl, err)
			}
		}
	})
}
