package stunwire

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/pion/stun/v2"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// attrProbe is the type of the probe attribute. It is not registered. Receivers may ignore
// unknown types from 0xC000 to 0xFFFF, which are assigned upon expert review (RFC 8489 §18.3).
const attrProbe stun.AttrType = 0xfd57

const (
	attributeHeaderSize  = 4  // bytes, RFC 8489 §14
	maxProbe             = 64 // bytes
	changeRequestSize    = 4  // bytes, RFC 5780 §7.2
	familyV4             = 1  // RFC 8489 §14.1
	familyV6             = 2
	messageIntegritySize = 20  // bytes of HMAC-SHA1, RFC 8489 §14.5
	fingerprintSize      = 4   // bytes, RFC 8489 §14.7
	maxUsername          = 508 // bytes, RFC 8489 §14.3
	xorMappedV4          = 8   // bytes: family, port, address (RFC 8489 §14.1, §14.2)
	xorMappedV6          = 20
)

// Parse parses a binding message that fills b exactly, by the rules in the package documentation.
// It does not keep b. Every error wraps [ErrMalformed].
func Parse(b []byte) (*Message, error) {
	if err := checkHeader(b); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	d := new(stun.Message)
	if err := stun.Decode(b, d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	m, err := read(d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

// checkHeader checks what the codec does not: the exact length, the top bits and the method. The
// codec checks the magic cookie, too, but only after allocating.
func checkHeader(b []byte) error {
	switch {
	case len(b) < HeaderSize:
		return fmt.Errorf("%d bytes are less than a header", len(b))
	case len(b) > MaxSize:
		return fmt.Errorf("%d bytes are more than %d", len(b), MaxSize)
	case b[0]&0xc0 != 0:
		return fmt.Errorf("top bits of %#02x are set", b[0])
	case binary.BigEndian.Uint32(b[4:8]) != magicCookie:
		return fmt.Errorf("magic cookie is %#08x", b[4:8])
	}
	size := int(binary.BigEndian.Uint16(b[2:4]))
	if size%4 != 0 || HeaderSize+size != len(b) {
		return fmt.Errorf("length %d does not fit a datagram of %d bytes", size, len(b))
	}
	return nil
}

// read converts a decoded message.
func read(d *stun.Message) (*Message, error) {
	if d.Type.Method != stun.MethodBinding {
		return nil, fmt.Errorf("method %#03x is not Binding", uint16(d.Type.Method))
	}
	m := &Message{TxID: d.TransactionID, decoded: d}
	switch d.Type.Class {
	case stun.ClassRequest:
		m.Class = Request
	case stun.ClassIndication:
		m.Class = Indication
	case stun.ClassSuccessResponse:
		m.Class = Success
	default: // the class has two bits
		m.Class = Error
	}
	if err := m.checkOrder(); err != nil {
		return nil, err
	}
	if err := m.readAttributes(); err != nil {
		return nil, err
	}
	return m, m.checkComplete()
}

// checkOrder refuses anything but FINGERPRINT after MESSAGE-INTEGRITY, anything after
// FINGERPRINT, and a wrong FINGERPRINT.
func (m *Message) checkOrder() error {
	attrs := m.decoded.Attributes
	for i, a := range attrs {
		last := i == len(attrs)-1
		switch a.Type {
		case stun.AttrMessageIntegrity:
			if len(a.Value) != messageIntegritySize {
				return fmt.Errorf("MESSAGE-INTEGRITY of %d bytes", len(a.Value))
			}
			if !last && (i != len(attrs)-2 || attrs[i+1].Type != stun.AttrFingerprint) {
				return fmt.Errorf("attribute %#04x follows MESSAGE-INTEGRITY", attrs[i+1].Type.Value())
			}
			m.Authenticated = true
		case stun.AttrFingerprint:
			if !last {
				return fmt.Errorf("attribute %#04x follows FINGERPRINT", attrs[i+1].Type.Value())
			}
			if len(a.Value) != fingerprintSize {
				return fmt.Errorf("FINGERPRINT of %d bytes", len(a.Value))
			}
			if err := stun.Fingerprint.Check(m.decoded); err != nil {
				return fmt.Errorf("FINGERPRINT: %w", err)
			}
		}
	}
	return nil
}

func (m *Message) readAttributes() error {
	seen := make(map[stun.AttrType]bool, len(m.decoded.Attributes))
	for _, a := range m.decoded.Attributes {
		if seen[a.Type] {
			continue
		}
		seen[a.Type] = true
		switch a.Type {
		case stun.AttrUsername:
			if len(a.Value) > maxUsername {
				return fmt.Errorf("USERNAME of %d bytes", len(a.Value))
			}
			m.Username = string(a.Value)
		case stun.AttrXORMappedAddress:
			mapped, err := readMapped(m.decoded, len(a.Value))
			if err != nil {
				return err
			}
			if m.Class == Success {
				m.Mapped = mapped
			}
		case stun.AttrChangeRequest, stun.AttrOtherAddress, stun.AttrResponseOrigin, attrProbe:
			if err := m.readExtension(a); err != nil {
				return err
			}
		case stun.AttrErrorCode:
			if err := m.readError(); err != nil {
				return err
			}
		case stun.AttrMessageIntegrity, stun.AttrMappedAddress, stun.AttrUnknownAttributes,
			stun.AttrRealm, stun.AttrNonce, stun.AttrPadding:
			// Understood (RFC 8489 §14, RFC 5780 §7.6), but not used here.
		default:
			if a.Type.Required() {
				m.Unknown = append(m.Unknown, a.Type.Value())
			}
		}
	}
	return nil
}

// readExtension reads the attributes of RFC 5780 and the probe attribute.
func (m *Message) readExtension(a stun.RawAttribute) error {
	switch a.Type {
	case stun.AttrChangeRequest:
		if len(a.Value) != changeRequestSize {
			return fmt.Errorf("CHANGE-REQUEST of %d bytes", len(a.Value))
		}
		if m.Class == Request { // undefined bits are the sender's mistake
			m.Change = Change(binary.BigEndian.Uint32(a.Value)) & (ChangeAddress | ChangePort)
		}
	case attrProbe:
		if len(a.Value) > maxProbe {
			return fmt.Errorf("probe attribute of %d bytes", len(a.Value))
		}
		m.Probe = append([]byte{}, a.Value...)
	default:
		addr, err := readAddress(a)
		switch {
		case err != nil:
			return err
		case m.Class != Success:
		case a.Type == stun.AttrOtherAddress:
			m.Other = addr
		default:
			m.Origin = addr
		}
	}
	return nil
}

// readAddress reads an attribute in the format of MAPPED-ADDRESS (RFC 8489 §14.1). The result is
// invalid for an address that no socket can have, which servers with one address send.
func readAddress(a stun.RawAttribute) (netip.AddrPort, error) {
	v := a.Value
	wellFormed := len(v) == xorMappedV4 && v[1] == familyV4 || len(v) == xorMappedV6 && v[1] == familyV6
	if !wellFormed {
		return netip.AddrPort{}, fmt.Errorf("%v of %d bytes", a.Type, len(v))
	}
	addr, _ := netip.AddrFromSlice(v[4:]) // 4 or 16 bytes
	out := netip.AddrPortFrom(addr.Unmap(), binary.BigEndian.Uint16(v[2:]))
	if !isSocket(out) {
		return netip.AddrPort{}, nil
	}
	return out, nil
}

// isSocket reports whether a socket can have the address.
func isSocket(a netip.AddrPort) bool {
	return a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

// readMapped reads XOR-MAPPED-ADDRESS. The codec reads beyond a value shorter than 2 bytes and
// accepts a truncated address, so the size is checked first.
func readMapped(d *stun.Message, size int) (netip.AddrPort, error) {
	var x stun.XORMappedAddress
	if size != xorMappedV4 && size != xorMappedV6 {
		return netip.AddrPort{}, fmt.Errorf("XOR-MAPPED-ADDRESS of %d bytes", size)
	}
	if err := x.GetFrom(d); err != nil {
		return netip.AddrPort{}, fmt.Errorf("XOR-MAPPED-ADDRESS: %w", err)
	}
	if 4+len(x.IP) != size {
		return netip.AddrPort{}, fmt.Errorf("XOR-MAPPED-ADDRESS of %d bytes for the other family", size)
	}
	addr, _ := netip.AddrFromSlice(x.IP) // 4 or 16 bytes
	mapped := netip.AddrPortFrom(addr.Unmap(), uint16(x.Port))
	if !isSocket(mapped) {
		return netip.AddrPort{}, fmt.Errorf("XOR-MAPPED-ADDRESS %v is no address of a socket", mapped)
	}
	return mapped, nil
}

func (m *Message) readError() error {
	var e stun.ErrorCodeAttribute
	if err := e.GetFrom(m.decoded); err != nil {
		return fmt.Errorf("ERROR-CODE: %w", err)
	}
	if e.Code < 300 || e.Code > 699 {
		return fmt.Errorf("ERROR-CODE %d is outside 300 to 699", e.Code)
	}
	if m.Class == Error {
		m.Code, m.Reason = int(e.Code), foreign.Of(string(e.Reason))
	}
	return nil
}

// checkComplete checks that a response has the attributes that its class requires.
func (m *Message) checkComplete() error {
	switch {
	case m.Class == Success && !m.Mapped.IsValid():
		return fmt.Errorf("success response without XOR-MAPPED-ADDRESS")
	case m.Class == Success && len(m.Unknown) > 0:
		return fmt.Errorf("success response with unknown attribute %#04x that must be understood", m.Unknown[0])
	case m.Class == Error && m.Code == 0:
		return fmt.Errorf("error response without ERROR-CODE")
	}
	return nil
}

// Verify checks the MESSAGE-INTEGRITY of a parsed message with a short-term key (RFC 8489 §9.1,
// HMAC-SHA1). Its error wraps [ErrUnauthenticated].
func (m *Message) Verify(key []byte) error {
	if m.decoded == nil || !m.Authenticated {
		return fmt.Errorf("%w: no MESSAGE-INTEGRITY", ErrUnauthenticated)
	}
	// Check compares in constant time. It writes only to the message's own copy.
	if err := stun.MessageIntegrity(key).Check(m.decoded); err != nil {
		return fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	return nil
}
