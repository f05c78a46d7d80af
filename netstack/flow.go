package netstack

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/netstack/sender"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// hiddenRTT is added to the round trip that gVisor measures, in milliseconds, by changing the
// timestamps echoed to it. gVisor's retransmission timer, which does not know of the
// retransmissions here, then runs for maxRTO. It is the same for all packets of a connection, or
// they could not be joined.
const hiddenRTT = 1500

// flow is a connection whose data package sender sends instead of gVisor: see [flows]. peerFlows.mu
// guards everything but the atomic fields.
type flow struct {
	peer    *peerFlows
	key     flowKey
	remote  netip.Addr
	sending *sender.Flow        // nil until there is data
	ended   bool                // gVisor is done with it; what it handed over before may still come
	gone    bool                // forgotten, too
	reset   *stack.PacketBuffer // sent after everything that was handed over; may be nil
	last    sender.Seq          // up to where data has been sent before the reset
	held    held
	end     sender.Seq // of the data that gVisor handed over
	start   sender.Seq // of the first data
	written sender.Seq // end of what the connection's user has written
	resume  int        // waiting writers are woken below this many unsent bytes; 0: nobody waits
	wake    func()     // wakes writers; immutable once there is something to write
	mss     int        // the largest payload that gVisor put into a packet
	mtu     int        // of the path; 0 means the network card's

	// The start of each packet: the headers of gVisor's last segment, with the newest
	// acknowledgement, window and timestamp.
	header  [maxHeaderLen]byte
	l3, hdr int
	v4      bool
	id      uint16 // IPv4 ID of the next packet
	stamps  int    // offset of the timestamps in header; 0 is none

	arrived atomic.Int64 // bytes of payload received
	// The most that may be held, in bytes. It is above gVisor's send buffer, which is the real
	// bound unless a peer misleads gVisor about what it has acknowledged.
	most atomic.Int64
}

// take reports whether it takes over an outbound packet, with its reference, to send it later. What
// it does not take leaves at once: acknowledgements, keepalives, zero-window probes, resets.
func (f *flow) take(now time.Duration, pkt *stack.PacketBuffer, ip, tcp []byte, windows windowFloor) bool {
	size := pkt.Data().Size()
	r := sender.Range{Start: sender.Seq(binary.BigEndian.Uint32(tcp[tcpSeq:]))}
	r.End = r.Start + sender.Seq(size)
	fin := tcp[tcpFlags]&flagFIN != 0
	if fin {
		r.End++
	}
	data := r.Size() > 0 && tcp[tcpFlags]&(flagSYN|flagRST) == 0
	switch {
	case f.gone || f.reset != nil:
		return false
	case tcp[tcpFlags]&(flagSYN|flagACK) != flagACK:
		// A reset without an acknowledgement answers a packet that has no endpoint any more. It
		// resets the peer only now, and carries nothing that the next packet could repeat.
		return false
	case f.sending != nil:
	case !data:
		return false
	default:
		f.begin(r.Start, size)
	}
	f.refresh(ip, tcp, data, windows)
	switch {
	case tcp[tcpFlags]&flagRST != 0 && f.sending.Sent().Before(f.end):
		f.reset, f.last = pkt, f.sending.Sent()
		f.peer.path.Close(f.sending)
		f.peer.resets = append(f.peer.resets, f)
		return true
	case !data:
		// gVisor assumes that everything it handed over was sent. A peer would miss the rest.
		if sent := f.sending.Sent(); sent.Before(r.Start) {
			setSeq(tcp, sent)
		}
		return false
	case !f.sending.Unacknowledged().Before(r.End):
		return false
	case f.end.Before(r.Start), // The queue was full for what comes before; gVisor retransmits it.
		int64(f.sending.Unacknowledged().To(r.End)) > f.most.Load():
		pkt.DecRef()
		return true
	}
	if mss := int(pkt.GSOOptions.MSS); pkt.GSOOptions.Type != stack.GSONone && mss > 0 {
		f.mss = mss // It may have shrunk with the path's MTU.
	} else {
		f.mss = max(f.mss, size)
	}
	f.sending.SetMSS(f.packetSize())
	if !f.end.Before(r.End) {
		pkt.DecRef() // gVisor retransmits what is already held.
		return true
	}
	known := r.Start.To(f.end) // A retransmission may have grown.
	f.held.add(heldSegment{
		Range: sender.Range{Start: f.end, End: r.End}, pkt: pkt, payload: len(ip) + len(tcp) + known,
		push: tcp[tcpFlags]&flagPSH != 0, fin: fin,
	})
	f.end = r.End
	f.sending.Offer(now, r.End)
	return true
}

// setSeq changes the sequence number of a segment with a complete checksum (RFC 1624).
func setSeq(tcp []byte, to sender.Seq) {
	var was [4]byte
	copy(was[:], tcp[tcpSeq:])
	binary.BigEndian.PutUint32(tcp[tcpSeq:], uint32(to))
	sum := ^binary.BigEndian.Uint16(tcp[tcpChecksum:])
	for i := 0; i < 4; i += 2 {
		sum = checksum.Combine(sum, ^binary.BigEndian.Uint16(was[i:]))
		sum = checksum.Combine(sum, binary.BigEndian.Uint16(tcp[tcpSeq+i:]))
	}
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^sum)
}

// begin starts the flow with the first data.
func (f *flow) begin(start sender.Seq, size int) {
	f.mss = size
	f.start, f.end = start, start
	// gVisor hands over no more than the peer has room for, so there is no window to watch.
	f.sending = f.peer.path.Open(sender.Config{Start: start, MSS: max(size, 1), Window: 1 << 30})
}

// packetSize returns the largest payload of a packet, in bytes.
func (f *flow) packetSize() int {
	if f.mtu > 0 {
		return max(min(f.mss, f.mtu-f.hdr), 1)
	}
	return f.mss
}

// fit sets the MTU of the path, 0 for the network card's.
func (f *flow) fit(mtu int) {
	f.mtu = mtu
	f.sending.SetMSS(f.packetSize())
}

// unsentPart is the fraction of a path's window that may be written and unsent. A woken writer has
// half of it as time to return: on a full path an eighth of a round trip.
const unsentPart = 8

// unsent returns how much is written and was never sent, in bytes.
func (f *flow) unsent() int { return f.sending.Sent().To(f.start + f.written) }

// full reports whether so much is written and unsent that more would only take memory and wait.
// What is in flight or behind a gap doesn't count. least is what may always be unsent, in bytes.
// Writers are woken when half of it is sent.
func (f *flow) full(least int) bool {
	f.peer.mu.Lock()
	defer f.peer.mu.Unlock()
	most := max(least, f.peer.path.Window()/unsentPart)
	if f.sending == nil || f.ended || f.unsent() < most {
		return false
	}
	f.resume = most / 2
	return true
}

// wrote records that n bytes were written.
func (f *flow) wrote(n int) {
	f.peer.mu.Lock()
	f.written += sender.Seq(n)
	f.peer.mu.Unlock()
}

// refresh copies a segment's headers: all of them if it has data, else only what changes.
func (f *flow) refresh(ip, tcp []byte, data bool, windows windowFloor) {
	if data || f.hdr == 0 {
		f.l3, f.hdr, f.v4 = len(ip), len(ip)+len(tcp), ip[0]>>4 == 4
		copy(f.header[:], ip)
		copy(f.header[f.l3:], tcp)
		f.stamps = 0
		own := f.header[f.l3:f.hdr]
		if at := timestampsAt(own); at > 0 {
			f.stamps = f.l3 + at
		}
		hideSACK(own) // It would be outdated when most packets leave.
	} else {
		own := f.header[f.l3:f.hdr]
		copy(own[tcpAck:tcpAck+4], tcp[tcpAck:tcpAck+4])
		copy(own[tcpWindow:tcpWindow+2], tcp[tcpWindow:tcpWindow+2])
		if at := timestampsAt(tcp); at > 0 && f.stamps > 0 {
			copy(f.header[f.stamps:f.stamps+8], tcp[at:at+8])
		}
	}
	windows.closes(f.header[f.l3:f.hdr])
}

// write writes a packet with the bytes of r to the front of dst, and returns its length.
func (f *flow) write(dst []byte, r sender.Range) int {
	copy(dst, f.header[:f.hdr])
	n, flags := f.held.read(dst[f.hdr:], r)
	dst = dst[:f.hdr+n]
	if f.v4 {
		binary.BigEndian.PutUint16(dst[ipv4TotalLen:], uint16(len(dst)))
		binary.BigEndian.PutUint16(dst[ipv4ID:], f.id)
		f.id++
		binary.BigEndian.PutUint16(dst[ipv4Checksum:], 0)
		binary.BigEndian.PutUint16(dst[ipv4Checksum:], ^checksum.Checksum(dst[:f.l3], 0))
	} else {
		binary.BigEndian.PutUint16(dst[ipv6PayloadLen:], uint16(len(dst)-ipv6HeaderLen))
	}
	tcp := dst[f.l3:]
	binary.BigEndian.PutUint32(tcp[tcpSeq:], uint32(r.Start))
	tcp[tcpFlags] = flagACK | flags
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], 0)
	src, end := ipv6Src, ipv6Dst+16
	if f.v4 {
		src, end = ipv4Src, ipv4Dst+4
	}
	sum := checksum.Combine(checksum.Checksum(dst[src:end], protoTCP), uint16(len(tcp)))
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^checksum.Checksum(tcp, sum))
	return len(dst)
}

// receive handles an inbound segment, and hides from gVisor what it must not act on: selective
// acknowledgements and the short round trip.
func (f *flow) receive(now time.Duration, tcp []byte) {
	hdr := int(tcp[tcpDataOffset]>>4) * 4
	if hdr < tcpHeaderLen || hdr > len(tcp) {
		return
	}
	f.arrived.Add(int64(len(tcp) - hdr))
	if tcp[tcpFlags]&(flagSYN|flagRST|flagACK) != flagACK || f.sending == nil || f.gone || f.reset != nil {
		return
	}
	a := sender.Ack{Ack: sender.Seq(binary.BigEndian.Uint32(tcp[tcpAck:])), Window: 1 << 30}
	var blocks [4]sender.Range // as many as fit into the options
	for _, o := range tcpOptions(tcp) {
		switch {
		case o[0] == tcpOptionSACK:
			for b := o[2:]; len(b) >= 8 && len(a.Blocks) < len(blocks); b = b[8:] {
				a.Blocks = append(blocks[:len(a.Blocks)], sender.Range{
					Start: sender.Seq(binary.BigEndian.Uint32(b)), End: sender.Seq(binary.BigEndian.Uint32(b[4:])),
				})
			}
		case o[0] == tcpOptionTimestamps && len(o) == 10:
			if echoed := binary.BigEndian.Uint32(o[6:]); echoed != 0 {
				binary.BigEndian.PutUint32(o[6:], max(echoed-hiddenRTT, 1))
			}
		}
	}
	hideSACK(tcp)
	if sent := f.sending.Sent(); sent.Before(a.Ack) {
		// It acknowledges what gVisor handed over and nobody has sent. gVisor would believe it, and
		// hand over more without end.
		binary.BigEndian.PutUint32(tcp[tcpAck:], uint32(f.sending.Unacknowledged()))
		return
	}
	f.sending.OnAck(now, a)
	f.held.release(f.sending.Unacknowledged())
}

// hideSACK removes the selective acknowledgements from a TCP header.
func hideSACK(tcp []byte) {
	for _, o := range tcpOptions(tcp) {
		if o[0] == tcpOptionSACK {
			for i := range o {
				o[i] = tcpOptionNOP
			}
		}
	}
}

// timestampsAt returns the offset of the values of RFC 7323's option in a TCP header; 0 is none.
func timestampsAt(tcp []byte) int {
	for at, o := range tcpOptions(tcp) {
		if o[0] == tcpOptionTimestamps && len(o) == 10 {
			return at + 2
		}
	}
	return 0
}
