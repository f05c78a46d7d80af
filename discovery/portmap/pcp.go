package portmap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// RFC 6887 §7 and §11, RFC 6886 §3. The field tables are in the package comment.
const (
	pcpVersion    = 2
	opAnnounce    = 0
	opMap         = 1
	response      = 128 // the bit that marks a response
	pcpHeaderSize = 24
	pcpMapSize    = pcpHeaderSize + 36
	// maxPCPSize limits every PCP message, in bytes (§7).
	maxPCPSize  = 1100
	protocolUDP = 17
)

// nonce ties a PCP mapping to its creator: only with the same nonce can it be renewed or deleted
// (§11.2).
type nonce [12]byte

// pcpResult is a result code of PCP (§7.4).
type pcpResult uint8

const (
	pcpSuccess            pcpResult = 0
	pcpUnsuppVersion      pcpResult = 1
	pcpNotAuthorized      pcpResult = 2
	pcpMalformedRequest   pcpResult = 3
	pcpUnsuppOpcode       pcpResult = 4
	pcpUnsuppOption       pcpResult = 5
	pcpMalformedOption    pcpResult = 6
	pcpNetworkFailure     pcpResult = 7
	pcpNoResources        pcpResult = 8
	pcpUnsuppProtocol     pcpResult = 9
	pcpUserExQuota        pcpResult = 10
	pcpCannotProvide      pcpResult = 11
	pcpAddressMismatch    pcpResult = 12
	pcpTooManyRemotePeers pcpResult = 13
)

func (r pcpResult) String() string {
	names := [...]string{
		pcpSuccess:            "success",
		pcpUnsuppVersion:      "it does not speak this version",
		pcpNotAuthorized:      "not authorized (the router's settings forbid it, or the mapping is another's)",
		pcpMalformedRequest:   "it calls the request malformed",
		pcpUnsuppOpcode:       "it makes no mappings",
		pcpUnsuppOption:       "it does not know an option",
		pcpMalformedOption:    "it calls an option malformed",
		pcpNetworkFailure:     "it has no connection to the internet itself",
		pcpNoResources:        "it has no room for more mappings",
		pcpUnsuppProtocol:     "it maps no UDP",
		pcpUserExQuota:        "this host has as many mappings as it may have",
		pcpCannotProvide:      "it cannot give the external port",
		pcpAddressMismatch:    "our address reaches it as another one (ADDRESS_MISMATCH): there is a NAT between this gateway and the router",
		pcpTooManyRemotePeers: "too many remote peers",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("result %d", uint8(r))
}

// pcpRequest is a MAP or ANNOUNCE request.
type pcpRequest struct {
	opcode   uint8
	lifetime uint32     // seconds; 0 deletes the mapping (§15)
	client   netip.Addr // ours, as the router sees it
	nonce    nonce
	internal uint16
	external netip.AddrPort // suggested; its address must have the wanted family
}

func (r pcpRequest) encode() []byte {
	size := pcpHeaderSize
	if r.opcode == opMap {
		size = pcpMapSize
	}
	b := make([]byte, size)
	b[0], b[1] = pcpVersion, r.opcode
	binary.BigEndian.PutUint32(b[4:], r.lifetime)
	copy(b[8:24], pcpAddr(r.client))
	if r.opcode == opMap {
		copy(b[24:36], r.nonce[:])
		b[36] = protocolUDP
		binary.BigEndian.PutUint16(b[40:], r.internal)
		binary.BigEndian.PutUint16(b[42:], r.external.Port())
		copy(b[44:60], pcpAddr(r.external.Addr()))
	}
	return b
}

// pcpAddr writes an address in 16 bytes, IPv4 as IPv4-mapped.
func pcpAddr(a netip.Addr) []byte {
	b := a.As16()
	return b[:]
}

// pcpResponse is a response of version 2.
type pcpResponse struct {
	opcode   uint8
	result   pcpResult
	lifetime uint32 // seconds
	epoch    uint32 // seconds
	// full is whether the fields of a MAP are present: an error may lack them.
	full     bool
	nonce    nonce
	internal uint16
	external netip.AddrPort
}

// parsePCP parses a response. Options after it are not read, since we request none.
func parsePCP(b []byte) (pcpResponse, error) {
	switch {
	case len(b) < pcpHeaderSize || len(b) > maxPCPSize || len(b)%4 != 0:
		return pcpResponse{}, fmt.Errorf("%d bytes are no PCP message", len(b))
	case b[0] != pcpVersion:
		return pcpResponse{}, fmt.Errorf("version %d, want %d", b[0], pcpVersion)
	case b[1]&response == 0:
		return pcpResponse{}, fmt.Errorf("a request (opcode %d), not a response", b[1])
	}
	r := pcpResponse{
		opcode: b[1] &^ response, result: pcpResult(b[3]),
		lifetime: binary.BigEndian.Uint32(b[4:]), epoch: binary.BigEndian.Uint32(b[8:]),
	}
	if r.opcode != opMap {
		return r, nil
	}
	if len(b) < pcpMapSize {
		if r.result == pcpSuccess {
			return pcpResponse{}, fmt.Errorf("%d bytes are no response to MAP", len(b))
		}
		return r, nil
	}
	if b[36] != protocolUDP {
		return pcpResponse{}, fmt.Errorf("it is about protocol %d, want %d", b[36], protocolUDP)
	}
	r.full = true
	r.nonce = nonce(b[24:36])
	r.internal = binary.BigEndian.Uint16(b[40:])
	r.external = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[44:60])).Unmap(), binary.BigEndian.Uint16(b[42:]))
	return r, nil
}
