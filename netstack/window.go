package netstack

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/seqnum"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// windowFloor closes windows that are too small to be of use: what we would announce as less
// than a segment is announced as 0, until it is more.
//
// gVisor's sender puts off what doesn't fit a window of less than a segment until its
// retransmission timer runs out; when that finds the same, it doesn't start it again, nor its
// probes, which are for closed windows alone. The connection then waits for the receiver to
// announce more, and if that is lost, for ever. It gets there by losing the last segment before
// the end of the window: the receiver rounds what is left down to its scale, to less than that
// segment. A closed window is probed, and a receiver should not announce small ones anyhow
// (RFC 9293 §3.8.6.2.2).
//
// Short memory and slow readers lead there: of 24 connections in 3 MB, with 1 % of loss and
// readers that pause, one hung in every fourth run.
type windowFloor struct {
	scale int // of the windows of all our connections
	least int // in bytes
}

func newWindowFloor(o Options) windowFloor {
	return windowFloor{
		scale: tcp.FindWndScale(seqnum.Size(o.TCPReceiveBuffer)),
		// gVisor announces again what has grown to a segment, or to a quarter of the receive
		// buffer if that is less.
		least: min(o.MTU-ipv4HeaderLen-tcpHeaderLen, leastReceive/4),
	}
}

// closes sets the window of an outbound TCP segment to 0 if it is too small, and tells what it
// was, which is 0 if that has not changed. The checksum is left to the caller. A peer that
// knows no scaling takes the window as it is, which is less still.
func (w windowFloor) closes(segment []byte) (was uint16) {
	if segment[tcpFlags]&(flagSYN|flagACK) != flagACK { // The window of a SYN is not scaled.
		return 0
	}
	was = binary.BigEndian.Uint16(segment[tcpWindow:])
	if was == 0 || int(was)<<w.scale >= w.least {
		return 0
	}
	binary.BigEndian.PutUint16(segment[tcpWindow:], 0)
	return was
}

// closesWhole does so in a packet whose checksums are complete, which stay so (RFC 1624).
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
