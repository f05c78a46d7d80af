package check

// PST072x: what a gateway is told by its cluster, as Peers and Tickets, and may do there.
const (
	// CRDMissing, ClusterForbidden and ClusterSilent are found of the cluster as a whole.
	CRDMissing       Code = "PST0720"
	ClusterForbidden Code = "PST0721"
	ClusterSilent    Code = "PST0722"
	// The others are found of one object.
	PeerRefused     Code = "PST0723"
	PeerDuplicate   Code = "PST0724"
	SecretUnusable  Code = "PST0725"
	TicketRefused   Code = "PST0726"
	PeerNotInState  Code = "PST0727"
	GrantWithoutUse Code = "PST0728"
	// AccountUnbounded is found of the cluster as a whole again.
	AccountUnbounded Code = "PST0729"
)
