package portmap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// RFC 6886 §3. The field tables are in the package comment.
const (
	natpmpVersion      = 0
	opAddress          = 0
	opMapUDP           = 1
	natpmpAddressSize  = 12
	natpmpMapSize      = 16
	natpmpErrorMinSize = 4 // up to the result code
)

// natpmpResult is a result code of NAT-PMP (§3.5).
type natpmpResult uint16

const (
	natpmpSuccess        natpmpResult = 0
	natpmpUnsuppVersion  natpmpResult = 1
	natpmpRefused        natpmpResult = 2
	natpmpNetworkFailure natpmpResult = 3
	natpmpNoResources    natpmpResult = 4
	natpmpUnsuppOpcode   natpmpResult = 5
)

func (r natpmpResult) String() string {
	names := [...]string{
		natpmpSuccess:        "success",
		natpmpUnsuppVersion:  "it does not speak this version",
		natpmpRefused:        "not authorized (the router's settings forbid it)",
		natpmpNetworkFailure: "it has no connection to the internet itself",
		natpmpNoResources:    "it has no room for more mappings",
		natpmpUnsuppOpcode:   "it does not know the operation",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("result %d", uint16(r))
}

// natpmpAddress returns a request for the external address.
func natpmpAddress() []byte { return []byte{natpmpVersion, opAddress} }

// natpmpMap returns a request for a UDP port; a lifetime of 0 s deletes the mapping (§3.4).
func natpmpMap(internal, external uint16, lifetime uint32) []byte {
	b := make([]byte, 12)
	b[1] = opMapUDP
	binary.BigEndian.PutUint16(b[4:], internal)
	binary.BigEndian.PutUint16(b[6:], external)
	binary.BigEndian.PutUint32(b[8:], lifetime)
	return b
}

// natpmpResponse is a response to either request.
type natpmpResponse struct {
	opcode   uint8
	result   natpmpResult
	epoch    uint32     // seconds; 0 in an error without one
	address  netip.Addr // opAddress
	internal uint16     // opMapUDP
	external uint16
	lifetime uint32 // seconds
}

func parseNATPMP(b []byte) (natpmpResponse, error) {
	switch {
	case len(b) < natpmpErrorMinSize:
		return natpmpResponse{}, fmt.Errorf("%d bytes are no NAT-PMP message", len(b))
	case b[0] != natpmpVersion:
		return natpmpResponse{}, fmt.Errorf("version %d, want %d", b[0], natpmpVersion)
	case b[1]&response == 0:
		return natpmpResponse{}, fmt.Errorf("a request (opcode %d), not a response", b[1])
	}
	r := natpmpResponse{opcode: b[1] &^ response, result: natpmpResult(binary.BigEndian.Uint16(b[2:]))}
	if len(b) >= 8 {
		r.epoch = binary.BigEndian.Uint32(b[4:])
	}
	switch {
	case r.result != natpmpSuccess: // it may end anywhere
	case r.opcode == opAddress && len(b) == natpmpAddressSize:
		r.address = netip.AddrFrom4([4]byte(b[8:12]))
	case r.opcode == opMapUDP && len(b) == natpmpMapSize:
		r.internal, r.external = binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
		r.lifetime = binary.BigEndian.Uint32(b[12:])
	default:
		return natpmpResponse{}, fmt.Errorf("%d bytes are no response to opcode %d", len(b), r.opcode)
	}
	if r.result != natpmpSuccess && r.opcode == opMapUDP && len(b) >= natpmpMapSize {
		r.internal = binary.BigEndian.Uint16(b[8:])
	}
	return r, nil
}
