package peers

import "github.com/postern-dev/postern/control/catalogue"

// reasonUnknown is the reason of an unknown code, from a newer peer.
const reasonUnknown = "Problem"

// reasonOf returns a code's name in one word, for conditions and events.
func reasonOf(c catalogue.Code) string {
	if r, ok := reasons()[c]; ok {
		return r
	}
	return reasonUnknown
}

// reasons are the names of the codes that a peer's verdicts and objects can have. A test compares
// them with control/catalogue.
func reasons() map[catalogue.Code]string {
	return map[catalogue.Code]string{
		catalogue.PeerSilent: "PeerSilent", catalogue.HandshakeStale: "HandshakeStale", catalogue.PingLost: "PingLost",
		catalogue.PeerMustDial: "PeerMustDial", catalogue.AwaitingApproval: "AwaitingApproval", catalogue.NotHeardByPeer: "NotHeardByPeer",
		catalogue.NameUnknown: "NameUnknown", catalogue.NameMoved: "NameMoved", catalogue.PresharedKeyDiffers: "PresharedKeyDiffers",
		catalogue.WrongPeerKey: "WrongPeerKey", catalogue.StampInPast: "StampInPast", catalogue.PacketsLost: "PacketsLost",
		catalogue.DuplicateKey: "DuplicateKey", catalogue.ClockSkew: "ClockSkew", catalogue.RateLimited: "RateLimited", catalogue.RemovedByPeer: "RemovedByPeer",
		catalogue.PathSlow: "PathSlow", catalogue.Intermittent: "Intermittent", catalogue.ProbesDropped: "ProbesDropped", catalogue.UnknownKey: "UnknownKey", catalogue.SendFails: "SendFails", catalogue.EndpointOfAnother: "EndpointOfAnother", catalogue.PeerRestarts: "PeerRestarts", catalogue.PathInterrupted: "PathInterrupted", catalogue.SocketsUsedUp: "SocketsUsedUp",
		catalogue.NoRoute: "NoRoute", catalogue.SendProhibited: "SendProhibited", catalogue.RouterRefuses: "RouterRefuses",
		catalogue.NextHopSilent: "NextHopSilent", catalogue.Unanswered: "Unanswered",
		catalogue.LinkDown: "LinkDown", catalogue.NothingAnswers: "NothingAnswers", catalogue.ResolverSilent: "ResolverSilent",
		catalogue.KeyElsewhere: "KeyElsewhere", catalogue.ProcessStarved: "ProcessStarved", catalogue.TurnUnreachable: "TurnUnreachable",
		catalogue.AuthRefused: "AuthRefused", catalogue.AuthTimeout: "AuthTimeout", catalogue.AuthHTTP: "AuthHTTP", catalogue.AuthDenied: "AuthDenied",
		catalogue.AuthVersion: "AuthVersion", catalogue.AuthOff: "AuthOff", catalogue.AuthNotUnderstood: "AuthNotUnderstood",
		catalogue.AuthBroken: "AuthBroken", catalogue.TicketAlarm: "TicketAlarm", catalogue.AuthURLUnreachable: "AuthURLUnreachable",
		catalogue.AuthTokenRejected: "AuthTokenRejected",
		catalogue.APIServerRefused:  "APIServerRefused", catalogue.APIServerTimeout: "APIServerTimeout", catalogue.APIServerBroken: "APIServerBroken",
		catalogue.APIServerHTTP: "APIServerHTTP", catalogue.APIServerUnauthorized: "APIServerUnauthorized",
		catalogue.APIServerForbidden: "APIServerForbidden", catalogue.APIServerOff: "APIServerOff", catalogue.APIServerSlow: "APIServerSlow",
		catalogue.UpstreamRefused: "UpstreamRefused", catalogue.UpstreamTimeout: "UpstreamTimeout", catalogue.UpstreamName: "UpstreamName",
		catalogue.UpstreamUnreachable: "UpstreamUnreachable", catalogue.PeerServiceDown: "PeerServiceDown",
		catalogue.APIServerURLUnreachable: "APIServerURLUnreachable",
		catalogue.NoWayIn:                 "NoWayIn", catalogue.NothingListens: "NothingListens", catalogue.PrivateAdvertised: "PrivateAdvertised",
		catalogue.RelayInUse: "RelayInUse", catalogue.RelayLost: "RelayLost",
		catalogue.TLSUnknownCA: "TLSUnknownCA", catalogue.TLSWrongName: "TLSWrongName", catalogue.TLSNotValidNow: "TLSNotValidNow",
		catalogue.TLSFailed: "TLSFailed", catalogue.IdentityMissing: "IdentityMissing", catalogue.IdentityExpired: "IdentityExpired",
		catalogue.IdentityRejected: "IdentityRejected", catalogue.PathMTUSmall: "PathMTUSmall",
		catalogue.PeerRefused: "PeerRefused", catalogue.PeerDuplicate: "PeerDuplicate", catalogue.SecretUnusable: "SecretUnusable",
		catalogue.PeerNotInState: "PeerNotInState", catalogue.GrantWithoutUse: "GrantWithoutUse", catalogue.TicketRefused: "TicketRefused",
	}
}
