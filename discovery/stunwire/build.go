package stunwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pion/stun/v2"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// BindingRequest returns a plain request: only the header, which every STUN server accepts.
func BindingRequest(id TxID) []byte {
	m := stun.New()
	m.TransactionID = id
	m.SetType(stun.BindingRequest)
	m.WriteHeader()
	return m.Raw
}

// BindingResponse returns a plain success response that tells the sender of request id its mapped
// address.
func BindingResponse(id TxID, mapped netip.AddrPort) ([]byte, error) {
	return Encode(&Message{Class: Success, TxID: id, Mapped: mapped}, nil)
}

// BindingError returns a plain error response, code 300 to 699 (RFC 8489 §14.8).
func BindingError(id TxID, code int, reason string) ([]byte, error) {
	return Encode(&Message{Class: Error, TxID: id, Code: code, Reason: foreign.Of(reason)}, nil)
}

// ChangeRequest returns a request that asks the server to answer from another address or port
// (RFC 5780 §4.4).
func ChangeRequest(id TxID, c Change) ([]byte, error) {
	return Encode(&Message{Class: Request, TxID: id, Change: c}, nil)
}

// Encode writes a message: USERNAME, the probe attribute, those of the class and PADDING, as far
// as the fields are set; MESSAGE-INTEGRITY if there is a key; then FINGERPRINT.
func Encode(m *Message, key []byte) ([]byte, error) {
	attrs, err := m.attributes()
	if err != nil {
		return nil, fmt.Errorf("encode STUN %s: %w", m.Class, err)
	}
	behind := 0
	if key != nil {
		behind += attributeHeaderSize + messageIntegritySize
	}
	if !m.NoFingerprint {
		behind += attributeHeaderSize + fingerprintSize
	}
	attrs = append(attrs, padding{m.PadTo, behind})
	if key != nil {
		attrs = append(attrs, stun.MessageIntegrity(key))
	}
	if !m.NoFingerprint {
		attrs = append(attrs, stun.Fingerprint)
	}
	d, err := stun.Build(attrs...)
	if err == nil && len(d.Raw) > MaxSize {
		err = fmt.Errorf("%d bytes are more than %d", len(d.Raw), MaxSize)
	}
	if err != nil {
		return nil, fmt.Errorf("encode STUN %s: %w", m.Class, err)
	}
	return d.Raw, nil
}

func (m *Message) attributes() ([]stun.Setter, error) {
	class, err := m.Class.encode()
	if err != nil {
		return nil, err
	}
	attrs := []stun.Setter{
		&stun.Message{TransactionID: m.TxID},
		stun.NewType(stun.MethodBinding, class),
	}
	if m.Username != "" {
		if len(m.Username) > maxUsername {
			return nil, fmt.Errorf("user name of %d bytes, at most %d fit", len(m.Username), maxUsername)
		}
		attrs = append(attrs, stun.NewUsername(m.Username))
	}
	if m.Probe != nil {
		if len(m.Probe) > maxProbe {
			return nil, fmt.Errorf("probe attribute of %d bytes, at most %d are allowed", len(m.Probe), maxProbe)
		}
		attrs = append(attrs, stun.RawAttribute{Type: attrProbe, Value: m.Probe})
	}
	switch m.Class {
	case Request:
		return m.requestAttributes(attrs)
	case Success:
		return m.successAttributes(attrs)
	case Error:
		return m.errorAttributes(attrs)
	}
	return attrs, nil
}

func (m *Message) requestAttributes(attrs []stun.Setter) ([]stun.Setter, error) {
	switch {
	case m.Change&^(ChangeAddress|ChangePort) != 0:
		return nil, fmt.Errorf("change %#x does not exist", uint32(m.Change))
	case m.Change != 0:
		value := binary.BigEndian.AppendUint32(nil, uint32(m.Change))
		attrs = append(attrs, stun.RawAttribute{Type: stun.AttrChangeRequest, Value: value})
	}
	return attrs, nil
}

func (m *Message) successAttributes(attrs []stun.Setter) ([]stun.Setter, error) {
	if !m.Mapped.IsValid() {
		return nil, errors.New("no mapped address")
	}
	ip := m.Mapped.Addr().Unmap().AsSlice()
	attrs = append(attrs, &stun.XORMappedAddress{IP: ip, Port: int(m.Mapped.Port())})
	if m.Origin.IsValid() {
		attrs = append(attrs, address(stun.AttrResponseOrigin, m.Origin))
	}
	if m.Other.IsValid() {
		attrs = append(attrs, address(stun.AttrOtherAddress, m.Other))
	}
	return attrs, nil
}

func (m *Message) errorAttributes(attrs []stun.Setter) ([]stun.Setter, error) {
	if m.Code < 300 || m.Code > 699 {
		return nil, fmt.Errorf("code %d is outside 300 to 699", m.Code)
	}
	attrs = append(attrs, &stun.ErrorCodeAttribute{Code: stun.ErrorCode(m.Code), Reason: []byte(m.Reason.RawUnsafe())})
	if len(m.Unknown) > 0 {
		attrs = append(attrs, unknownAttributes(m.Unknown))
	}
	return attrs, nil
}

// address encodes an address like MAPPED-ADDRESS (RFC 8489 §14.1), as the attributes of RFC 5780
// do.
func address(t stun.AttrType, a netip.AddrPort) stun.RawAttribute {
	addr := a.Addr().Unmap()
	family := byte(familyV4)
	if addr.Is6() {
		family = familyV6
	}
	value := binary.BigEndian.AppendUint16([]byte{0, family}, a.Port())
	return stun.RawAttribute{Type: t, Value: append(value, addr.AsSlice()...)}
}

// padding adds PADDING if the message would otherwise be smaller than size bytes, with behind
// bytes still to follow.
type padding struct{ size, behind int }

// AddTo implements the codec's Setter.
func (p padding) AddTo(m *stun.Message) error {
	missing := p.size - p.behind - len(m.Raw)
	if p.size > MaxSize {
		return fmt.Errorf("padding to %d bytes, at most %d are allowed", p.size, MaxSize)
	}
	if missing > 0 {
		m.Add(stun.AttrPadding, make([]byte, max(0, (missing+3)/4*4-attributeHeaderSize)))
	}
	return nil
}

// unknownAttributes encodes UNKNOWN-ATTRIBUTES (RFC 8489 §14.9).
func unknownAttributes(types []uint16) stun.RawAttribute {
	value := make([]byte, 0, 2*len(types))
	for _, t := range types {
		value = binary.BigEndian.AppendUint16(value, t)
	}
	return stun.RawAttribute{Type: stun.AttrUnknownAttributes, Value: value}
}

func (c Class) encode() (stun.MessageClass, error) {
	switch c {
	case Request:
		return stun.ClassRequest, nil
	case Indication:
		return stun.ClassIndication, nil
	case Success:
		return stun.ClassSuccessResponse, nil
	case Error:
		return stun.ClassErrorResponse, nil
	}
	return 0, fmt.Errorf("class %d does not exist", c)
}
