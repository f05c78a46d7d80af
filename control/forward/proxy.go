package forward

import (
	"encoding/binary"
	"net/netip"
)

// The PROXY protocol, version 2 (https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt,
// §2.2).
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyCommand   = 0x21 // version 2, for somebody else
	proxyTCP4      = 0x11
	proxyTCP6      = 0x21
	// ProxyPeer is the type of the field with the peer's name, from the range for custom use.
	ProxyPeer = 0xE1
)

// proxyHeader returns the header that tells an upstream who connected to which address, and the
// peer's name. Both addresses are of the same family, like those of any connection.
func proxyHeader(from, to netip.AddrPort, peer string) []byte {
	family := byte(proxyTCP6)
	if from.Addr().Is4() {
		family = proxyTCP4
	}
	rest := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	rest = binary.BigEndian.AppendUint16(rest, from.Port())
	rest = binary.BigEndian.AppendUint16(rest, to.Port())
	rest = binary.BigEndian.AppendUint16(append(rest, ProxyPeer), uint16(len(peer)))
	rest = append(rest, peer...)
	header := binary.BigEndian.AppendUint16(append([]byte(proxySignature), proxyCommand, family), uint16(len(rest)))
	return append(header, rest...)
}
