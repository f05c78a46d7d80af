package catalogue

import "time"

// Params are the values that a cause and a fix are made of. A code uses those that its
// entry in the table reads and ignores the rest; an absent value is left out of the
// sentence or named as unknown. Text that came from elsewhere (errors, names in
// certificates) is cleaned when it is rendered.
//
// The tags are the schema of reports. A field with the tag told:"KIND" may be told to the peer
// that it is about, in the form and bounds of that kind (told.go); what has none stays here:
// errors, paths, files, servers, keys, and what a gateway knows of itself.
//
// A field with the tag report:"fix" may go into a fix when it came with a peer's report: the
// reader knows it itself, or it is a number, a time or a word of a fixed list. What has no
// such tag ends in the cause alone.
type Params struct {
	// Peer is the peer's name here.
	Peer string `json:"peer,omitempty" report:"fix"`
	// Inbound: the sentence is read at the gateway that offers the service, and Peer is
	// who uses it and reports. Without a Peer it is about this gateway by itself.
	Inbound bool `json:"inbound,omitempty" report:"fix"`
	// Heard: what is not set by the reader is a peer's word. Only what has the tag
	// report:"fix" then goes into a fix.
	Heard bool `json:"heard,omitempty" report:"fix"`
	// Disputed: a peer reports that it may not use the service, and here it may.
	Disputed bool `json:"disputed,omitempty" report:"fix"`
	// Direct: Address was dialled outside the tunnel.
	Direct bool `json:"direct,omitempty"`
	// Service is auth, apiServer or the name of a named service.
	Service string `json:"service,omitempty" report:"fix"`
	// Address is the address that was dialled, or that was to be listened on.
	Address string `json:"address,omitempty" told:"place"`
	// Endpoints are underlay addresses that were tried.
	Endpoints []string `json:"endpoints,omitempty" report:"fix" told:"addresses"`
	// NoPath is why no path to the peer is known to work.
	NoPath string `json:"noPath,omitempty"`
	// Upstream is where a service of this gateway leads to.
	Upstream string `json:"upstream,omitempty"`
	// ServerName is the name that a certificate had to carry, Names those it carries.
	ServerName string   `json:"serverName,omitempty" told:"host"`
	Names      []string `json:"names,omitempty" told:"names"`
	// Issuer is who signed a certificate, Authorities are those that were trusted to.
	Issuer      string   `json:"issuer,omitempty" told:"authority"`
	Authorities []string `json:"authorities,omitempty" told:"authorities"`
	// Status is an HTTP status code, Path the path that was asked for.
	Status int    `json:"status,omitempty" report:"fix" told:"status"`
	Path   string `json:"path,omitempty"`
	// Age is how long a condition has lasted.
	Age time.Duration `json:"age,omitempty" report:"fix" told:"age"`
	// Timeout is how long was waited.
	Timeout time.Duration `json:"timeout,omitempty" report:"fix" told:"wait"`
	// NotBefore and NotAfter bound a certificate's validity.
	NotBefore time.Time `json:"notBefore,omitzero" report:"fix" told:"day"`
	NotAfter  time.Time `json:"notAfter,omitzero" report:"fix" told:"day"`
	// Version is the other side's protocol version, OwnVersion ours.
	Version    string `json:"version,omitempty" told:"version"`
	OwnVersion string `json:"ownVersion,omitempty" told:"version"`
	// Limit is the number that was reached.
	Limit int `json:"limit,omitempty" report:"fix" told:"count"`
	// File, Line and Field name a place in the configuration.
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
	Field string `json:"field,omitempty"`
	// Detail is the error's own text.
	Detail string `json:"detail,omitempty"`

	GatewayParams
	ServiceParams
	ResourceParams
	ClusterParams
	DiscoveryParams
	RootParams
}

// RootParams are the parameters of what depends on another finding, or quotes it.
type RootParams struct {
	// Root is the name of its check, RootCode its code and RootOutcome what it came to.
	Root        string `json:"root,omitempty"`
	RootCode    Code   `json:"rootCode,omitempty"`
	RootOutcome string `json:"rootOutcome,omitempty"`
}

// GatewayParams are the parameters of the codes about tunnel, path and exposure.
type GatewayParams struct {
	// From is the address and port that something came from, Seen when it last did.
	From string    `json:"from,omitempty" told:"address"`
	Seen time.Time `json:"seen,omitzero" report:"fix" told:"ago"`
	// By is who refused a datagram; empty where that was this machine, or is not known.
	By string `json:"by,omitempty"`
	// Key is a public key in base64, Configured the one that is configured in its place.
	Key        string `json:"key,omitempty"`
	Configured string `json:"configured,omitempty"`
	// Own are addresses of this gateway as others see them, with the port; Port is the one
	// it listens on.
	Own  []string `json:"own,omitempty" report:"fix"`
	Port uint16   `json:"port,omitempty" report:"fix"`
	// Set are those of Own that spec.discovery.advertise has.
	Set []string `json:"set,omitempty" report:"fix"`
	// Candidates are the addresses concerned and what became of each.
	Candidates []Candidate `json:"candidates,omitempty" report:"fix" told:"candidates"`
	// Stamp is a handshake's timestamp, Newest the newest that was accepted.
	Stamp  time.Time `json:"stamp,omitzero" report:"fix" told:"moment"`
	Newest time.Time `json:"newest,omitzero" report:"fix" told:"moment"`
	// Was and Now are a name's addresses before and after they changed.
	Was []string `json:"was,omitempty" told:"hosts"`
	Now []string `json:"now,omitempty" told:"hosts"`
	// Sent and Lost count pings, Jitter is the mean difference of successive round trips.
	Sent   int           `json:"sent,omitempty" report:"fix" told:"count"`
	Lost   int           `json:"lost,omitempty" report:"fix" told:"count"`
	Jitter time.Duration `json:"jitter,omitempty" report:"fix" told:"wait"`
	// Loss is the share of packets that connections lose whatever the rate, Rate what passes a
	// rate limiter, in bytes of payload per second. Full: connections fill the line, with that rate.
	Loss float64 `json:"loss,omitempty"`
	Rate float64 `json:"rate,omitempty"`
	Full bool    `json:"full,omitempty"`
	// MTU is the largest overlay packet that crosses the path, LinkMTU the overlay's own,
	// Size the smallest that was seen to vanish; in bytes, 0 = not known.
	MTU     int `json:"mtu,omitempty" report:"fix" told:"size"`
	LinkMTU int `json:"linkMtu,omitempty" report:"fix" told:"size"`
	Size    int `json:"size,omitempty" report:"fix" told:"size"`
	// NAT is in front of this gateway, PeerNAT in front of the peer.
	NAT     NAT `json:"nat,omitzero" report:"fix" told:"nat"`
	PeerNAT NAT `json:"peerNat,omitzero" report:"fix" told:"nat"`
	// PeerShut: what the peer announces can be dialled by nobody outside of its network.
	PeerShut bool `json:"peerShut,omitempty" report:"fix" told:"true"`
	// Relay is a TURN server, Server any server, as configured.
	Relay  string `json:"relay,omitempty" told:"place"`
	Server string `json:"server,omitempty"`
	// Worked: a handshake with the peer has completed before.
	Worked bool `json:"worked,omitempty" report:"fix"`
	// Skew is the peer's clock minus ours.
	Skew time.Duration `json:"skew,omitempty"`
}

// ResourceParams are the parameters of the codes about what the machine gives.
type ResourceParams struct {
	// Used and Max are bytes, or periods of the scheduler.
	Used uint64 `json:"used,omitempty"`
	Max  uint64 `json:"max,omitempty"`
	// Unit is the unit of systemd that the limit is of; empty when it is of something else.
	Unit string `json:"unit,omitempty"`
	// Drops counts what was dropped.
	Drops uint64 `json:"drops,omitempty"`
}

// Failure is how something failed, for codes that cover several ways.
type Failure string

const (
	FailureName    Failure = "name"    // the name does not resolve
	FailureRefused Failure = "refused" // nobody listens
	FailureTimeout Failure = "timeout" // nobody answers
	FailureRoute   Failure = "route"   // there is no way, or it was cut
	FailureURL     Failure = "url"     // the URL itself is wrong
	FailureMissing Failure = "missing" // a token is wanted and there is none
	FailureExpired Failure = "expired" // the token has run out
	// FailureFull and FailureReadOnly are of a disk.
	FailureFull     Failure = "full"
	FailureReadOnly Failure = "read-only"

	FailureCertificate Failure = "certificate" // the server's does not do

	// Of a proxy, besides the first four.
	FailureProtocol  Failure = "protocol"  // what answers is no proxy
	FailureUnknown   Failure = "unknown"   // it wants credentials and there are none
	FailureRejected  Failure = "rejected"  // it does not take the credentials
	FailureForbidden Failure = "forbidden" // it does not connect to the target
)

// Beside is what came of the same service by the other way: outside the tunnel for what
// was tried in it, and in it for what was tried outside. Empty: it was not tried.
type Beside string

const (
	BesideWorks Beside = "works"
	BesideFails Beside = "fails"
)

// ServiceParams are the parameters of the codes about auth, the API server and upstreams.
type ServiceParams struct {
	// Token: what this gateway shows of itself is a token, and no certificate.
	Token bool `json:"token,omitempty" report:"fix" told:"true"`
	// User is the client's user at the API server, as its fix names it; empty when that is
	// not known. Of a peer it is whom this gateway issues to.
	User string `json:"user,omitempty" report:"fix"`
	// Signed: the authority that is configured, or announced, signed the certificate that
	// Names are from. Without that they are shown, but nothing to paste.
	Signed bool `json:"signed,omitempty"`
	// Failure is how it failed.
	Failure Failure `json:"failure,omitempty" report:"fix" told:"failure"`
	// Remote is the address and port behind the host name of Address.
	Remote string `json:"remote,omitempty" told:"address"`
	// Took is how long the answer took, Way how long connecting took, which costs the way
	// there and back and nothing else.
	Took time.Duration `json:"took,omitempty" report:"fix" told:"wait"`
	Way  time.Duration `json:"way,omitempty" report:"fix" told:"wait"`
	// Beside is what came of the other way, BesideAddress where that was tried.
	Beside        Beside `json:"beside,omitempty" report:"fix" told:"beside"`
	BesideAddress string `json:"besideAddress,omitempty" told:"place"`
}

// ClusterParams are the parameters of the codes about what a gateway has in its cluster.
type ClusterParams struct {
	// Namespace is where the object is, Object its kind and name ("Service postern").
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object,omitempty"`
	// Account is the ServiceAccount that lacks a right, namespace:name; Verbs and Resource
	// are the right, in kubectl's words.
	Account  string `json:"account,omitempty"`
	Verbs    string `json:"verbs,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// DiscoveryParams are the parameters of the codes about what is found in DNS, and about
// the port that a router maps.
type DiscoveryParams struct {
	// Domain is browsed for gateways; Record is the type and name of a record.
	Domain string `json:"domain,omitempty"`
	Record string `json:"record,omitempty"`
	// PeerName is a peer that the check of this gateway itself is about.
	PeerName string `json:"peerName,omitempty"`
	// Known and Found are fingerprints of public keys: the peer's, and the one that was found.
	Known string `json:"known,omitempty"`
	Found string `json:"found,omitempty"`
	// Router is who was asked for a port, Mapped the address that it says it maps.
	Router string `json:"router,omitempty"`
	Mapped string `json:"mapped,omitempty"`
}

// Candidate is an address at which a gateway may be reached: where it is known from, and
// of a peer's what became of it. The words are those of api.Candidate.
type Candidate struct {
	Address string `json:"address"`
	Source  string `json:"source,omitempty"`
	State   string `json:"state,omitempty"`
	// Reason is free text of this gateway: it is cleaned before it is shown and never
	// taken from a peer.
	Reason string `json:"reason,omitempty"`
	// Relay is the server by whose allocation the address is tried.
	Relay string `json:"relay,omitempty"`
}

// NAT is the behaviour of a NAT in the words of RFC 4787, as api.NAT has them; empty
// where it is not known.
type NAT struct {
	Mapping   string `json:"mapping,omitempty"`
	Filtering string `json:"filtering,omitempty"`
}

// Figures that both texts and checks go by.
const (
	// DefaultServerName is a name in the certificate of every Kubernetes API server.
	DefaultServerName = "kubernetes.default.svc"
	// SlowAnswer is from when on an API server is slow. It gives its answer from memory, in
	// milliseconds.
	SlowAnswer = time.Second
	// SkewLimit is how much clocks may differ: within it a certificate made just now is valid
	// at both.
	SkewLimit = time.Minute
	// LeastMTU is the least that spec.mtu may be: what IPv6 inside the tunnel needs (RFC 8200
	// section 5).
	LeastMTU = 1280
	// WantedBuffer is what the gateway asks for as its sockets' buffers, in bytes
	// (tunnel/underlay).
	WantedBuffer = 4 << 20
)
