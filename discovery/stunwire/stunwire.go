// Package stunwire reads and writes STUN binding messages (RFC 8489) strictly. Only this package
// imports github.com/pion/stun/v2, and only its message codec: the module's client links DTLS
// code that this program does not need.
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
// The length excludes the header and is a multiple of 4. Each attribute is a type and a length
// (16 bits each), followed by the value, padded to 4 bytes.
//
// # Strictness
//
// The codec accepts more than a socket that is open to the world should, so [Parse] adds:
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
// supported as well, and the probe attribute 0xFD57, whose value package probe defines. If
// present, they have the right size. An address that no socket can have counts as absent.
//
// The caller must check whether a response belongs to one of its requests, by transaction ID and
// source address. SOFTWARE is never sent, since it would help scanners.
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

// MaxSize limits the messages that [Parse] accepts, in bytes. A plain binding message is far
// smaller. One that is padded to measure a path's MTU is as large as what a tunnel sends at the
// greatest configurable overlay MTU, 9000, plus WireGuard's 32 bytes.
const MaxSize = 9000 + 32

// Errors of [Parse] and [Message.Verify], for errors.Is.
var (
	// ErrMalformed is returned for bytes that are not a well-formed binding message.
	ErrMalformed = errors.New("malformed STUN message")
	// ErrUnauthenticated is returned for a missing or wrong MESSAGE-INTEGRITY.
	ErrUnauthenticated = errors.New("STUN message is not authenticated by this key")
)

// TxID is a transaction ID: 96 random bits (RFC 8489 §5).
type TxID [stun.TransactionIDSize]byte

// NewTxID returns a random transaction ID. It must be unpredictable, since only it ties an
// unauthenticated answer to our request.
func NewTxID() TxID {
	var id TxID
	_, _ = rand.Read(id[:]) // never fails (crypto/rand, since Go 1.24)
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

// String returns the class as RFC 8489 names it.
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

// Change is the content of a CHANGE-REQUEST: the server is to answer from its other address, its
// other port, or both (RFC 5780 §7.2).
type Change uint32

// Changes, the bits of the attribute's value.
const (
	ChangePort    Change = 0x2
	ChangeAddress Change = 0x4
)

// Message is a binding message. A parsed one does not refer to the datagram. It is not safe for
// concurrent use.
type Message struct {
	Class Class
	TxID  TxID
	// Username is the USERNAME attribute, at most 508 bytes (RFC 8489 §14.3).
	Username string
	// Mapped is the XOR-MAPPED-ADDRESS of a success response, never an IPv4-mapped IPv6 address;
	// invalid in other messages.
	Mapped netip.AddrPort
	// Code and Reason are the ERROR-CODE of an error response: 300 to 699, and untrusted text.
	Code   int
	Reason foreign.Text
	// Unknown lists the comprehension-required attributes of a request or error response that
	// this package does not know. A request with any is answered with error 420 or not at all. In
	// an error they are written as UNKNOWN-ATTRIBUTES.
	Unknown []uint16
	// Change is the CHANGE-REQUEST of a request, 0 without one.
	Change Change
	// Other and Origin are OTHER-ADDRESS and RESPONSE-ORIGIN of a success response (RFC 5780
	// §7.3, §7.4): the server's other address and port, and the stated source of the response.
	// They are invalid if absent or if no socket can have the address. Only the server vouches
	// for them.
	Other, Origin netip.AddrPort
	// Probe is the value of the probe attribute, which package probe defines; at most 64 bytes,
	// nil if absent.
	Probe []byte
	// Authenticated reports whether there is a MESSAGE-INTEGRITY attribute. Only [Message.Verify]
	// checks it.
	Authenticated bool

	// NoFingerprint makes [Encode] omit FINGERPRINT. That saves 8 bytes where a MESSAGE-INTEGRITY
	// already identifies the message.
	NoFingerprint bool
	// PadTo makes [Encode] pad the message with PADDING to so many bytes (RFC 5780 §7.6), rounded
	// up to a multiple of 4. A larger message is not padded.
	PadTo int

	decoded *stun.Message
}
