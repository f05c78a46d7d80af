// Package auth is what gateways say to each other inside the tunnel: who they are, what
// they grant, how a ticket is redeemed, and the identity for the API server. It has
// the server, the client, the issuer of identities with a CA kept for that purpose,
// and the keeper that holds and renews the identity a peer issued to us.
//
// # In-band HTTP
//
// Plain HTTP/1.1 on TCP port 80 of a gateway's overlay address. The tunnel encrypts and
// authenticates: the source address of a connection is bound to a WireGuard key, so it
// says who calls. Bodies are JSON, each with the version of the
// protocol ("1.0"), which requests and answers also carry in the header
// Postern-Version. An unknown newer minor version is accepted, fields that a reader
// does not know are passed over, an unknown major version is refused with a message.
//
// What can be asked, by whom, how often, and how much may be said is one table (endpoints.go):
// the server is built from it, the client reads answers by it, and README shows it. Every
// message, in either direction, is read within bounds (package bounded).
//
// Outside the tunnel, if it is asked to, the server answers some of them to those who show a
// token ([OutOfBand]).
//
// Whoever is no peer gets 403, whatever it asks. Errors have one form,
// {"version":…,"code":…,"message":…}; codes are stable, see README.
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
	// ProtocolVersion is what this package speaks.
	ProtocolVersion = "1.0"
	protocolMajor   = 1

	// VersionHeader carries the version of whoever speaks.
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
	CapabilityRedeem   = "redeem"   // it answers tickets
	CapabilityIdentity = "identity" // it has an issuer
	CapabilityToken    = "token"    // its issuer issues tokens
	CapabilityPath     = "path"     // it finds paths, and takes messages about them
	CapabilityReport   = "report"   // it takes reports, and sends some
	// CapabilityThroughput: it takes and sends a load, to be measured.
	CapabilityThroughput = "throughput"
	// CapabilityRotation: it takes a peer's next key.
	CapabilityRotation = "rotation"
	// CapabilityServices: it takes part of the services of clusters, and tells its own.
	CapabilityServices = "services"
)

// spoken begins a message.
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
	// Proof is what [ticket.Request.Prove] gives; base64.
	Proof []byte `json:"proof,omitempty" max:"32"`
}

type wireCandidate struct {
	Address string `json:"address" max:"64"`
	Source  string `json:"source,omitempty" max:"64"`
}

type redeemResponse struct {
	spoken
	// Name is the inviter's, Peer what it calls the joiner.
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
	// Accepts are the kinds of identity that the caller can use; without it, certificates
	// alone.
	Accepts []string `json:"accepts,omitempty" max:"16x64"`
}

// Kinds of identities in identityRequest.Accepts.
const (
	acceptCertificate = "certificate"
	acceptToken       = "token"
	// acceptUser: the caller can be told which user to ask for, without a gateway's name in
	// it, as gateways did before acceptGatewayUser; acceptGatewayUser: with one.
	acceptUser        = "user"
	acceptGatewayUser = "gateway-user"
)

type identityResponse struct {
	spoken
	// Certificate is PEM. In its place there may be a bearer token, if the caller accepts
	// one.
	Certificate string `json:"certificate,omitempty" max:"32768"`
	Token       string `json:"token,omitempty" max:"8192"`
	// User stands alone: the caller has to ask again, with this name as its request's whole
	// subject.
	User     string    `json:"user,omitempty" max:"256"`
	NotAfter time.Time `json:"notAfter,omitzero" max:"64"`
}

// taken is the answer that says that a message was taken, and nothing else.
type taken struct{ spoken }

// speaks is this gateway's version, as messages begin with it.
var speaks = spoken{ProtocolVersion}

// checkVersion refuses what cannot be understood. who is the side that sent it.
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

// request turns the wire form into the book's. What has not the form of a name or of an address
// is refused here, without repeating it.
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

// canBeService reports whether a service can be called so.
func canBeService(s string) bool {
	return s == api.ServiceAuth || s == api.ServiceAPIServer || api.CheckName(s) == nil
}
