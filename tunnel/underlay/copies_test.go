package underlay

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/handshake"
)

func TestDeviceIsGivenNoCopyOfWhatItWorksOn(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var book copies
	book.init()
	changed := func(m []byte, at int) []byte {
		m = bytes.Clone(m)
		m[at]++
		return m
	}
	for name, m := range map[string][]byte{"initiation": initiation(1), "response": responseOf(1, 2)} {
		if book.has(m, t0) || !book.claim(m, t0) {
			t.Errorf("%s: the first is taken for a copy", name)
		}
		// The sender's index and the MACs are not secret.
		for _, at := range []int{4, len(m) - 2*macSize, len(m) - 1} {
			if again := changed(m, at); !book.has(again, t0) || book.claim(again, t0.Add(copyLifetime-1)) {
				t.Errorf("%s: not taken for a copy with byte %d changed", name, at)
			}
		}
		for _, at := range []int{8, len(m) - 2*macSize - 1} {
			if !book.claim(changed(m, at), t0) {
				t.Errorf("%s: taken for a copy with byte %d changed", name, at)
			}
		}
		if !book.claim(m, t0.Add(copyLifetime)) {
			t.Errorf("%s: taken for a copy after %v", name, copyLifetime)
		}
		book.disclaim(m, t0.Add(copyLifetime))
		if !book.claim(m, t0.Add(copyLifetime)) {
			t.Errorf("%s: taken for a copy of what the device was not given", name)
		}
	}
}

// A flood of other messages evicts earlier ones, and costs no memory.
func TestCopiesAreBounded(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var book copies
	book.init()
	book.claim(initiation(0), t0)
	for i := range uint32(copiesKept - 1) {
		book.claim(initiation(1+i), t0)
	}
	if !book.has(initiation(0), t0) {
		t.Errorf("%d others pushed it out", copiesKept-1)
	}
	book.claim(initiation(copiesKept), t0)
	if book.has(initiation(0), t0) {
		t.Errorf("after %d others it is still known", copiesKept)
	}
}

// A message that waited is given to the device once, even if a copy of it arrived on a path where
// nothing waits. Each path gets its answer.
func TestCopiesOfWhatWaited(t *testing.T) {
	b, x, c := selected(t)
	second, other := plain(t, loopback4), plain(t, loopback4)
	b.SetCandidates("x", direct(localAddr(c), localAddr(second), localAddr(other)))
	waited := func(index uint32, from *net.UDPConn) handshake.Initiation {
		return handshake.Initiation{Message: initiation(index), From: b.inner.endpoint(localAddr(from))}
	}
	write(t, other, initiation(100), b.addr())
	b.next(t)
	b.again(t, func() {
		b.Deliver(waited(100, c))
		b.Deliver(waited(100, second))
	})
	mustSend(t, b, x, responseOf(77, 100))
	for _, from := range []*net.UDPConn{other, second, c} {
		expect(t, from, "a path that it came over", responseOf(77, 100))
	}
	b.Deliver(waited(101, c))
	if got := b.next(t).data; !bytes.Equal(got, initiation(101)) {
		t.Errorf("got %.20x, want what is no copy", got)
	}
}

// A message that the full relay queue dropped was not given to the device, so a copy from another
// path is.
func TestCopyOfWhatTheRelayQueueHadNoRoomFor(t *testing.T) {
	b := New(Options{})
	deliver, remove := b.AddRelay("relay-1", func([][]byte, netip.AddrPort) error { return nil })
	defer remove()
	for range relayQueue { // nobody reads yet
		deliver(data(1, 64), beyond)
	}
	deliver(initiation(5), beyond)
	r, c := start(t, b), plain(t, loopback4)
	write(t, c, initiation(5), r.addr())
	for r.next(t).data[0] != typeInitiation {
	}
}
