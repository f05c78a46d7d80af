// Package auth is what gateways say to each other inside the tunnel: who they are, what
// they grant, how a ticket is redeemed, and the identity for the API server. It has
// the server, the client, the issuer of identities with a CA kept for that purpose,
// and the keeper that holds and renews the identity a peer issued to us.
//
// # In-band HTTP
//
// Plain HTTP/1.1 on TCP port 80 of a gateway's overlay address. The tunnel encrypts and
// authenticates: the source address of a connection is bound to a WireGuard key, so it
// says who calls. Bodies are JSON, at most 64 KB, each with the version of the
// protocol ("1.0"), which requests and answers also carry in the header
// Postern-Version. An unknown newer minor version is accepted, fields that a reader
// does not know are passed over, an unknown major version is refused with a message.
//
//	GET  /v1/hello     version, name, capabilities, services granted to the caller
//	POST /v1/redeem    only from a one-time key's address: ticket → peer
//	POST /v1/identity  certificate signing request → certificate, or a token
//	POST /v1/path      what one path finder tells the other (package discovery/path)
//	POST /v1/report    what the caller found when it tried to reach us (package report)
//	POST /v1/rotation  the key that the caller will have, announced under the one it has
//	POST, GET /v1/throughput  a load to the callee, or from it, for a second
//
// Outside the tunnel, if it is asked to, the server answers hello and identity to those who
// show a token ([OutOfBand]).
//
// Whoever is no peer gets 403, whatever it asks. Errors have one form,
// {"version":…,"code":…,"message":…}; codes are stable, see README.
package auth

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/ticket"
)

const (
	// ProtocolVersion is what this package speaks.
	ProtocolVersion = "1.0"
	protocolMajor   = 1

	// VersionHeader carries the version of whoever speaks.
	VersionHeader = "Postern-Version"

	// MaxBody bounds the body of a request, in bytes.
	MaxBody = 64 << 10
	// maxAnswer bounds what a client reads: a hello carries the API server's CA
	// bundle.
	maxAnswer = 1 << 20

	// HelloPath is where a gateway says who it is, to any peer.
	HelloPath    = "/v1/hello"
	pathRedeem   = "/v1/redeem"
	pathIdentity = "/v1/identity"
	pathPath     = "/v1/path"
	pathReport   = "/v1/report"

	pathThroughput = "/v1/throughput"
	pathRotation   = "/v1/rotation"
)

// Capabilities that a gateway can announce.
const (
	CapabilityRedeem   = "redeem"   // it answers tickets
	CapabilityIdentity = "identity" // it has an issuer
	CapabilityToken    = "token"    // its issuer issues tokens
	CapabilityPath     = "path"     // it finds paths, and takes messages about them
	CapabilityReport   = "report"   // it takes reports, and sends some
	// CapabilityThroughput: it takes and sends a load, to be measured.
	CapabilityThroughput = "throughput"
	// CapabilityRotation: it takes a peer's next key.
	CapabilityRotation = "rotation"
)

type redeemRequest struct {
	Version    string          `json:"version"`
	PublicKey  string          `json:"publicKey"`
	Name       string          `json:"name"`
	Candidates []wireCandidate `json:"candidates,omitempty"`
	Wants      []string        `json:"wants,omitempty"`
	Grants     []string        `json:"grants,omitempty"`
}

type wireCandidate struct {
	Address string `json:"address"`
	Source  string `json:"source,omitempty"`
}

type redeemResponse struct {
	Version string `json:"version"`
	// Name is the inviter's, Peer what it calls the joiner.
	Name         string     `json:"name"`
	Peer         string     `json:"peer"`
	Granted      []string   `json:"granted"`
	PresharedKey string     `json:"presharedKey"` // base64
	Pending      bool       `json:"pending,omitempty"`
	APIServer    *APIServer `json:"apiServer,omitempty"`
}

type identityRequest struct {
	Version string `json:"version"`
	// CSR is PKCS #10 in PEM.
	CSR string `json:"csr"`
	// Accepts are the kinds of identity that the caller can use; without it, certificates
	// alone.
	Accepts []string `json:"accepts,omitempty"`
}

// Kinds of identities in identityRequest.Accepts.
const (
	acceptCertificate = "certificate"
	acceptToken       = "token"
	// acceptUser: the caller can be told which user to ask for.
	acceptUser = "user"
)

type identityResponse struct {
	Version string `json:"version"`
	// Certificate is PEM. In its place there may be a bearer token, if the caller accepts
	// one.
	Certificate string `json:"certificate,omitempty"`
	Token       string `json:"token,omitempty"`
	// User stands alone: the caller has to ask again, with this name as its request's whole
	// subject.
	User     string    `json:"user,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// checkVersion refuses what cannot be understood. who is the side that sent it.
func checkVersion(version, who string) error {
	major, _, ok := strings.Cut(version, ".")
	n, err := strconv.ParseUint(major, 10, 16)
	if !ok || err != nil {
		return newError(codeBadRequest, fmt.Sprintf("%s gives no protocol version (%.20q)", who, version))
	}
	if n != protocolMajor {
		return newError(codeIncompatible, fmt.Sprintf("%s speaks version %s of the protocol, this gateway %s; upgrade the older one", who, protocolVersion(version), ProtocolVersion))
	}
	return nil
}

// request turns the wire form into the book's. Candidates that are no addresses are
// refused by the book.
func (q redeemRequest) request() (ticket.Request, error) {
	out := ticket.Request{Name: q.Name, Wants: q.Wants, Grants: q.Grants}
	if err := out.PublicKey.UnmarshalText([]byte(q.PublicKey)); err != nil {
		return ticket.Request{}, newError(codeBadRequest, "publicKey: "+err.Error())
	}
	if len(q.Candidates) > ticket.MaxCandidates {
		return ticket.Request{}, newError(codeBadRequest, fmt.Sprintf("%d candidates, at most %d", len(q.Candidates), ticket.MaxCandidates))
	}
	for _, c := range q.Candidates {
		addr, err := netip.ParseAddrPort(c.Address)
		if err != nil {
			return ticket.Request{}, newError(codeBadRequest, fmt.Sprintf("candidate %.60q is no address and port", c.Address))
		}
		addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
		out.Candidates = append(out.Candidates, ticket.Candidate{Addr: addr, Source: clean(c.Source, 20)})
	}
	return out, nil
}
