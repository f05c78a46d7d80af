package underlay

import (
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// refusingSome is a socket whose system refuses some sends.
type refusingSome struct {
	PacketConn
	with *atomic.Pointer[syscall.Errno]
}

func (r refusingSome) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if errno := r.with.Load(); errno != nil {
		return 0, os.NewSyscallError("sendmsg", *errno)
	}
	return r.PacketConn.WriteToUDPAddrPort(b, to)
}

// A host that refuses every send has a reason for each address; one that refuses some of them, and
// sends others to the same address, counts these. What it always refuses is not counted.
func TestSomeSendsAreRefused(t *testing.T) {
	for _, c := range []struct {
		errno  syscall.Errno
		reason string
	}{{syscall.ENOBUFS, noBuffers}, {syscall.ENOMEM, noBuffers}, {syscall.EPERM, prohibited}, {syscall.ENETUNREACH, networkUnreachable}} {
		t.Run(c.errno.Error(), func(t *testing.T) {
			var with atomic.Pointer[syscall.Errno]
			b := start(t, NewPacket(func(port uint16) (PacketConn, error) {
				inner, err := listenLoopback(port)
				return refusingSome{inner, &with}, err
			}, Options{}))
			ep, err := b.ParseEndpoint(localAddr(plain(t, loopback4)).String())
			if err != nil {
				t.Fatal(err)
			}
			send := func(errno *syscall.Errno, probe bool) {
				t.Helper()
				with.Store(errno)
				var err error
				if probe {
					err = b.WriteTo(data(1, 32), peer.Direct(addrOf(ep)))
				} else {
					err = b.Send([][]byte{data(1, 32)}, ep)
				}
				if (err != nil) != (errno != nil) {
					t.Fatalf("got %v with %v", err, errno)
				}
			}
			send(nil, false)
			for i := range 4 {
				send(&c.errno, i%2 == 0)
			}
			if u := b.Unreachable(); len(u) != 1 || !u[0].Here || u[0].Reason != c.reason {
				t.Errorf("while it is refused: got %+v, want %q", u, c.reason)
			}
			if r := b.Refusals(); r != (Refusals{}) {
				t.Errorf("what is always refused counts: %+v", r)
			}
			send(nil, false)
			send(nil, true)
			send(&c.errno, true)
			send(nil, true)
			if r, want := b.Refusals(), (Refusals{2, c.reason}); r != want {
				t.Errorf("got %+v, want %+v", r, want)
			}
			if u := b.Unreachable(); len(u) > 0 {
				t.Errorf("still unreachable: %+v", u)
			}
		})
	}
}

// A link that was down, or not up yet, refused everything for a while: that is over.
func TestAnOutageIsNoRefusalOfSome(t *testing.T) {
	var o observed
	to, began := netip.MustParseAddrPort("198.51.100.7:51820"), time.Now()
	for _, c := range []struct {
		refused []time.Duration // since it began
		sent    time.Duration
		count   uint64
	}{
		{[]time.Duration{0, 5 * time.Second, 10 * time.Second}, 11 * time.Second, 0},
		{[]time.Duration{20 * time.Second}, time.Hour, 0},
		{[]time.Duration{2 * time.Hour}, 2*time.Hour + 5*time.Second, 1},
	} {
		for _, at := range c.refused {
			o.unreachableCame(to, ofSend(syscall.ENETUNREACH), began.Add(at))
		}
		o.sent(to, began.Add(c.sent))
		if o.passing.Count != c.count {
			t.Errorf("refused after %v and sent after %s: got %+v, want %d", c.refused, c.sent, o.passing, c.count)
		}
	}
}
