package underlay

import (
	"errors"
	"net"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// filtered makes a receive function that classifies, and survives every error but Close.
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
				b.log.Debug("receiving failed; trying on", "err", err)
			}
			if !pause(closed, failures) {
				return 0, net.ErrClosed
			}
		}
	}
}

// pause waits 1 ms longer after each failure in a row, up to 100 ms, so that a broken
// socket costs no CPU. It reports false when the Bind was closed meanwhile.
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

// filter leaves in the batch what the device shall have of WireGuard's datagrams, and
// empties the slots of all others: a slot with a size left in it would be taken for a
// datagram by the device.
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
