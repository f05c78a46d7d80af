// Package auth is the protocol between gateways inside the tunnel: who they are, what they grant,
// how a ticket is redeemed, and the identity for the API server. It has the server, the client, the
// issuer of identities with a CA kept for that purpose, and the keeper that holds and renews the
// identity that a peer issued to us.
//
// # In-band HTTP
//
// Plain HTTP/1.1 on TCP port 80 of a gateway's overlay address. The tunnel encrypts and
// authenticates: the source address of a connection is bound to a WireGuard key, and so identifies
// the caller. Bodies are JSON, each with the protocol version ("1.0"), which requests and answers
// also have in the header Postern-Version. An unknown newer minor version is accepted and unknown
// fields are ignored; an unknown major version is refused with a message.
//
// One table (endpoints.go) lists all requests, who may send them, how often, and how large they may
// be. The server is built from it, the client reads answers by it, and the README shows it. Every
// message, in either direction, is read within bounds (package bounded).
//
// If configured, the server answers some of them outside the tunnel to callers with a token
// ([OutOfBand]).
//
// A caller that is not a peer always gets 403. Errors have one form,
// {"version":…,"code":…,"message":…}; codes are stable, see the README.
package auth

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
)

const (
	// ProtocolVersion is the version implemented here.
	ProtocolVersion = "1.0"
	protocolMajor   = 1

	// VersionHeader carries the sender's version.
	VersionHeader = "Postern-Version"

	// HelloPath is where a gateway says who it is, to any peer.
	HelloPath    = "/v1/hello"
	pathRedeem   = "/v1/redeem"
	pathIdentity = "/v1/identity"
	pathPath     = "/v1/path"
	pathReport   = "/v1/report"

	pathThroughput = "/v1/throughput"
	pathRotation   = "/v1/rotation"
	pathServices   = "/v1/services"
)

// Capabilities that a gateway can announce.
const (
	CapabilityRedeem   = "redeem"   // it redeems tickets
	CapabilityIdentity = "identity" // it has an issuer
	CapabilityToken    = "token"    // its issuer issues tokens
	CapabilityPath     = "path"     // it has a path finder, and accepts path messages
	CapabilityReport   = "report"   // it accepts and sends reports
	// CapabilityThroughput: it receives and sends a load, for measurements.
	CapabilityThroughput = "throughput"
	// CapabilityRotation: it accepts a peer's next key.
	CapabilityRotation = "rotation"
	// CapabilityServices: it takes part in cluster services, and announces its own.
	CapabilityServices = "services"
)

// spoken is the start of a message.
type spoken struct {
	Version string `json:"version" max:"64"`
}

func (s spoken) version() string { return s.Version }

type redeemRequest struct {
	spoken
	PublicKey  string          `json:"publicKey" max:"64"`
	Name       string          `json:"name" max:"64"`
	Candidates []wireCandidate `json:"candidates,omitempty" max:"16"`
	Wants      []string        `json:"wants,omitempty" max:"32x40"`
	Grants     []string        `json:"grants,omitempty" max:"32x40"`
	// Proof is the result of [ticket.Request.Prove]; base64.
	Proof []byte `json:"proof,omitempty" max:"32"`
}

type wireCandidate struct {
	Address string `json:"address" max:"64"`
	Source  string `json:"source,omitempty" max:"64"`
}

type redeemResponse struct {
	spoken
	// Name is the inviter's own name, Peer its name for the joiner.
	Name         string     `json:"name" max:"64"`
	Peer         string     `json:"peer" max:"64"`
	Granted      []string   `json:"granted" max:"32x40"`
	PresharedKey string     `json:"presharedKey" max:"64"` // base64
	Pending      bool       `json:"pending,omitempty"`
	APIServer    *APIServer `json:"apiServer,omitempty"`
}

type identityRequest struct {
	spoken
	// CSR is PKCS #10 in PEM.
	CSR string `json:"csr" max:"16384"`
	// Accepts are the kinds of identity that the caller can use; without it, only certificates.
	Accepts []string `json:"accepts,omitempty" max:"16x64"`
}

// Kinds of identities in identityRequest.Accepts.
const (
	acceptCertificate = "certificate"
	acceptToken       = "token"
	// acceptUser: the caller can be told which user to request, without a gateway's name in it,
	// like gateways before acceptGatewayUser; acceptGatewayUser: with one.
	acceptUser        = "user"
	acceptGatewayUser = "gateway-user"
)

type identityResponse struct {
	spoken
	// Certificate is PEM. A bearer token may replace it, if the caller accepts one.
	Certificate string `json:"certificate,omitempty" max:"32768"`
	Token       string `json:"token,omitempty" max:"8192"`
	// User comes alone: the caller has to ask again, with this name as the whole subject of its
	// request.
	User     string    `json:"user,omitempty" max:"256"`
	NotAfter time.Time `json:"notAfter,omitzero" max:"64"`
}

// taken is the answer to an accepted message.
type taken struct{ spoken }

// speaks is this gateway's version, at the start of messages.
var speaks = spoken{ProtocolVersion}

// checkVersion rejects an incompatible version. who is the side that sent it.
func checkVersion(version, who string) error {
	major, _, ok := strings.Cut(version, ".")
	n, err := strconv.ParseUint(major, 10, 16)
	if !ok || err != nil {
		return newError(codeBadRequest, who+" gives no protocol version such as "+ProtocolVersion)
	}
	if n != protocolMajor {
		return newError(codeIncompatible, fmt.Sprintf("%s speaks version %s of the protocol, this gateway %s; upgrade the older one", who, protocolVersion(version), ProtocolVersion))
	}
	return nil
}

// request converts the wire form to the ticket book's. Invalid names and addresses are rejected
// here, without repeating them.
func (q redeemRequest) request() (ticket.Request, error) {
	out := ticket.Request{Name: q.Name, Wants: q.Wants, Grants: q.Grants, Proof: q.Proof}
	if err := out.PublicKey.UnmarshalText([]byte(q.PublicKey)); err != nil {
		return ticket.Request{}, newError(codeBadRequest, "publicKey: no WireGuard key")
	}
	if api.CheckName(q.Name) != nil {
		return ticket.Request{}, newError(codeName, fmt.Sprintf("the joiner's name is no DNS label of at most %d characters", api.MaxNameLength))
	}
	for _, s := range slices.Concat(q.Wants, q.Grants) {
		if !canBeService(s) {
			return ticket.Request{}, newError(codeBadRequest, "wants, grants: one is no name of a service")
		}
	}
	for _, c := range q.Candidates {
		addr, err := netip.ParseAddrPort(c.Address)
		if err != nil || addr.Addr().Zone() != "" {
			return ticket.Request{}, newError(codeBadRequest, "candidates: one is no address and port")
		}
		addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
		out.Candidates = append(out.Candidates, ticket.Candidate{Addr: addr, Source: ticket.KnownSource(c.Source)})
	}
	return out, nil
}

// canBeService reports whether a service can have this name.
func canBeService(s string) bool {
	return s == api.ServiceAuth || s == api.ServiceAPIServer || api.CheckName(s) == nil
}
