package probe

import "encoding/binary"

const (
	majorVersion = 1
	minorVersion = 0

	// attributeSize is the size of the probe attribute in bytes; newer minor versions may append
	// to it.
	attributeSize = 20
	// maxCounter is the largest 48-bit counter: enough for a request every microsecond for nine
	// years.
	maxCounter = 1<<48 - 1

	// codeSuperseded is the ERROR-CODE that reports a later boot id: "Stale Nonce" of RFC 8489
	// §14.8, whose meaning is closest.
	codeSuperseded = 438
	// codeRemoved reports that the sender is no longer a peer: "Forbidden" of RFC 8656 §19.
	codeRemoved = 403

	// maxGone limits the former peers that get this answer: the latest ones.
	maxGone = 64
)

// attribute is the value of the probe attribute.
type attribute struct {
	flags      uint8
	pathID     uint16
	generation uint16
	counter    uint64 // 48 bits
	boot       uint64
}

func (a attribute) encode() []byte {
	b := make([]byte, 0, attributeSize)
	b = append(b, majorVersion<<4|minorVersion, a.flags)
	b = binary.BigEndian.AppendUint16(b, a.pathID)
	b = binary.BigEndian.AppendUint64(b, uint64(a.generation)<<48|a.counter)
	return binary.BigEndian.AppendUint64(b, a.boot)
}

// decodeAttribute decodes the probe attribute. The reason is empty if it is accepted.
func decodeAttribute(b []byte) (attribute, Reason) {
	if len(b) == 0 {
		return attribute{}, ReasonMalformed
	}
	if b[0]>>4 != majorVersion {
		return attribute{}, ReasonVersion
	}
	if len(b) < attributeSize || b[0]&0xf == minorVersion && len(b) != attributeSize {
		return attribute{}, ReasonMalformed
	}
	n := binary.BigEndian.Uint64(b[4:])
	return attribute{
		flags:      b[1],
		pathID:     binary.BigEndian.Uint16(b[2:]),
		generation: uint16(n >> 48),
		counter:    n & maxCounter,
		boot:       binary.BigEndian.Uint64(b[12:]),
	}, ""
}
