package catalogue

import "strings"

// Code is the stable name of a fault. Codes are never reused and never change their meaning.
// docs/troubleshooting.md has an entry for each.
type Code string

// Notes say why there is no verdict, or no meaningful one. They are not faults: they have texts,
// but no number, and are not shown as codes.
const (
	NotChecked  Code = "not checked"
	NotFinished Code = "not finished"
	// NotTried depends on another check.
	NotTried Code = "not tried"

	// The others are about what peers report.
	ReportsStopped     Code = "reports stopped"
	ReportsNever       Code = "reports never"
	ReportsUnsupported Code = "reports unsupported"
	ReportsMissing     Code = "reports missing"
	ReportIncomplete   Code = "report incomplete"
	ReportStale        Code = "report stale"
	ReportBare         Code = "report bare"
	ReportAstray       Code = "report astray"
	ReportUnsure       Code = "report unsure"
	ReportOvertaken    Code = "report overtaken"
)

// Fault returns the code, or "" for a note.
func (c Code) Fault() Code {
	if !strings.HasPrefix(string(c), "PST") {
		return ""
	}
	return c
}

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
	RateLimited         Code = "PST0115"
	RemovedByPeer       Code = "PST0116"
	KeyElsewhere        Code = "PST0117"
	PathSlow            Code = "PST0118"
	// Intermittent is about any check: another code quoted, which comes and goes.
	Intermittent Code = "PST0119"

	// Faults on the way out from here.
	NoRoute        Code = "PST0120"
	LinkDown       Code = "PST0121"
	SendProhibited Code = "PST0122"
	RouterRefuses  Code = "PST0123"
	NextHopSilent  Code = "PST0124"
	NothingAnswers Code = "PST0125"
	// Unanswered is a silence without a known cause yet.
	Unanswered Code = "PST0126"
	// ResolverSilent affects everything that is reached by name.
	ResolverSilent Code = "PST0127"
	SendFails      Code = "PST0128"
	// UnknownKey is about who dials this gateway.
	UnknownKey Code = "PST0129"
	// ProbesDropped is about a path that lets only WireGuard through.
	ProbesDropped Code = "PST0130"
	// EndpointOfAnother is about a peer that is dialled where it is not.
	EndpointOfAnother Code = "PST0131"
	// PeerRestarts is about a peer's gateway that ends again and again.
	PeerRestarts Code = "PST0132"
	// PathInterrupted is about a path that fails at regular intervals.
	PathInterrupted Code = "PST0133"
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
	StunOutvoted      Code = "PST0406"
	ProxyRefuses      Code = "PST0407"
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
	ConfigUndone  Code = "PST0704"
	StateDamaged  Code = "PST0710"
	StateExposed  Code = "PST0711"
	NotStored     Code = "PST0712"
	StateNotKept  Code = "PST0713"
	EntryAside    Code = "PST0714"
	StateDeleted  Code = "PST0715"
	// StateUnwritable is about a state directory, outside of clusters.
	StateUnwritable Code = "PST0716"

	NameTaken      Code = "PST0739"
	ObjectReverted Code = "PST0740"
)

// PST08xx: resources.
const (
	PeerFlowLimit     Code = "PST0801"
	PeerHalfOpenLimit Code = "PST0802"
	TotalFlowLimit    Code = "PST0803"
	PeerRateLimit     Code = "PST0804"
	ClientLimit       Code = "PST0805"

	SocketBufferSmall Code = "PST0810"
	MemoryNear        Code = "PST0811"
	CPUThrottled      Code = "PST0812"
	ProcessStarved    Code = "PST0813"
	SocketsUsedUp     Code = "PST0814"
)

// PST09xx: services of clusters.
const (
	ServiceRefused   Code = "PST0901"
	TooManyServices  Code = "PST0902"
	ServiceNotWanted Code = "PST0903"
	NamespaceMissing Code = "PST0904"
	ExportRefused    Code = "PST0905"
	OverlayPortsUsed Code = "PST0906"
	OverlayNotStored Code = "PST0907"
	NoBackendReady   Code = "PST0908"
	CatalogueFull    Code = "PST0909"
	ImportsFull      Code = "PST0910"
	ImportMissing    Code = "PST0911"
	ServicesUnknown  Code = "PST0912"
	PeerNamedAlike   Code = "PST0913"
)

// PST072x: Peers and Tickets in the cluster, and the gateway's rights there.
const (
	// CRDMissing, ClusterForbidden and ClusterSilent are about the whole cluster.
	CRDMissing       Code = "PST0720"
	ClusterForbidden Code = "PST0721"
	ClusterSilent    Code = "PST0722"
	// The others are about one object.
	PeerRefused     Code = "PST0723"
	PeerDuplicate   Code = "PST0724"
	SecretUnusable  Code = "PST0725"
	TicketRefused   Code = "PST0726"
	PeerNotInState  Code = "PST0727"
	GrantWithoutUse Code = "PST0728"
	// AccountUnbounded and ClusterRefuses are about the whole cluster again.
	AccountUnbounded Code = "PST0729"
	ClusterRefuses   Code = "PST0730"
)

// PST092x: the cluster's support for services of clusters.
const (
	MCSMissing        Code = "PST0920"
	ClustersetMissing Code = "PST0921"
	ClustersetWrong   Code = "PST0922"
	ClustersetSilent  Code = "PST0923"
)
