package relay

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // RFC 8489 §9.2.2 has it so.
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // As above, §14.5.
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Methods (RFC 8489 §18.2, RFC 8656 §17).
const (
	methodBinding          = 0x001
	methodAllocate         = 0x003
	methodRefresh          = 0x004
	methodSend             = 0x006
	methodData             = 0x007
	methodCreatePermission = 0x008
	methodChannelBind      = 0x009
)

// class is a message's class: the two bits of RFC 8489 §5.
type class uint8

const (
	classRequest class = iota
	classIndication
	classSuccess
	classError
)

// Attributes that are read or written here (RFC 8489 §18.3, RFC 8656 §18).
const (
	attrUsername         = 0x0006
	attrMessageIntegrity = 0x0008
	attrErrorCode        = 0x0009
	attrChannelNumber    = 0x000c
	attrLifetime         = 0x000d
	attrXORPeerAddress   = 0x0012
	attrData             = 0x0013
	attrRealm            = 0x0014
	attrNonce            = 0x0015
	attrXORRelayed       = 0x0016
	attrRequestedFamily  = 0x0017
	attrTransport        = 0x0019
	attrXORMapped        = 0x0020
	attrAlternateServer  = 0x8023
)

// Values of those attributes.
const (
	familyIPv6  = 2  // RFC 8489 §14.1
	protocolUDP = 17 // RFC 8656 §18.6
)

const (
	headerSize    = 20
	magicCookie   = 0x2112A442
	integritySize = 4 + sha1.Size
	// maxText bounds a realm and a nonce, in bytes: 127 characters of at most 6 bytes
	// (RFC 8489 §14.9 and §14.10).
	maxText = 763
)

var errMalformed = errors.New("not a well-formed STUN message")

// txID identifies a transaction.
type txID [12]byte

func newTxID() (id txID) {
	_, _ = rand.Read(id[:]) // Never fails (crypto/rand).
	return id
}

// message is the part of a STUN or TURN message that this package needs.
type message struct {
	class  class
	method uint16
	tx     txID

	code         int            // of an error; 0 = none given
	alternate    netip.AddrPort // ALTERNATE-SERVER, with code 300
	mapped       netip.AddrPort
	relayed      netip.AddrPort
	lifetime     time.Duration
	realm, nonce []byte         // aliases of the packet
	peer         netip.AddrPort // of a Data indication
	data         []byte         // likewise; an alias of the packet, nil = none

	integrity int // offset of MESSAGE-INTEGRITY; 0 = none
}

// parse parses a message, strictly: anything after the last attribute, or an invalid address, makes
// it malformed. The library is less careful and panics on an empty address attribute, so nothing
// reaches it unparsed.
func parse(b []byte) (message, error) {
	var m message
	if len(b) < headerSize || b[0]&0xc0 != 0 || binary.BigEndian.Uint32(b[4:]) != magicCookie ||
		len(b)%4 != 0 || int(binary.BigEndian.Uint16(b[2:])) != len(b)-headerSize {
		return m, errMalformed
	}
	t := binary.BigEndian.Uint16(b)
	m.class = class(t>>4&1 | t>>7&2)
	m.method = t&0xf | t>>1&0x70 | t>>2&0xf80
	copy(m.tx[:], b[8:])
	for at := headerSize; at < len(b); {
		if len(b)-at < 4 {
			return m, errMalformed
		}
		kind, size := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+2:]))
		padded := (size + 3) &^ 3
		if len(b)-at-4 < padded {
			return m, errMalformed
		}
		if kind == attrMessageIntegrity && m.integrity == 0 {
			if size != sha1.Size {
				return m, errMalformed
			}
			m.integrity = at
		}
		if err := m.read(kind, b[at+4:at+4+size]); err != nil {
			return m, err
		}
		at += 4 + padded
	}
	return m, nil
}

// read reads one attribute. The first of repeated ones counts (RFC 8489 §14), but all must be
// well-formed.
func (m *message) read(kind uint16, v []byte) error {
	switch kind {
	case attrXORMapped:
		return readXORAddress(&m.mapped, v, m.tx)
	case attrXORRelayed:
		if m.relayed.Addr().IsUnspecified() { // coturn's, for a family without an address
			m.relayed = netip.AddrPort{}
		}
		return readXORAddress(&m.relayed, v, m.tx)
	case attrXORPeerAddress:
		return readXORAddress(&m.peer, v, m.tx)
	case attrData:
		if m.data == nil {
			m.data = v
		}
	case attrAlternateServer:
		return readAddress(&m.alternate, v)
	case attrLifetime:
		if len(v) != 4 {
			return errMalformed
		}
		if m.lifetime == 0 {
			m.lifetime = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
		}
	case attrErrorCode:
		if len(v) < 4 || v[2]&7 < 3 || v[2]&7 > 6 || v[3] > 99 {
			return errMalformed
		}
		if m.code == 0 {
			m.code = int(v[2]&7)*100 + int(v[3])
		}
	case attrRealm:
		return readText(&m.realm, v)
	case attrNonce:
		return readText(&m.nonce, v)
	}
	return nil
}

func readText(into *[]byte, v []byte) error {
	if len(v) > maxText {
		return errMalformed
	}
	if *into == nil {
		*into = v
	}
	return nil
}

// readAddress reads an address attribute (RFC 8489 §14.1): 4 bytes, then 4 or 16.
func readAddress(into *netip.AddrPort, v []byte) error {
	ok := len(v) == 8 && v[1] == 1 || len(v) == 20 && v[1] == 2
	if !ok {
		return errMalformed
	}
	if !into.IsValid() {
		a, _ := netip.AddrFromSlice(v[4:])
		*into = netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(v[2:]))
	}
	return nil
}

// readXORAddress reads an XOR-ed address (RFC 8489 §14.2).
func readXORAddress(into *netip.AddrPort, v []byte, tx txID) error {
	if len(v) > 20 {
		return errMalformed
	}
	clear := append(make([]byte, 0, 20), v...)
	for i, x := range xorMask(tx) {
		if i+4 < len(clear) {
			clear[i+4] ^= x
		}
	}
	if len(clear) >= 4 {
		clear[2], clear[3] = clear[2]^magicCookie>>24, clear[3]^magicCookie>>16&0xff
	}
	return readAddress(into, clear)
}

// xorMask is the mask of addresses: the cookie and the transaction.
func xorMask(tx txID) [16]byte {
	var mask [16]byte
	binary.BigEndian.PutUint32(mask[:], magicCookie)
	copy(mask[4:], tx[:])
	return mask
}

// credentials sign requests and verify answers (RFC 8489 §9.2).
type credentials struct {
	username string
	realm    []byte
	nonce    []byte
	key      []byte // MD5(username:realm:password)
}

func longTermKey(username string, realm []byte, password Secret) []byte {
	sum := md5.Sum(fmt.Appendf(nil, "%s:%s:%s", username, realm, string(password))) //nolint:gosec // RFC 8489 §9.2.2.
	return sum[:]
}

// newRequest starts a request; sign or the caller adds attributes.
func newRequest(method uint16, tx txID) []byte {
	b := make([]byte, headerSize, 256)
	binary.BigEndian.PutUint16(b, method&0xf|method&0x70<<1|method&0xf80<<2)
	binary.BigEndian.PutUint32(b[4:], magicCookie)
	copy(b[8:], tx[:])
	return b
}

// addAttr appends an attribute and sets the header's length.
func addAttr(b []byte, kind uint16, v []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-headerSize))
	return b
}

func addLifetime(b []byte, d time.Duration) []byte {
	return addAttr(b, attrLifetime, binary.BigEndian.AppendUint32(nil, uint32(d/time.Second)))
}

// addPeer appends XOR-PEER-ADDRESS. A permission ignores the port.
func addPeer(b []byte, peer netip.AddrPort, tx txID) []byte {
	family := byte(1)
	if peer.Addr().Is6() {
		family = familyIPv6
	}
	v := binary.BigEndian.AppendUint16([]byte{0, family}, peer.Port()^magicCookie>>16)
	mask := xorMask(tx)
	for i, x := range peer.Addr().AsSlice() {
		v = append(v, x^mask[i])
	}
	return addAttr(b, attrXORPeerAddress, v)
}

// sendIndication is a datagram for an address without a channel (RFC 8656 §11.1).
func sendIndication(payload []byte, to netip.AddrPort) []byte {
	tx := newTxID()
	b := make([]byte, headerSize, headerSize+24+4+len(payload)+3)
	binary.BigEndian.PutUint16(b, methodSend|0x10)
	binary.BigEndian.PutUint32(b[4:], magicCookie)
	copy(b[8:], tx[:])
	return addAttr(addPeer(b, to, tx), attrData, payload)
}

// channelHeader precedes a datagram on a channel: its number, and the length (RFC 8656 §12.4).
const channelHeader = 4

// readChannelData parses ChannelData. What follows the datagram is padding.
func readChannelData(b []byte) (number uint16, payload []byte, ok bool) {
	if len(b) < channelHeader {
		return 0, nil, false
	}
	number, payload = binary.BigEndian.Uint16(b), b[channelHeader:]
	size := int(binary.BigEndian.Uint16(b[2:]))
	if size > len(payload) {
		return 0, nil, false
	}
	return number, payload[:size], true
}

// sign appends the credentials and MESSAGE-INTEGRITY.
func (c credentials) sign(b []byte) []byte {
	b = addAttr(b, attrUsername, []byte(c.username))
	b = addAttr(b, attrRealm, c.realm)
	b = addAttr(b, attrNonce, c.nonce)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-headerSize+integritySize)) // as if it were there already
	mac := hmac.New(sha1.New, c.key)
	mac.Write(b)
	return addAttr(b, attrMessageIntegrity, mac.Sum(nil))
}

// verify checks MESSAGE-INTEGRITY of a message that parse has read.
func (c credentials) verify(b []byte, m message) bool {
	if m.integrity == 0 || c.key == nil {
		return false
	}
	signed := bytes.Clone(b[:m.integrity])
	binary.BigEndian.PutUint16(signed[2:], uint16(m.integrity-headerSize+integritySize))
	mac := hmac.New(sha1.New, c.key)
	mac.Write(signed)
	return hmac.Equal(mac.Sum(nil), b[m.integrity+4:m.integrity+4+sha1.Size])
}
