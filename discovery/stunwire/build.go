package stunwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pion/stun/v2"
)

// BindingRequest is a plain request: the header alone, as every STUN server takes it.
func BindingRequest(id TxID) []byte {
	m := stun.New()
	m.TransactionID = id
	m.SetType(stun.BindingRequest)
	m.WriteHeader()
	return m.Raw
}

// BindingResponse is a plain success response that tells the sender of request id
// which address it was seen from.
func BindingResponse(id TxID, mapped netip.AddrPort) ([]byte, error) {
	return Encode(&Message{Class: Success, TxID: id, Mapped: mapped}, nil)
}

// BindingError is a plain error response, code 300 to 699 (RFC 8489 §14.8).
func BindingError(id TxID, code int, reason string) ([]byte, error) {
	return Encode(&Message{Class: Error, TxID: id, Code: code, Reason: reason}, nil)
}

// Encode writes a message: USERNAME, XOR-MAPPED-ADDRESS, ERROR-CODE and
// UNKNOWN-ATTRIBUTES as far as the fields are set, MESSAGE-INTEGRITY when there is a
// key, then FINGERPRINT.
func Encode(m *Message, key []byte) ([]byte, error) {
	attrs, err := m.attributes()
	if err != nil {
		return nil, fmt.Errorf("encode STUN %s: %w", m.Class, err)
	}
	if key != nil {
		attrs = append(attrs, stun.MessageIntegrity(key))
	}
	attrs = append(attrs, stun.Fingerprint)
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
	switch {
	case m.Class == Success && !m.Mapped.IsValid():
		return nil, errors.New("no mapped address")
	case m.Class == Success:
		ip := m.Mapped.Addr().Unmap().AsSlice()
		attrs = append(attrs, &stun.XORMappedAddress{IP: ip, Port: int(m.Mapped.Port())})
	case m.Class == Error && (m.Code < 300 || m.Code > 699):
		return nil, fmt.Errorf("code %d is outside 300 to 699", m.Code)
	case m.Class == Error:
		attrs = append(attrs, &stun.ErrorCodeAttribute{Code: stun.ErrorCode(m.Code), Reason: []byte(m.Reason)})
		if len(m.Unknown) > 0 {
			attrs = append(attrs, unknownAttributes(m.Unknown))
		}
	}
	return attrs, nil
}

// unknownAttributes writes UNKNOWN-ATTRIBUTES (RFC 8489 §14.9).
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
