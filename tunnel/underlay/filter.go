package underlay

import (
	"errors"
	"net"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// filtered wraps a receive function to classify datagrams and to survive every error but Close.
func (b *Bind) filtered(receive conn.ReceiveFunc, closed <-chan struct{}) conn.ReceiveFunc {
	failures := 0
	return func(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		for {
			n, err := receive(packets, sizes, eps)
			if err == nil {
				failures = 0
				b.filter(packets[:n], sizes[:n], eps[:n])
				return n, nil
			}
			if errors.Is(err, net.ErrClosed) {
				return 0, net.ErrClosed
			}
			b.counters.receiveErrors.Add(1)
			if failures++; failures == 1 {
				b.log.Debug("receive failed; will retry", "error", err)
			}
			if !pause(closed, failures) {
				return 0, net.ErrClosed
			}
		}
	}
}

// pause waits 1 ms longer after each successive failure, up to 100 ms, so that a broken socket does
// not burn CPU. It returns false if the Bind was closed meanwhile.
func pause(closed <-chan struct{}, failures int) bool {
	t := time.NewTimer(time.Duration(min(failures, 100)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-closed:
		return false
	case <-t.C:
		return true
	}
}

// filter keeps the WireGuard datagrams of the batch that the device is to get, and sets the sizes
// of the others to 0: the device would take a slot with a size for a datagram.
func (b *Bind) filter(packets [][]byte, sizes []int, eps []conn.Endpoint) {
	b.counters.received.Add(uint64(len(packets)))
	for i := range packets {
		p := packets[i][:sizes[i]]
		class := Classify(p)
		switch {
		case class == WireGuard:
			if b.admits(p, eps[i]) {
				b.note(p, eps[i])
				continue
			}
		case (class == STUN || class == ChannelData) && b.servers.take(p, eps[i]):
			b.counters.server.Add(1)
		case class == STUN && b.onSTUN != nil:
			b.counters.stun.Add(1)
			b.handSTUN(p, eps[i])
		default:
			b.counters.dropped[class].Add(1)
		}
		sizes[i] = 0
	}
}
