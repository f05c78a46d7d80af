package peers

import "github.com/postern-dev/postern/control/check"

// reasonUnknown is of a code that has no name here: a newer peer's.
const reasonUnknown = "Problem"

// reasonOf is a code's name in one word, as conditions and events have it.
func reasonOf(c check.Code) string {
	if r, ok := reasons()[c]; ok {
		return r
	}
	return reasonUnknown
}

// reasons are the names of the codes that a peer's verdicts and objects can have. A test
// holds them against the names in control/check.
func reasons() map[check.Code]string {
	return map[check.Code]string{
		check.PeerSilent: "PeerSilent", check.HandshakeStale: "HandshakeStale", check.PingLost: "PingLost",
		check.PeerMustDial: "PeerMustDial", check.AwaitingApproval: "AwaitingApproval", check.NotHeardByPeer: "NotHeardByPeer",
		check.NameUnknown: "NameUnknown", check.NameMoved: "NameMoved", check.PresharedKeyDiffers: "PresharedKeyDiffers",
		check.WrongPeerKey: "WrongPeerKey", check.StampInPast: "StampInPast", check.PacketsLost: "PacketsLost",
		check.DuplicateKey: "DuplicateKey", check.ClockSkew: "ClockSkew",
		check.AuthRefused: "AuthRefused", check.AuthTimeout: "AuthTimeout", check.AuthHTTP: "AuthHTTP", check.AuthDenied: "AuthDenied",
		check.AuthVersion: "AuthVersion", check.AuthOff: "AuthOff", check.AuthNotUnderstood: "AuthNotUnderstood",
		check.AuthBroken: "AuthBroken", check.TicketAlarm: "TicketAlarm", check.AuthURLUnreachable: "AuthURLUnreachable",
		check.AuthTokenRejected: "AuthTokenRejected",
		check.APIServerRefused:  "APIServerRefused", check.APIServerTimeout: "APIServerTimeout", check.APIServerBroken: "APIServerBroken",
		check.APIServerHTTP: "APIServerHTTP", check.APIServerUnauthorized: "APIServerUnauthorized",
		check.APIServerForbidden: "APIServerForbidden", check.APIServerOff: "APIServerOff", check.APIServerSlow: "APIServerSlow",
		check.UpstreamRefused: "UpstreamRefused", check.UpstreamTimeout: "UpstreamTimeout", check.UpstreamName: "UpstreamName",
		check.UpstreamUnreachable: "UpstreamUnreachable", check.PeerServiceDown: "PeerServiceDown",
		check.APIServerURLUnreachable: "APIServerURLUnreachable",
		check.NoWayIn:                 "NoWayIn", check.NothingListens: "NothingListens", check.PrivateAdvertised: "PrivateAdvertised",
		check.RelayInUse: "RelayInUse", check.RelayLost: "RelayLost",
		check.TLSUnknownCA: "TLSUnknownCA", check.TLSWrongName: "TLSWrongName", check.TLSNotValidNow: "TLSNotValidNow",
		check.TLSFailed: "TLSFailed", check.IdentityMissing: "IdentityMissing", check.IdentityExpired: "IdentityExpired",
		check.IdentityRejected: "IdentityRejected", check.PathMTUSmall: "PathMTUSmall",
		check.PeerRefused: "PeerRefused", check.PeerDuplicate: "PeerDuplicate", check.SecretUnusable: "SecretUnusable",
		check.PeerNotInState: "PeerNotInState", check.GrantWithoutUse: "GrantWithoutUse", check.TicketRefused: "TicketRefused",
	}
}
