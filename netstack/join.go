package netstack

import (
	"bytes"
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// joiner joins consecutive TCP segments of one flow within a batch, so that gVisor is called once
// for many: generic receive offload. It follows one flow at a time: a sender's 64 KB segment
// arrives as a run of neighbours, and even interleaved runs of several flows are dozens of packets
// long each.
//
// A joined packet is copied once, into memory of about its own size. (gVisor's own
// pkg/tcpip/stack/gro first makes a packet buffer of each segment, and its Flush passes on only one
// of several flows that share a bucket.) A joiner belongs to one Write call.
type joiner struct {
	emit   func(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer)
	joined int // segments appended to another one

	batch   [][]byte // the packets of the Write call that go to gVisor
	run     [][]byte // the packets of the current run; the first one's header is used
	tcp     tcpView  // of the run's first packet
	nextSeq uint32
	size    int  // of the joined packet
	flags   byte // to add to the first packet's
}

// tcpView locates the headers of a TCP packet that may be joined.
type tcpView struct {
	v4      bool
	l3, hdr int // as in segmenter
	payload int
}

// parseTCP reports whether packet is a TCP segment of the simple form that can be joined: no IP
// options or extension headers, not a fragment, some payload, and no flags but ACK, ECE, CWR, PSH
// and FIN.
func parseTCP(packet []byte) (tcpView, bool) {
	var v tcpView
	switch {
	case len(packet) >= ipv4HeaderLen && packet[0] == 0x45:
		v.v4, v.l3 = true, ipv4HeaderLen
		const moreOrOffset = 0x3fff
		if packet[ipv4Proto] != protoTCP ||
			binary.BigEndian.Uint16(packet[ipv4Fragment:])&moreOrOffset != 0 ||
			int(binary.BigEndian.Uint16(packet[ipv4TotalLen:])) != len(packet) {
			return v, false
		}
	case len(packet) >= ipv6HeaderLen && packet[0]>>4 == 6:
		v.l3 = ipv6HeaderLen
		if packet[ipv6NextHeader] != protoTCP ||
			int(binary.BigEndian.Uint16(packet[ipv6PayloadLen:])) != len(packet)-ipv6HeaderLen {
			return v, false
		}
	default:
		return v, false
	}
	if len(packet) < v.l3+tcpHeaderLen {
		return v, false
	}
	tcp := packet[v.l3:]
	tcpLen := int(tcp[tcpDataOffset]>>4) * 4
	v.hdr = v.l3 + tcpLen
	v.payload = len(packet) - v.hdr
	return v, tcpLen >= tcpHeaderLen && v.payload > 0 && tcp[tcpFlags]&(flagSYN|flagRST|flagURG) == 0
}

// reset forgets a batch.
func (j *joiner) reset() {
	clear(j.batch)
	j.batch, j.joined = j.batch[:0], 0
}

// add takes the next packet of the batch, which must stay valid until flush. A packet that cannot
// be joined is emitted at once, after those before it.
func (j *joiner) add(packet []byte) {
	v, ok := parseTCP(packet)
	if !ok {
		j.flush()
		j.emitOne(packet, 0)
		return
	}
	if len(j.run) > 0 && j.continues(packet, v) {
		j.run = append(j.run, packet)
		j.joined++
		j.size += v.payload
	} else {
		j.flush()
		j.run = append(j.run, packet)
		j.tcp, j.size, j.flags = v, len(packet), 0
	}
	flags := packet[v.l3+tcpFlags]
	j.nextSeq = binary.BigEndian.Uint32(packet[v.l3+tcpSeq:]) + uint32(v.payload)
	j.flags |= flags & flagsOnLastOnly
	if flags&flagsOnLastOnly != 0 || v.payload < j.tcp.payload {
		j.flush() // the last one of a run
	}
}

// continues reports whether packet can be appended to the current run.
func (j *joiner) continues(packet []byte, v tcpView) bool {
	first := j.run[0]
	if v.v4 != j.tcp.v4 || v.hdr != j.tcp.hdr || v.payload > j.tcp.payload ||
		j.size+v.payload > gsoMaxSize || !sameIP(first, packet, v.v4) {
		return false
	}
	a, b := first[v.l3:v.hdr], packet[v.l3:v.hdr]
	return binary.BigEndian.Uint32(b[tcpSeq:]) == j.nextSeq &&
		bytes.Equal(a[:tcpSeq], b[:tcpSeq]) && // ports
		bytes.Equal(a[8:tcpFlags], b[8:tcpFlags]) && // acknowledgement, data offset
		(a[tcpFlags]^b[tcpFlags])&^(flagsOnLastOnly|flagsOnFirstOnly) == 0 && b[tcpFlags]&flagCWR == 0 &&
		bytes.Equal(a[14:16], b[14:16]) && // window
		bytes.Equal(a[tcpHeaderLen:], b[tcpHeaderLen:]) // options
}

// sameIP compares what must be equal in the IP headers of two segments to be joined:
// traffic class, flow label, "don't fragment", hop limit and addresses.
func sameIP(a, b []byte, v4 bool) bool {
	if v4 {
		return a[ipv4TOS] == b[ipv4TOS] && a[ipv4Fragment] == b[ipv4Fragment] && a[ipv4TTL] == b[ipv4TTL] &&
			bytes.Equal(a[ipv4Src:ipv4HeaderLen], b[ipv4Src:ipv4HeaderLen])
	}
	return bytes.Equal(a[:ipv6PayloadLen], b[:ipv6PayloadLen]) &&
		bytes.Equal(a[ipv6NextHeader:ipv6HeaderLen], b[ipv6NextHeader:ipv6HeaderLen])
}

// flush emits the current run, if there is one.
func (j *joiner) flush() {
	switch len(j.run) {
	case 0:
		return
	case 1:
		j.emitOne(j.run[0], j.tcp.hdr)
	default:
		j.emitRun()
	}
	clear(j.run)
	j.run = j.run[:0]
}

// emitRun copies the run into one packet. Checksums stay as they are: nobody verifies them.
func (j *joiner) emitRun() {
	var head [maxHeaderLen]byte
	copy(head[:], j.run[0][:j.tcp.hdr])
	if j.tcp.v4 {
		binary.BigEndian.PutUint16(head[ipv4TotalLen:], uint16(j.size))
	} else {
		binary.BigEndian.PutUint16(head[ipv6PayloadLen:], uint16(j.size-ipv6HeaderLen))
	}
	head[j.tcp.l3+tcpFlags] |= j.flags
	w := newPacketWriter(head[:j.tcp.hdr], j.size-j.tcp.hdr)
	for _, p := range j.run {
		w.write(p[j.tcp.hdr:])
	}
	j.emitBuffer(j.tcp.v4, w.buf)
}

// emitOne emits a packet by itself; head is the length of its headers if it is TCP with
// payload, else 0.
func (j *joiner) emitOne(packet []byte, head int) {
	v4 := packet[0]>>4 == 4
	if head == 0 {
		j.emitBuffer(v4, buffer.MakeWithData(packet))
		return
	}
	w := newPacketWriter(packet[:head], len(packet)-head)
	w.write(packet[head:])
	j.emitBuffer(v4, w.buf)
}

func (j *joiner) emitBuffer(v4 bool, b buffer.Buffer) {
	proto := header.IPv6ProtocolNumber
	if v4 {
		proto = header.IPv4ProtocolNumber
	}
	j.emit(proto, stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: b}))
}

// packetWriter fills a packet's memory. gVisor's memory comes in powers of two that are cleared
// when allocated. So a payload is composed of such pieces, and at most pieceMin is cleared in
// vain. The headers get their own piece: gVisor copies a whole piece when it reads the headers of a
// packet that shares its memory with another (copy on write, buffer.PullUp), at least once for each
// segment. With the headers in the first 32 KB that took an eighth of all time.
type packetWriter struct {
	buf  buffer.Buffer
	view *buffer.View // not yet in buf, if not nil
	size int          // of the payload still to come
}

// pieceMin is the smallest piece, in bytes: below it more pieces cost more than the waste.
const pieceMin = 4096

func newPacketWriter(head []byte, payload int) packetWriter {
	return packetWriter{buf: buffer.MakeWithView(sealed(head)), size: payload}
}

// sealed returns a view of b that gVisor's Append does not extend.
func sealed(b []byte) *buffer.View {
	v := buffer.NewViewSize(roundUp(len(b)))
	_, _ = v.WriteAt(b, v.Size()-len(b)) // cannot fail: it fits, and nobody shares the view
	v.TrimFront(v.Size() - len(b))
	return v
}

// roundUp returns the size of gVisor's piece for n bytes of headers.
func roundUp(n int) int {
	if n <= 64 {
		return 64
	}
	return 128
}

// write appends to the payload. All of it must be written before buf is used.
func (w *packetWriter) write(b []byte) {
	for len(b) > 0 {
		if w.view == nil {
			w.view = buffer.NewView(pieceSizeFor(w.size))
		}
		n := min(len(b), w.view.AvailableSize())
		_, _ = w.view.Write(b[:n]) // as above
		b = b[n:]
		w.size -= n
		if w.size == 0 || w.view.Full() {
			_ = w.buf.Append(w.view) // the previous view is full, so this one is taken as it is
			w.view = nil
		}
	}
}

// pieceSizeFor is the largest power of two that left bytes fill, or left if that is small.
func pieceSizeFor(left int) int {
	for p := buffer.MaxChunkSize; p >= pieceMin; p /= 2 {
		if p <= left {
			return p
		}
	}
	return left
}
