package stunwire

import (
	"encoding/binary"

	"github.com/pion/stun/v2"
)

const (
	magicCookie = 0x2112A442 // RFC 8489 §5

	typeRequest = 0x0001 // message types of method Binding, RFC 8489 §5
	typeSuccess = 0x0101
	typeError   = 0x0111
)

// PeekRequest returns the USERNAME of a binding request whose first attribute it is. It neither
// allocates nor checks what follows, for a receiver that gets many messages and answers few. The
// result refers to b.
func PeekRequest(b []byte) (username []byte, ok bool) {
	if !peek(b, typeRequest) || len(b) < HeaderSize+attributeHeaderSize ||
		binary.BigEndian.Uint16(b[HeaderSize:]) != stun.AttrUsername.Value() {
		return nil, false
	}
	size := int(binary.BigEndian.Uint16(b[HeaderSize+2:]))
	value := b[HeaderSize+attributeHeaderSize:]
	if size > len(value) {
		return nil, false
	}
	return value[:size:size], true
}

// PeekSuccess returns the transaction ID of a binding success response. It neither allocates nor
// checks what follows the header.
func PeekSuccess(b []byte) (TxID, bool) {
	if !peek(b, typeSuccess) {
		return TxID{}, false
	}
	return TxID(b[8:HeaderSize]), true
}

// PeekError does the same for a binding error response.
func PeekError(b []byte) (TxID, bool) {
	if !peek(b, typeError) {
		return TxID{}, false
	}
	return TxID(b[8:HeaderSize]), true
}

// peek reports whether b has the header of a message of the type.
func peek(b []byte, typ uint16) bool {
	return len(b) >= HeaderSize && len(b) <= MaxSize &&
		binary.BigEndian.Uint16(b) == typ &&
		int(binary.BigEndian.Uint16(b[2:])) == len(b)-HeaderSize && len(b)%4 == 0 &&
		binary.BigEndian.Uint32(b[4:]) == magicCookie
}
