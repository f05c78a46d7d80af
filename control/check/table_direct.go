package check

import "fmt"

// What the ways outside the tunnel have of their own: a URL, and a token.

func (p Params) urlCause() string {
	at := p.Address
	if p.Remote != "" {
		at = fmt.Sprintf("%s (%s)", p.Address, p.Remote)
	}
	what := fmt.Sprintf("%s of %s", p.serviceName(), p.owner())
	switch p.Failure {
	case FailureURL:
		return detail(fmt.Sprintf("%s, the URL of %s, cannot be used", p.Address, what), p)
	case FailureName:
		return detail(fmt.Sprintf("the name in %s, the URL of %s, does not resolve here", p.Address, what), p)
	case FailureRefused:
		return detail(fmt.Sprintf("nothing listens at %s, the URL of %s outside the tunnel", at, what), p)
	case FailureTimeout:
		return detail(fmt.Sprintf("%s, the URL of %s outside the tunnel, did not answer a connection within %s", at, what, seconds(p.Timeout)), p)
	}
	return detail(fmt.Sprintf("%s, the URL of %s outside the tunnel, cannot be reached", at, what), p)
}

func (p Params) urlFix() string {
	to := or(p.Remote, or(p.Address, "its address"))
	correct := "correct " + p.urlSetting()
	switch p.Failure {
	case FailureURL:
		return fmt.Sprintf("set %s to https://HOST:PORT", p.urlSetting())
	case FailureName:
		return fmt.Sprintf("%s, or this machine's resolver (/etc/resolv.conf)", correct)
	case FailureRefused:
		return fmt.Sprintf("%ssee that the server listens and that port forwarding, NodePort or Ingress leads to it, or %s", p.at(), correct)
	}
	return fmt.Sprintf("let TCP to %s through the firewalls between the two sites%s, or %s", to, letTCP(p.Remote), correct)
}

func tokenCause(p Params) string {
	switch p.Failure {
	case FailureMissing:
		return detail(fmt.Sprintf("%s wants a token and none is configured (HTTP 401)", p.server()), p)
	case FailureExpired:
		return detail(fmt.Sprintf("%s refused the token, which was valid until %s", p.server(), day(p.NotAfter)), p)
	}
	return detail(fmt.Sprintf("%s does not accept the token (HTTP 401)", p.server()), p)
}

func tokenFix(p Params) string {
	if p.Failure == FailureMissing {
		return fmt.Sprintf("set %s to a file with a token that `postern peer token` printed at %s (of a Peer object: outOfBand.tokenSecretRef)", p.outOfBand("tokenFile"), p.owner())
	}
	return fmt.Sprintf("put what `postern peer token` prints at %s into the file of %s (of a Peer object: into the Secret of outOfBand.tokenSecretRef)", p.owner(), p.outOfBand("tokenFile"))
}
