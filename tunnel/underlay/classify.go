package underlay

import "encoding/binary"

// Class is the kind of a datagram, or why it is dropped.
type Class uint8

// The classes, in the order in which they are tried. All but the first two are dropped, and STUN
// too if nothing handles it.
const (
	// WireGuard is a WireGuard message by its header and length.
	WireGuard Class = iota
	// STUN is a STUN message (RFC 8489 §5) by its header, magic cookie and length.
	STUN
	// Empty is a datagram without payload.
	Empty
	// WireGuardLength has a WireGuard header, but a length that its type never has.
	WireGuardLength
	// STUNLength has a STUN header, but not the length that it states.
	STUNLength
	// ChannelData is TURN's framing (RFC 8656 §12.4) for no allocation of ours.
	ChannelData
	// Unknown is everything else.
	Unknown

	classes // the number of classes
)

// String is the reason as a metric label.
func (c Class) String() string {
	switch c {
	case WireGuard:
		return "wireguard"
	case STUN:
		return "stun"
	case Empty:
		return "empty"
	case WireGuardLength:
		return "wireguard-length"
	case STUNLength:
		return "stun-length"
	case ChannelData:
		return "channel-data"
	default:
		return "unknown"
	}
}

// WireGuard's message types and sizes (whitepaper §5.4).
const (
	typeInitiation  = 1
	typeResponse    = 2
	typeCookieReply = 3
	typeData        = 4

	sizeInitiation  = 148
	sizeResponse    = 92
	sizeCookieReply = 64
	minSizeData     = 32 // header and authentication tag: a keepalive
)

const (
	stunHeaderSize  = 20
	stunMagicCookie = 0x2112A442 // RFC 8489 §5
)

// Classify determines what a datagram is from its first bytes and its length alone. Only WireGuard
// starts with a byte of 1 to 4 and three zeros; a STUN binding success starts with 1 as well, but
// its second byte is never zero.
func Classify(b []byte) Class {
	switch {
	case len(b) == 0:
		return Empty
	case len(b) >= 4 && b[0] >= typeInitiation && b[0] <= typeData && b[1]|b[2]|b[3] == 0:
		if wireGuardSize(b[0], len(b)) {
			return WireGuard
		}
		return WireGuardLength
	case len(b) >= 8 && b[0] < 2 && b[1] != 0 && binary.BigEndian.Uint32(b[4:]) == stunMagicCookie:
		if len(b) >= stunHeaderSize && len(b)%4 == 0 && len(b)-stunHeaderSize == int(binary.BigEndian.Uint16(b[2:])) {
			return STUN
		}
		return STUNLength
	case b[0] >= 0x40 && b[0] <= 0x7f:
		return ChannelData
	default:
		return Unknown
	}
}

// wireGuardSize reports whether a message of the type may have the size. Data is padded
// to multiples of 16 but never beyond the sender's MTU, so its full-sized messages have
// any length: 1452 bytes at an MTU of 1420.
func wireGuardSize(typ byte, size int) bool {
	switch typ {
	case typeInitiation:
		return size == sizeInitiation
	case typeResponse:
		return size == sizeResponse
	case typeCookieReply:
		return size == sizeCookieReply
	default:
		return size >= minSizeData
	}
}

func isInitiation(b []byte) bool { return len(b) == sizeInitiation && b[0] == typeInitiation }

func isResponse(b []byte) bool { return len(b) == sizeResponse && b[0] == typeResponse }
