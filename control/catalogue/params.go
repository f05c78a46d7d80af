package catalogue

import "time"

// Params are the values in a cause and a fix. A code uses those that its texts name. Missing values
// are left out of the sentence or called unknown. Text from elsewhere (errors, names in
// certificates) is cleaned when it is rendered.
//
// The tags are the schema of reports. A field with the tag told:"KIND" may be sent to the peer that
// it is about, in the form and bounds of that kind (told.go). The others stay here: errors, paths,
// files, servers, keys, and what a gateway knows about itself.
//
// A field with the tag report:"fix" may go into a fix even if it came from a peer's report: either
// the reader knows it itself, or it is a number, a time or a word of a fixed list. Other fields go
// into the cause only.
type Params struct {
	// Peer is the peer's name here.
	Peer string `json:"peer,omitempty" report:"fix"`
	// Inbound: the reader is the gateway that offers the service, and Peer uses it and reports.
	// Without a Peer it is about this gateway alone.
	Inbound bool `json:"inbound,omitempty" report:"fix"`
	// Heard: the values that the reader has not set come from a peer. Only fields with the tag
	// report:"fix" then go into a fix.
	Heard bool `json:"heard,omitempty" report:"fix"`
	// Disputed: a peer reports that it may not use the service, although it may.
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
	// Upstream is the address behind a service of this gateway.
	Upstream string `json:"upstream,omitempty"`
	// ServerName is the name that a certificate should contain, Names those it contains.
	ServerName string   `json:"serverName,omitempty" told:"host"`
	Names      []string `json:"names,omitempty" told:"names"`
	// Issuer signed a certificate; Authorities are those that were trusted to.
	// IssuerKey begins the identifier of the issuer's key; set if one of Authorities has the same name.
	Issuer      string   `json:"issuer,omitempty" told:"authority"`
	IssuerKey   string   `json:"issuerKey,omitempty"`
	Authorities []string `json:"authorities,omitempty" told:"authorities"`
	// Status is an HTTP status code, Path the requested path.
	Status int    `json:"status,omitempty" report:"fix" told:"status"`
	Path   string `json:"path,omitempty"`
	// Age is how long a condition has lasted.
	Age time.Duration `json:"age,omitempty" report:"fix" told:"age"`
	// Timeout is how long the gateway waited.
	Timeout time.Duration `json:"timeout,omitempty" report:"fix" told:"wait"`
	// NotBefore and NotAfter bound a certificate's validity.
	NotBefore time.Time `json:"notBefore,omitzero" report:"fix" told:"day"`
	NotAfter  time.Time `json:"notAfter,omitzero" report:"fix" told:"day"`
	// Version is the other side's protocol version, OwnVersion this gateway's.
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
	RecentParams
}

// RootParams are the parameters of a finding that depends on another one, or quotes it.
type RootParams struct {
	// Root is the name of the other check, RootCode its code and RootOutcome its outcome.
	Root        string `json:"root,omitempty"`
	RootCode    Code   `json:"rootCode,omitempty" report:"fix" told:"code"`
	RootOutcome string `json:"rootOutcome,omitempty"`
}

// RecentParams say how often a check failed lately, for a fault that comes and goes: Failures of
// the last Checks, the last of them LastFailure ago.
type RecentParams struct {
	Checks      int           `json:"checks,omitempty" report:"fix" told:"count"`
	Failures    int           `json:"failures,omitempty" report:"fix" told:"count"`
	LastFailure time.Duration `json:"lastFailure,omitempty" report:"fix" told:"age"`
}

// GatewayParams are the parameters of the codes about tunnel, path and exposure.
type GatewayParams struct {
	// From is the address and port that something came from, Seen when it last did.
	From string    `json:"from,omitempty" told:"address"`
	Seen time.Time `json:"seen,omitzero" report:"fix" told:"ago"`
	// By is what rejected a datagram; empty if that was this machine, or is unknown.
	By string `json:"by,omitempty"`
	// Key is a public key in base64, Configured the one that is configured instead.
	Key        string `json:"key,omitempty"`
	Configured string `json:"configured,omitempty"`
	// Former: Key is one that the peer replaced (`key rotate`). Joined: the peer joined by ticket, so
	// its key is not in the configuration.
	Former bool `json:"former,omitempty" report:"fix"`
	Joined bool `json:"joined,omitempty" report:"fix"`
	// Own are addresses of this gateway as others see them, with the port; Port is the one
	// it listens on.
	Own  []string `json:"own,omitempty" report:"fix"`
	Port uint16   `json:"port,omitempty" report:"fix"`
	// Set are the addresses of Own that spec.discovery.advertise contains.
	Set []string `json:"set,omitempty" report:"fix"`
	// Reached is where the reader of a peer's report reaches that peer.
	Reached string `json:"reached,omitempty" report:"fix"`
	// Candidates are the addresses concerned and the result of each.
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
	// Loss is the share of packets that connections lose at any rate. Rate is what a rate limiter
	// lets through, in bytes of payload per second. Full: connections fill the line at that rate.
	Loss float64 `json:"loss,omitempty"`
	Rate float64 `json:"rate,omitempty"`
	Full bool    `json:"full,omitempty"`
	// MTU is the largest overlay packet that crosses the path, LinkMTU the overlay's own, Size the
	// smallest that was lost; in bytes, 0 = unknown.
	MTU     int `json:"mtu,omitempty" report:"fix" told:"size"`
	LinkMTU int `json:"linkMtu,omitempty" report:"fix" told:"size"`
	Size    int `json:"size,omitempty" report:"fix" told:"size"`
	// NAT is in front of this gateway, PeerNAT in front of the peer.
	NAT     NAT `json:"nat,omitzero" report:"fix" told:"nat"`
	PeerNAT NAT `json:"peerNat,omitzero" report:"fix" told:"nat"`
	// PeerShut: nobody outside the peer's network can dial the addresses it announces.
	PeerShut bool `json:"peerShut,omitempty" report:"fix" told:"true"`
	// Relay is a TURN server, Server any server, as configured.
	Relay  string `json:"relay,omitempty" told:"place"`
	Server string `json:"server,omitempty"`
	// Resolvers are the name servers that this machine is configured to ask.
	Resolvers []string `json:"resolvers,omitempty"`
	// Worked: a handshake with the peer has completed before.
	Worked bool `json:"worked,omitempty" report:"fix"`
	// Awaited: the peer has yet to approve this gateway, not the other way round.
	Awaited bool `json:"awaited,omitempty" report:"fix"`
	// Starts is how often the peer's gateway has started, the first time Age ago.
	Starts int `json:"starts,omitempty"`
	// Interruptions is how often the path was interrupted, every Period, the first time Age ago.
	// Longest is the longest of them.
	Interruptions int           `json:"interruptions,omitempty"`
	Period        time.Duration `json:"period,omitempty"`
	Longest       time.Duration `json:"longest,omitempty"`
	// OwnWas and OwnNow are addresses at which others saw this gateway before and after they changed,
	// OwnSince ago.
	OwnWas   []string      `json:"ownWas,omitempty"`
	OwnNow   []string      `json:"ownNow,omitempty"`
	OwnSince time.Duration `json:"ownSince,omitempty"`
	// RelayAnswers: the relay that carries nothing answers this gateway.
	RelayAnswers bool `json:"relayAnswers,omitempty"`
	// Filtered counts what this machine discarded because its route to the sender uses another
	// interface (rp_filter), in the last FilteredIn.
	Filtered   uint64        `json:"filtered,omitempty"`
	FilteredIn time.Duration `json:"filteredIn,omitempty"`
	// Removed: a peer with the key that was found was removed here.
	Removed bool `json:"removed,omitempty"`
	// Skew is the peer's clock minus this gateway's.
	Skew time.Duration `json:"skew,omitempty"`
}

// ResourceParams are the parameters of the codes about resources of the machine.
type ResourceParams struct {
	// Used and Max are bytes, or periods of the scheduler.
	Used uint64 `json:"used,omitempty"`
	Max  uint64 `json:"max,omitempty"`
	// Unit is the systemd unit with the limit; empty if the limit is another.
	Unit string `json:"unit,omitempty"`
	// Drops counts drops.
	Drops uint64 `json:"drops,omitempty"`
}

// Failure is how something failed, for codes that cover several ways.
type Failure string

const (
	FailureName    Failure = "name"    // the name does not resolve
	FailureRefused Failure = "refused" // nobody listens
	FailureTimeout Failure = "timeout" // nobody answers
	FailureRoute   Failure = "route"   // there is no route, or it was cut
	FailureURL     Failure = "url"     // the URL itself is wrong
	FailureMissing Failure = "missing" // no token where one is required, or no name server
	FailureExpired Failure = "expired" // the token has expired
	// FailureFull and FailureReadOnly are failures of a disk.
	FailureFull     Failure = "full"
	FailureReadOnly Failure = "read-only"
	// FailureFiles: a limit that is derived from that of open files is reached.
	FailureFiles Failure = "files"

	FailureCertificate Failure = "certificate" // the server's certificate is rejected

	// For a proxy, in addition to the first four.
	FailureProtocol  Failure = "protocol"  // the server is not a proxy
	FailureUnknown   Failure = "unknown"   // it requires credentials and there are none
	FailureRejected  Failure = "rejected"  // it rejects the credentials
	FailureForbidden Failure = "forbidden" // it does not connect to the target

	// For a cluster, in addition to FailureRejected, for another reason, and FailureUnknown: it does
	// not know the account.
	FailureQuota     Failure = "quota"     // a quota is used up
	FailureAdmission Failure = "admission" // a webhook or policy denies the object
	FailureWebhook   Failure = "webhook"   // a webhook does not answer
	FailureImmutable Failure = "immutable" // the object is marked immutable
	FailureEnding    Failure = "ending"    // the namespace is being deleted

	// For an API server, in addition to FailureRefused, FailureTimeout, FailureCertificate, and
	// FailureExpired: its certificate is not valid at this time.
	FailureBusy   Failure = "busy"   // it has too many requests
	FailureBroken Failure = "broken" // it fails itself
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
	// Token: this gateway authenticates with a token, not with a certificate.
	Token bool `json:"token,omitempty" report:"fix" told:"true"`
	// User is the client's user at the API server, for its fix; empty if unknown. If the client is
	// a peer, it is the user to whom this gateway issues identities.
	User string `json:"user,omitempty" report:"fix"`
	// Signed: the configured or announced authority signed the certificate that contains Names.
	// Otherwise they are shown, but not offered to be pasted.
	Signed bool `json:"signed,omitempty"`
	// Failure is how it failed.
	Failure Failure `json:"failure,omitempty" report:"fix" told:"failure"`
	// Remote is the address and port that Address's host name resolved to.
	Remote string `json:"remote,omitempty" told:"address"`
	// Took is how long the response took. Way is how long connecting took, which is one round trip.
	Took time.Duration `json:"took,omitempty" report:"fix" told:"wait"`
	Way  time.Duration `json:"way,omitempty" report:"fix" told:"wait"`
	// Beside is the result by the other path, BesideAddress the address tried there.
	Beside        Beside `json:"beside,omitempty" report:"fix" told:"beside"`
	BesideAddress string `json:"besideAddress,omitempty" told:"place"`
}

// ClusterParams are the parameters of the codes about objects and rights in the cluster.
type ClusterParams struct {
	// Namespace is the object's namespace, Object its kind and name ("Service postern").
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object,omitempty"`
	// Selector are the labels by which a Service finds its pods, in kubectl's form.
	Selector string `json:"selector,omitempty"`
	// Account is the ServiceAccount that lacks a right, namespace:name. Verbs and Resource are the
	// right, in kubectl's terms.
	Account  string `json:"account,omitempty"`
	Verbs    string `json:"verbs,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Manager is the field manager that changes objects back, Reverts how often it did, and Hold how
	// long the gateway waits until it writes them again.
	Manager string        `json:"manager,omitempty"`
	Reverts int           `json:"reverts,omitempty"`
	Hold    time.Duration `json:"hold,omitempty"`
}

// DiscoveryParams are the parameters of the codes about discovery in DNS, and about port mappings.
type DiscoveryParams struct {
	// Domain is browsed for gateways; Record is the type and name of a record.
	Domain string `json:"domain,omitempty"`
	Record string `json:"record,omitempty"`
	// PeerName is the peer that a check of this gateway itself is about.
	PeerName string `json:"peerName,omitempty"`
	// Known and Found are fingerprints of public keys: the peer's, and the discovered one.
	Known string `json:"known,omitempty"`
	Found string `json:"found,omitempty"`
	// Router is the router that was asked for a port, Mapped the address that it claims to map.
	Router string `json:"router,omitempty"`
	Mapped string `json:"mapped,omitempty"`
}

// Candidate is an address at which a gateway may be reached: its source and, for a peer's, the
// result. The words are those of api.Candidate.
type Candidate struct {
	Address string `json:"address"`
	Source  string `json:"source,omitempty"`
	State   string `json:"state,omitempty"`
	// Reason is free text of this gateway. It is cleaned before it is shown and never accepted from
	// a peer.
	Reason string `json:"reason,omitempty"`
	// Relay is the server whose allocation is used to try the address.
	Relay string `json:"relay,omitempty"`
}

// NAT is the behaviour of a NAT in the terms of RFC 4787, as api.NAT; empty if unknown.
type NAT struct {
	Mapping   string `json:"mapping,omitempty"`
	Filtering string `json:"filtering,omitempty"`
}

// Figures used by both texts and checks.
const (
	// DefaultServerName is a name in the certificate of every Kubernetes API server.
	DefaultServerName = "kubernetes.default.svc"
	// SlowAnswer is the response time from which an API server counts as slow. It usually responds
	// from memory, in milliseconds.
	SlowAnswer = time.Second
	// SkewLimit is how much clocks may differ. Within it a certificate made just now is valid at
	// both.
	SkewLimit = time.Minute
	// LeastMTU is the minimum of spec.mtu, required by IPv6 inside the tunnel (RFC 8200 section 5).
	LeastMTU = 1280
	// WantedBuffer is the buffer size that the gateway requests for its sockets, in bytes
	// (tunnel/underlay).
	WantedBuffer = 4 << 20
)
