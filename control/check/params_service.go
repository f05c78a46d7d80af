package check

import "time"

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
	Token bool `json:"token,omitempty" report:"fix"`
	// User is the client's user at the API server, as its fix names it; empty when that is
	// not known. Of a peer it is whom this gateway issues to.
	User string `json:"user,omitempty" report:"fix"`
	// Signed: the authority that is configured, or announced, signed the certificate that
	// Names are from. Without that they are shown, but nothing to paste.
	Signed bool `json:"signed,omitempty"`
	// Failure is how it failed.
	Failure Failure `json:"failure,omitempty" report:"fix"`
	// Remote is the address and port behind the host name of Address.
	Remote string `json:"remote,omitempty"`
	// Took is how long the answer took, Way how long connecting took, which costs the way
	// there and back and nothing else.
	Took time.Duration `json:"took,omitempty" report:"fix"`
	Way  time.Duration `json:"way,omitempty" report:"fix"`
	// Beside is what came of the other way, BesideAddress where that was tried.
	Beside        Beside `json:"beside,omitempty" report:"fix"`
	BesideAddress string `json:"besideAddress,omitempty"`
}
