package netstack

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/seqnum"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// windowFloor closes windows that are too small to be useful: a window of less than a segment is
// announced as 0 until it is larger.
//
// gVisor's sender postpones what does not fit a window of less than a segment until its
// retransmission timer fires. If the window is still the same, it restarts neither that timer nor
// its probes, which are for closed windows only. The connection then waits for the receiver to
// announce more, and if that is lost, for ever. It gets there by losing the last segment before the
// end of the window: the receiver rounds what is left down to its scale, to less than that segment.
// A closed window is probed, and a receiver should not announce small ones anyway (RFC 9293
// §3.8.6.2.2).
//
// Short memory and slow readers lead there: of 24 connections in 3 MB, with 1 % of loss and readers
// that pause, one hung in every fourth run.
type windowFloor struct {
	scale int // of the windows of all our connections
	least int // in bytes
}

func newWindowFloor(o Options) windowFloor {
	return windowFloor{
		scale: tcp.FindWndScale(seqnum.Size(o.TCPReceiveBuffer)),
		// gVisor announces a window again once it has grown to a segment, or to a quarter of the
		// receive buffer if that is less.
		least: min(o.MTU-ipv4HeaderLen-tcpHeaderLen, leastReceive/4),
	}
}

// closes sets the window of an outbound TCP segment to 0 if it is too small, and returns the old
// value, 0 if unchanged. The caller updates the checksum. A peer without window scaling uses the
// window as it is, which is even less.
func (w windowFloor) closes(segment []byte) (was uint16) {
	if segment[tcpFlags]&(flagSYN|flagACK) != flagACK { // the window of a SYN is not scaled
		return 0
	}
	was = binary.BigEndian.Uint16(segment[tcpWindow:])
	if was == 0 || int(was)<<w.scale >= w.least {
		return 0
	}
	binary.BigEndian.PutUint16(segment[tcpWindow:], 0)
	return was
}

// closesWhole does so in a packet with complete checksums, and updates them (RFC 1624).
func (w windowFloor) closesWhole(packet []byte) {
	segment, fragmented := tcpOf(packet)
	if fragmented || len(segment) < tcpHeaderLen {
		return
	}
	if was := w.closes(segment); was != 0 {
		sum := binary.BigEndian.Uint16(segment[tcpChecksum:])
		binary.BigEndian.PutUint16(segment[tcpChecksum:], ^checksum.Combine(^sum, ^was))
	}
}
