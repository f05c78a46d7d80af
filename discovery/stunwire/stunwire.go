// Package stunwire reads and writes STUN binding messages (RFC 8489), strictly. It is
// the only importer of github.com/pion/stun/v2, and of that only the message codec:
// the module's client links DTLS code that this program has no use for.
//
// # Wire format
//
// A message is a header of 20 bytes and attributes (RFC 8489 §5):
//
//	 0                   1                   2                   3
//	|0 0|   message type (14 bit)   |        length (16 bit)        |
//	|                  magic cookie 0x2112A442                      |
//	|                  transaction ID (96 bit)                      |
//
// The length excludes the header and is a multiple of 4. Each attribute is a type and
// a length (16 bit each) followed by the value, padded to 4 bytes.
//
// # Strictness
//
// The codec decodes more than a socket that is open to the world should take, so
// [Parse] adds:
//
//   - the message fills the datagram exactly: nothing trails;
//   - method Binding only, the two top bits zero, length a multiple of 4;
//   - MESSAGE-INTEGRITY is last, or followed by FINGERPRINT and nothing else, so no
//     attribute is read that the MAC does not cover;
//   - FINGERPRINT, if there, is last and correct;
//   - of an attribute that repeats, the first counts (RFC 8489 §14);
//   - a success response holds a usable XOR-MAPPED-ADDRESS and no attribute that must
//     be understood but is not (§6.3.3), an error response holds an ERROR-CODE (§6.3.4).
//
// The attributes of RFC 5780 (CHANGE-REQUEST, OTHER-ADDRESS, RESPONSE-ORIGIN, PADDING) are
// read and written too, and 0xFD57, in which gateways tell each other what package probe
// defines. Those that are there have the right size; an address that no socket can have
// counts as absent.
//
// Whether a response belongs to a request of ours is the caller's to check: by
// transaction ID and by the address that it came from. SOFTWARE is never sent, since
// it tells a scanner what to look for.
package stunwire

import (
	"crypto/rand"
	"errors"
	"net/netip"

	"github.com/pion/stun/v2"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// HeaderSize is the length of a message without attributes in bytes (RFC 8489 §5).
const HeaderSize = 20

// MaxSize bounds a message that [Parse] looks at, in bytes. A binding message stays far
// below it; one that is padded to learn a path's MTU is as large as what a tunnel sends at the
// greatest overlay MTU that can be configured, 9000, and WireGuard's 32 bytes.
const MaxSize = 9000 + 32

// Errors of [Parse] and [Message.Verify], to be compared with errors.Is.
var (
	// ErrMalformed reports bytes that are no well-formed binding message.
	ErrMalformed = errors.New("malformed STUN message")
	// ErrUnauthenticated reports a missing or wrong MESSAGE-INTEGRITY.
	ErrUnauthenticated = errors.New("STUN message is not authenticated by this key")
)

// TxID names a transaction: 96 random bits (RFC 8489 §5).
type TxID [stun.TransactionIDSize]byte

// NewTxID draws a transaction ID from the system's randomness. It has to be
// unpredictable, since it is what ties an unauthenticated answer to our request.
func NewTxID() TxID {
	var id TxID
	_, _ = rand.Read(id[:]) // Never fails (crypto/rand, since Go 1.24).
	return id
}

// Class is the message class of RFC 8489 §5.
type Class uint8

// Classes of a message.
const (
	Request Class = iota
	Indication
	Success
	Error
)

// String names the class as RFC 8489 does.
func (c Class) String() string {
	switch c {
	case Request:
		return "request"
	case Indication:
		return "indication"
	case Success:
		return "success response"
	case Error:
		return "error response"
	}
	return "unknown class"
}

// Change is what a CHANGE-REQUEST asks of the server: to answer from its other address,
// its other port, or both (RFC 5780 §7.2).
type Change uint32

// Changes, the bits of the attribute's value.
const (
	ChangePort    Change = 0x2
	ChangeAddress Change = 0x4
)

// Message is a binding message. A parsed one owns its memory and refers to nothing of
// the datagram. It is not safe for concurrent use.
type Message struct {
	Class Class
	TxID  TxID
	// Username is the USERNAME attribute, at most 508 bytes (RFC 8489 §14.3).
	Username string
	// Mapped is the XOR-MAPPED-ADDRESS of a success response, never an IPv4 address
	// in IPv6 form; invalid elsewhere.
	Mapped netip.AddrPort
	// Code and Reason are the ERROR-CODE of an error response: 300 to 699, and text
	// from the network that is not yet fit to be shown.
	Code   int
	Reason foreign.Text
	// Unknown lists the comprehension-required attributes of a request or an error
	// response that this package does not know. A request with any is answered with
	// error 420 or not at all; they are written as UNKNOWN-ATTRIBUTES of an error.
	Unknown []uint16
	// Change is the CHANGE-REQUEST of a request, 0 without one.
	Change Change
	// Other and Origin are OTHER-ADDRESS and RESPONSE-ORIGIN of a success response
	// (RFC 5780 §7.3, §7.4): the server's other address and port, and where it says that
	// the response comes from. They are invalid when they are not there or no address of
	// a socket, and nobody but the server vouches for them.
	Other, Origin netip.AddrPort
	// Probe is the value of the gateways' own attribute, which package probe defines; at
	// most 64 bytes, nil without one.
	Probe []byte
	// Authenticated reports whether a MESSAGE-INTEGRITY attribute is there; only
	// [Message.Verify] reports whether it is right.
	Authenticated bool

	// NoFingerprint makes [Encode] leave FINGERPRINT out, which saves 8 bytes where a
	// MESSAGE-INTEGRITY tells the message from everything else.
	NoFingerprint bool
	// PadTo makes [Encode] pad the message to so many bytes by PADDING (RFC 5780 §7.6),
	// rounded up to a multiple of 4; a message that is larger already is not padded.
	PadTo int

	decoded *stun.Message
}
