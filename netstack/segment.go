package netstack

import (
	"encoding/binary"
	"errors"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Offsets and sizes of the header fields used by cutting, joining and windowFloor: RFC 791 §3.1,
// RFC 8200 §3, RFC 9293 §3.1.
const (
	ipv4HeaderLen    = 20
	ipv4TOS          = 1
	ipv4TotalLen     = 2
	ipv4ID           = 4
	ipv4Fragment     = 6
	ipv4TTL          = 8
	ipv4Proto        = 9
	ipv4Checksum     = 10
	ipv4Src          = 12
	ipv4Dst          = 16
	ipv6HeaderLen    = 40
	ipv6PayloadLen   = 4
	ipv6NextHeader   = 6
	ipv6Src          = 8
	ipv6Dst          = 24
	tcpHeaderLen     = 20
	tcpSeq           = 4
	tcpAck           = 8
	tcpDataOffset    = 12
	tcpFlags         = 13
	tcpWindow        = 14
	tcpChecksum      = 16
	protoTCP         = 6
	maxHeaderLen     = 60 + 60 // IPv4 with options and TCP with options
	flagFIN          = 0x01
	flagSYN          = 0x02
	flagRST          = 0x04
	flagPSH          = 0x08
	flagACK          = 0x10
	flagURG          = 0x20
	flagCWR          = 0x80
	flagsOnLastOnly  = flagFIN | flagPSH
	flagsOnFirstOnly = flagCWR
)

var (
	errUncuttable = errors.New("netstack: segment headers don't fit its offload options")
	errShort      = errors.New("netstack: packet larger than the buffer")
)

// segmenter cuts one outbound packet into packets of at most header + MSS, or the path's MTU if
// that is less. It holds no reference: the packet's memory must stay valid while it is in use. The
// zero value is done.
//
// A packet without offload options comes out unchanged, unless it is TCP that is too large for its
// path.
type segmenter struct {
	views   [][]byte // not copied yet; the first may be partly consumed
	left    int      // bytes in views
	whole   bool     // no cutting: copy views as they are
	header  [maxHeaderLen]byte
	l3, hdr int // length of the IP header; of IP and TCP headers
	v4      bool
	mss     int
	pseudo  uint16 // checksum of addresses and protocol, without the length
	seq     uint32 // of the next segment
	id      uint16 // IPv4 ID of the next segment
	flags   byte   // of the whole packet
	first   bool   // the next segment is the first
}

// reset starts a packet made of views. TCP packets are at most mtu bytes, unless that is 0. It
// fails if the headers contradict gso.
func (s *segmenter) reset(views [][]byte, gso stack.GSO, mtu int) error {
	s.views, s.left, s.first = views, 0, true
	for _, v := range views {
		s.left += len(v)
	}
	s.whole = gso.Type == stack.GSONone || !gso.NeedsCsum
	if s.whole && mtu > 0 && s.left > mtu {
		gso = s.offload()
		s.whole = gso.Type == stack.GSONone
	}
	if s.whole {
		return nil
	}
	if err := s.parse(gso, mtu); err != nil {
		s.left = 0
		return err
	}
	return nil
}

// offload returns the options for cutting a TCP packet that came without any; none if it is not TCP
// in its simple form, without IP options and not a fragment.
func (s *segmenter) offload() stack.GSO {
	head := s.header[:min(s.left, ipv6HeaderLen)]
	peek := head
	for _, v := range s.views {
		peek = peek[copy(peek, v):]
	}
	gso := stack.GSO{NeedsCsum: true, MSS: gsoMaxSize}
	switch {
	case len(head) >= ipv4HeaderLen && head[0] == 0x45:
		const moreOrOffset = 0x3fff
		if head[ipv4Proto] == protoTCP && binary.BigEndian.Uint16(head[ipv4Fragment:])&moreOrOffset == 0 {
			gso.Type, gso.L3HdrLen = stack.GSOTCPv4, ipv4HeaderLen
		}
	case len(head) >= ipv6HeaderLen && head[0]>>4 == 6:
		if head[ipv6NextHeader] == protoTCP {
			gso.Type, gso.L3HdrLen = stack.GSOTCPv6, ipv6HeaderLen
		}
	}
	return gso
}

// parse removes the headers from the views and stores what varies by segment.
func (s *segmenter) parse(gso stack.GSO, mtu int) error {
	s.l3 = int(gso.L3HdrLen)
	s.v4 = gso.Type == stack.GSOTCPv4
	s.mss = int(gso.MSS)
	minimum := ipv6HeaderLen
	if s.v4 {
		minimum = ipv4HeaderLen
	}
	if s.l3 < minimum || s.l3 > maxHeaderLen-tcpHeaderLen || s.left < s.l3+tcpHeaderLen {
		return errUncuttable
	}
	s.copyOut(s.header[:s.l3+tcpHeaderLen])
	tcp := s.header[s.l3:]
	tcpLen := int(tcp[tcpDataOffset]>>4) * 4
	s.hdr = s.l3 + tcpLen
	if tcpLen < tcpHeaderLen || s.hdr > maxHeaderLen || s.left < tcpLen-tcpHeaderLen {
		return errUncuttable
	}
	s.copyOut(s.header[s.l3+tcpHeaderLen : s.hdr])
	if mtu > 0 {
		s.mss = max(min(s.mss, mtu-s.hdr), 0)
	}
	if s.mss == 0 && s.left > 0 {
		return errUncuttable
	}
	src, dst := ipv6Src, ipv6Dst+16
	if s.v4 {
		src, dst = ipv4Src, ipv4Dst+4
		s.id = binary.BigEndian.Uint16(s.header[ipv4ID:])
	}
	s.pseudo = checksum.Checksum(s.header[src:dst], protoTCP)
	s.seq = binary.BigEndian.Uint32(tcp[tcpSeq:])
	s.flags = tcp[tcpFlags]
	return nil
}

// tcp returns the TCP header of the packet being cut, which is not whole. It may be changed, except
// for what varies by segment.
func (s *segmenter) tcp() []byte { return s.header[s.l3:s.hdr] }

// done reports whether everything has been written.
func (s *segmenter) done() bool { return s.left == 0 && (s.whole || !s.first) }

// next writes the next packet to the front of dst and returns its length.
func (s *segmenter) next(dst []byte) (int, error) {
	if s.whole {
		if s.left > len(dst) {
			return 0, errShort
		}
		n := s.left
		s.copyOut(dst[:n])
		return n, nil
	}
	payload := min(s.left, s.mss)
	n := s.hdr + payload
	if n > len(dst) || n > gsoMaxSize {
		return 0, errShort
	}
	dst = dst[:n]
	copy(dst, s.header[:s.hdr])
	s.copyOut(dst[s.hdr:])
	s.writeIP(dst)
	s.writeTCP(dst[s.l3:])
	s.first = false
	s.seq += uint32(payload)
	s.id++
	return n, nil
}

// writeIP sets the fields of the IP header that differ between segments.
func (s *segmenter) writeIP(packet []byte) {
	if !s.v4 {
		binary.BigEndian.PutUint16(packet[ipv6PayloadLen:], uint16(len(packet)-ipv6HeaderLen))
		return
	}
	binary.BigEndian.PutUint16(packet[ipv4TotalLen:], uint16(len(packet)))
	binary.BigEndian.PutUint16(packet[ipv4ID:], s.id)
	binary.BigEndian.PutUint16(packet[ipv4Checksum:], 0)
	binary.BigEndian.PutUint16(packet[ipv4Checksum:], ^checksum.Checksum(packet[:s.l3], 0))
}

// writeTCP sets sequence number, flags and checksum. Call it with the payload in place: the sum
// then runs over memory that was just written.
func (s *segmenter) writeTCP(tcp []byte) {
	binary.BigEndian.PutUint32(tcp[tcpSeq:], s.seq)
	flags := s.flags
	if !s.first {
		flags &^= flagsOnFirstOnly
	}
	if s.left > 0 {
		flags &^= flagsOnLastOnly
	}
	tcp[tcpFlags] = flags
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], 0)
	sum := checksum.Combine(s.pseudo, uint16(len(tcp)))
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^checksum.Checksum(tcp, sum))
}

// copyOut copies the next len(dst) bytes from the views, which must hold as many.
func (s *segmenter) copyOut(dst []byte) {
	s.left -= len(dst)
	for len(dst) > 0 {
		n := copy(dst, s.views[0])
		dst = dst[n:]
		if n == len(s.views[0]) {
			s.views = s.views[1:]
		} else {
			s.views[0] = s.views[0][n:]
		}
	}
}
