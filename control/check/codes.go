package check

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Code is a stable name for one way in which something fails. Codes are never reused
// and never change their meaning; README.md has one entry for each.
type Code string

// PST01xx: gateway and path.
const (
	PeerSilent       Code = "PST0101"
	HandshakeStale   Code = "PST0102"
	PingLost         Code = "PST0103"
	PeerMustDial     Code = "PST0104"
	AwaitingApproval Code = "PST0105"

	NotHeardByPeer      Code = "PST0106"
	NameUnknown         Code = "PST0107"
	NameMoved           Code = "PST0108"
	PresharedKeyDiffers Code = "PST0109"
	WrongPeerKey        Code = "PST0110"
	StampInPast         Code = "PST0111"
	PacketsLost         Code = "PST0112"
	DuplicateKey        Code = "PST0113"
	ClockSkew           Code = "PST0114"
)

// PST02xx: auth.
const (
	AuthRefused        Code = "PST0201"
	AuthTimeout        Code = "PST0202"
	AuthHTTP           Code = "PST0203"
	AuthDenied         Code = "PST0204"
	AuthVersion        Code = "PST0205"
	AuthOff            Code = "PST0206"
	AuthNotUnderstood  Code = "PST0207"
	AuthBroken         Code = "PST0208"
	TicketAlarm        Code = "PST0210"
	AuthURLUnreachable Code = "PST0221"
	AuthTokenRejected  Code = "PST0222"
)

// PST03xx: API server, and the upstreams of services in general.
const (
	APIServerRefused        Code = "PST0301"
	APIServerTimeout        Code = "PST0302"
	APIServerBroken         Code = "PST0303"
	APIServerHTTP           Code = "PST0304"
	APIServerUnauthorized   Code = "PST0305"
	APIServerForbidden      Code = "PST0306"
	APIServerOff            Code = "PST0307"
	APIServerSlow           Code = "PST0308"
	UpstreamRefused         Code = "PST0310"
	UpstreamTimeout         Code = "PST0311"
	UpstreamName            Code = "PST0312"
	UpstreamUnreachable     Code = "PST0313"
	PeerServiceDown         Code = "PST0320"
	APIServerURLUnreachable Code = "PST0321"
)

// PST04xx: NAT and exposure.
const (
	NoWayIn           Code = "PST0401"
	NothingListens    Code = "PST0402"
	PrivateAdvertised Code = "PST0403"
	StunUnreachable   Code = "PST0404"
	TurnUnreachable   Code = "PST0405"
	RelayInUse        Code = "PST0411"
	RelayLost         Code = "PST0412"

	LoadBalancerPending Code = "PST0420"
	NodePortPrivate     Code = "PST0421"
	ServiceMissing      Code = "PST0422"
	ServicePort         Code = "PST0423"
	NoUDPWay            Code = "PST0424"
	ExposureUnknown     Code = "PST0425"
	HostPortRefused     Code = "PST0426"
	APIServerUnlocated  Code = "PST0427"
	ExposureMoved       Code = "PST0428"
	PodRefused          Code = "PST0429"

	LANNoInterface Code = "PST0430"
	LANNotJoined   Code = "PST0431"
	LANSilent      Code = "PST0432"
	LANPod         Code = "PST0433"
	LANOtherKey    Code = "PST0434"
	LANRecord      Code = "PST0435"

	KeyMoved         Code = "PST0440"
	DomainUnanswered Code = "PST0441"
	DomainEmpty      Code = "PST0442"
	RecordUnusable   Code = "PST0443"
	RecordForged     Code = "PST0444"

	MappingStale     Code = "PST0450"
	MappingRefused   Code = "PST0451"
	RouterSilent     Code = "PST0452"
	MappingInside    Code = "PST0453"
	MappingElsewhere Code = "PST0454"
)

// PST05xx: TLS and identity.
const (
	TLSUnknownCA     Code = "PST0501"
	TLSWrongName     Code = "PST0502"
	TLSNotValidNow   Code = "PST0503"
	TLSFailed        Code = "PST0504"
	IdentityMissing  Code = "PST0505"
	IdentityExpired  Code = "PST0506"
	IdentityRejected Code = "PST0507"

	CSRDenied    Code = "PST0525"
	CSRFailed    Code = "PST0526"
	CSRUnsigned  Code = "PST0527"
	CSRUnguarded Code = "PST0528"
	CSRForbidden Code = "PST0529"
)

// PST06xx: MTU.
const (
	PathMTUSmall Code = "PST0601"
)

// PST07xx: configuration and state.
const (
	LocalListener Code = "PST0701"
	ConfigRefused Code = "PST0702"
	NotGranted    Code = "PST0703"
	StateDamaged  Code = "PST0710"
	StateExposed  Code = "PST0711"
	NotStored     Code = "PST0712"
	StateNotKept  Code = "PST0713"
	EntryAside    Code = "PST0714"

	NameTaken Code = "PST0739"
)

// PST08xx: resources.
const (
	PeerFlowLimit     Code = "PST0801"
	PeerHalfOpenLimit Code = "PST0802"
	TotalFlowLimit    Code = "PST0803"
	PeerRateLimit     Code = "PST0804"

	SocketBufferSmall Code = "PST0810"
	MemoryNear        Code = "PST0811"
	CPUThrottled      Code = "PST0812"
)

// Params are the values that a cause and a fix are made of. A code uses those that its
// entry in the table reads and ignores the rest; an absent value is left out of the
// sentence or named as unknown. Text that came from elsewhere (errors, names in
// certificates) is cleaned when it is rendered.
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
	// Direct: Address was dialled outside the tunnel.
	Direct bool `json:"direct,omitempty"`
	// Service is auth, apiServer or the name of a named service.
	Service string `json:"service,omitempty" report:"fix"`
	// Address is the address that was dialled, or that was to be listened on.
	Address string `json:"address,omitempty"`
	// Endpoints are underlay addresses that were tried.
	Endpoints []string `json:"endpoints,omitempty" report:"fix"`
	// NoPath is why no path to the peer is known to work.
	NoPath string `json:"noPath,omitempty"`
	// Upstream is where a service of this gateway leads to.
	Upstream string `json:"upstream,omitempty"`
	// ServerName is the name that a certificate had to carry, Names those it carries.
	ServerName string   `json:"serverName,omitempty"`
	Names      []string `json:"names,omitempty"`
	// Issuer is who signed a certificate, Authorities are those that were trusted to.
	Issuer      string   `json:"issuer,omitempty"`
	Authorities []string `json:"authorities,omitempty"`
	// Status is an HTTP status code, Path the path that was asked for.
	Status int    `json:"status,omitempty" report:"fix"`
	Path   string `json:"path,omitempty"`
	// Age is how long a condition has lasted.
	Age time.Duration `json:"age,omitempty" report:"fix"`
	// Timeout is how long was waited.
	Timeout time.Duration `json:"timeout,omitempty" report:"fix"`
	// NotBefore and NotAfter bound a certificate's validity.
	NotBefore time.Time `json:"notBefore,omitzero" report:"fix"`
	NotAfter  time.Time `json:"notAfter,omitzero" report:"fix"`
	// Version is the other side's protocol version, OwnVersion ours.
	Version    string `json:"version,omitempty"`
	OwnVersion string `json:"ownVersion,omitempty"`
	// Limit is the number that was reached.
	Limit int `json:"limit,omitempty" report:"fix"`
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
}

// Entry is one row of the table of codes.
type Entry struct {
	Code Code
	// Title says in a few words what the code means; README.md repeats it.
	Title string
	cause func(Params) string
	fix   func(Params) string
}

// Render makes the cause and the fix of a code from its parameters. A code that this
// version does not know (a newer peer's report) is named as such.
func Render(c Code, p Params) (cause, fix string) {
	p = p.clean()
	if e, ok := lookup(c); ok {
		return e.cause(p) + p.besideNote(c), e.fix(p)
	}
	return "code " + cleanText(string(c)) + " is not known to this version of postern", "upgrade this gateway"
}

// Codes lists the table in the order of the codes.
func Codes() []Entry {
	var all []Entry
	for _, t := range tables() {
		all = append(all, t...)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// lookup finds a code's entry.
func lookup(c Code) (Entry, bool) {
	e, ok := byCode()[c]
	return e, ok
}

// byCode is the table for lookups, made when the first one is: with many peers there are
// thousands a second. Nobody changes it.
var byCode = sync.OnceValue(func() map[Code]Entry {
	all := map[Code]Entry{}
	for _, e := range Codes() {
		all[e.Code] = e
	}
	return all
})

// tables are the rows by range. They are values, not variables that could change.
func tables() [][]Entry {
	return [][]Entry{gatewayEntries(), authEntries(), apiServerEntries(), upstreamEntries(),
		exposureEntries(), clusterEntries(), lanEntries(), dnsEntries(), mappingEntries(), identityEntries(), csrEntries(), mtuEntries(), configEntries(), objectEntries(), resourceEntries()}
}
