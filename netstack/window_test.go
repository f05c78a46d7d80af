package netstack

import (
	"encoding/binary"
	"io"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

func TestSmallWindowsAreClosed(t *testing.T) {
	w := newWindowFloor(Options{MTU: DefaultMTU, TCPReceiveBuffer: DefaultTCPBuffer})
	segment := DefaultMTU - ipv4HeaderLen - tcpHeaderLen
	for _, c := range []struct {
		what       string
		flags      byte
		raw, wants uint16
	}{
		{"a closed one", flagACK, 0, 0},
		{"the smallest", flagACK, 1, 0},
		{"less than a segment", flagACK | flagPSH, uint16((segment - 1) >> w.scale), 0},
		{"a segment", flagACK, uint16(segment>>w.scale + 1), uint16(segment>>w.scale + 1)},
		{"a large one", flagACK | flagFIN, 0xffff, 0xffff},
		{"a SYN's, which is not scaled", flagSYN | flagACK, 5, 5},
		{"a reset's", flagRST, 5, 5},
	} {
		for _, v4 := range []bool{true, false} {
			packet := tcpPacket(v4, c.flags, c.raw)
			w.closesWhole(packet)
			segment, _ := tcpOf(packet)
			if got := binary.BigEndian.Uint16(segment[tcpWindow:]); got != c.wants {
				t.Errorf("%s, IPv4 %v: window %d became %d, want %d", c.what, v4, c.raw, got, c.wants)
			}
			if !validTCP(packet) {
				t.Errorf("%s, IPv4 %v: the checksum is wrong", c.what, v4)
			}
		}
	}
	// A window of half the least receive buffer opens on links of any MTU.
	if jumbo := newWindowFloor(Options{MTU: 65535, TCPReceiveBuffer: DefaultTCPBuffer}); jumbo.least > leastReceive/2 {
		t.Errorf("with an MTU of 65535 windows are closed below %d bytes, and open to %d at most", jumbo.least, leastReceive/2)
	}
}

// tcpPacket returns a segment with a payload and complete checksums.
func tcpPacket(v4 bool, flags byte, window uint16) []byte {
	l3 := ipv6HeaderLen
	if v4 {
		l3 = ipv4HeaderLen
	}
	packet := make([]byte, l3+tcpHeaderLen+5)
	if v4 {
		packet[0], packet[ipv4Proto] = 0x45, protoTCP
		copy(packet[ipv4Src:], a4.AsSlice())
		copy(packet[ipv4Dst:], b4.AsSlice())
	} else {
		packet[0], packet[ipv6NextHeader] = 6<<4, protoTCP
		binary.BigEndian.PutUint16(packet[ipv6PayloadLen:], uint16(len(packet)-l3))
		copy(packet[ipv6Src:], a6.AsSlice())
		copy(packet[ipv6Dst:], b6.AsSlice())
	}
	tcp := packet[l3:]
	copy(tcp[tcpHeaderLen:], "hello")
	tcp[tcpDataOffset], tcp[tcpFlags] = tcpHeaderLen/4<<4, flags
	binary.BigEndian.PutUint16(tcp[tcpWindow:], window)
	binary.BigEndian.PutUint16(tcp[tcpChecksum:], ^sumTCP(packet))
	return packet
}

func validTCP(packet []byte) bool { return sumTCP(packet) == 0xffff }

// sumTCP returns the sum over a segment and its pseudo header (RFC 9293 §3.1).
func sumTCP(packet []byte) uint16 {
	tcp, _ := tcpOf(packet)
	addresses := packet[ipv6Src:ipv6HeaderLen]
	if packet[0]>>4 == 4 {
		addresses = packet[ipv4Src:ipv4HeaderLen]
	}
	return checksum.Checksum(tcp, checksum.Combine(checksum.Checksum(addresses, protoTCP), uint16(len(tcp))))
}

// The receiver doesn't read, and the last packet that fits the window is lost each time it is sent.
// Then the receiver reads, and its announcement of the new window is lost. No further packet would
// be sent by either side.
func TestALostAnnouncementOfASmallWindow(t *testing.T) {
	const size, filled = 300 << 10, 40 << 10
	scale := newWindowFloor(Options{MTU: DefaultMTU, TCPReceiveBuffer: DefaultTCPBuffer}).scale
	for i, at := range []netip.Addr{b6, b4, b6, b4, b6, b4, b6, b4} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel() // each waits for timers
			// Shared by the filters; edge is the end of the window, to the precision of its scale.
			var losing, mute atomic.Bool
			var delivered, unheard atomic.Int64
			var edge atomic.Uint32
			var next uint32
			p := newPair(t, Options{}, Options{}, impairment{
				there: func(packet []byte) bool {
					n, seq := payloadOf(packet)
					switch end := seq + uint32(n); {
					case n == 0:
					case losing.Load() && delivered.Load() > filled && n < DefaultMTU-100 && int32(end-edge.Load()) > -1<<scale:
						return false
					case delivered.Load() == 0 || seq == next:
						next = end
						delivered.Add(int64(n))
					}
					return true
				},
				back: func(packet []byte) bool {
					if mute.Load() {
						unheard.Add(1)
						return false
					}
					tcp, _ := tcpOf(packet)
					if tcp[tcpFlags]&flagSYN == 0 {
						edge.Store(binary.BigEndian.Uint32(tcp[tcpAckNumber:]) + uint32(binary.BigEndian.Uint16(tcp[tcpWindow:]))<<scale)
					}
					return true
				},
			})
			client, server := p.connect(t, at)
			// Another offset in each round: how much of the window remains differs.
			prelude := 1 + 37*i
			if _, err := client.Write(make([]byte, prelude)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, make([]byte, prelude)); err != nil {
				t.Fatal(err)
			}
			losing.Store(true)
			before := p.a.Stats().TCPTimeouts
			sent := make(chan error, 1)
			go func() {
				_, err := client.Write(make([]byte, size))
				sent <- err
			}()
			eventually(t, "the retransmission timer runs out", func() bool { return p.a.Stats().TCPTimeouts > before })
			mute.Store(true)
			come := delivered.Load() - int64(prelude)
			if _, err := io.CopyN(io.Discard, server, come); err != nil {
				t.Fatalf("reading what has come: %v", err)
			}
			// Data sent below gVisor is cut differently, and may leave a window that its receiver need
			// not announce: it is probed.
			if p.a.dev.flows.count.Load() == 0 {
				eventually(t, "the receiver announces more", func() bool { return unheard.Load() > 0 })
			}
			losing.Store(false)
			mute.Store(false)
			if _, err := io.CopyN(io.Discard, server, size-come); err != nil {
				t.Fatalf("reading on after %d KB, when nothing is lost any more: %v", come>>10, err)
			}
			if err := <-sent; err != nil {
				t.Errorf("sending: %v", err)
			}
		})
	}
}

const tcpAckNumber = 8 // offset, RFC 9293 §3.1

// payloadOf returns the length of a TCP packet's payload, and its sequence number.
func payloadOf(packet []byte) (n int, seq uint32) {
	tcp, _ := tcpOf(packet)
	if len(tcp) < tcpHeaderLen {
		return 0, 0
	}
	return len(tcp) - int(tcp[tcpDataOffset]>>4)*4, binary.BigEndian.Uint32(tcp[tcpSeq:])
}
