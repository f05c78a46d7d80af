package tunnel

import (
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/tunnel/underlay"
)

// WireGuard's two goroutines of a peer keep the slices of their last batches: the array is
// used again, and what it points to stays reachable until a batch as large overwrites it.
// Each entry holds a buffer of 64 KiB that the pool may have long dropped, so that a thousand
// peers that were busy for a moment held 150 MB for good. Both lists are therefore emptied
// when they have been used, before they come back.

// releasingDevice lets go of the packets that it has written.
type releasingDevice struct{ tun.Device }

// Write implements tun.Device. WireGuard finds the buffers again by other means.
func (d releasingDevice) Write(bufs [][]byte, offset int) (int, error) {
	n, err := d.Device.Write(bufs, offset)
	clear(bufs)
	return n, err
}

// releasingBind lets go of the packets that it has sent.
type releasingBind struct {
	*underlay.Bind
	// blank is as long as any packet.
	blank []byte
}

func newReleasingBind(b *underlay.Bind) releasingBind {
	return releasingBind{b, make([]byte, device.MaxMessageSize)}
}

// Send implements conn.Bind. WireGuard still reads the packets' lengths.
func (b releasingBind) Send(bufs [][]byte, to conn.Endpoint) error {
	err := b.Bind.Send(bufs, to)
	for i, packet := range bufs {
		bufs[i] = b.blank[:len(packet)]
	}
	return err
}
