package egress

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Failure is how a connection through a proxy failed.
type Failure string

const (
	Unresolved      Failure = "unresolved"       // the proxy's name is not resolved
	Unreachable     Failure = "unreachable"      // there is no way to it
	Refused         Failure = "refused"          // nobody listens there
	Timeout         Failure = "timeout"          // it does not answer in time
	NoProxy         Failure = "no-proxy"         // it answers, and not as a proxy does
	Unauthorized    Failure = "unauthorized"     // it wants credentials (407) and has none
	Rejected        Failure = "rejected"         // it does not take the credentials (407)
	Forbidden       Failure = "forbidden"        // it does not connect to the target (403)
	TargetUnreached Failure = "target-unreached" // it got no connection to the target (502, 503, 504), or none in time
)

// Error is why there is no connection through the proxy. It holds no credentials, and nothing
// that the proxy wrote but what has the form that it should have. It unwraps to nothing: that
// the proxy refuses a connection does not say that the target does.
type Error struct {
	// Proxy and Target are host:port.
	Proxy, Target string
	Failure       Failure
	// Status is of HTTP; 0 = there was no answer.
	Status int
	// Schemes are the kinds of credentials that the proxy takes ("basic", "negotiate").
	Schemes []string
	// Err is what the failure was, where the proxy did not say.
	Err error
}

// Error says what failed, and what to do.
func (e *Error) Error() string {
	return fmt.Sprintf("the proxy %s %s", e.Proxy, e.reason())
}

func (e *Error) reason() string {
	switch e.Failure {
	case Unresolved:
		return "is not known by this machine's DNS: correct its name, or give its address"
	case Refused:
		return "refuses TCP: is it up, and is that its port?"
	case Timeout:
		return "does not answer: is it up, and is the way to it open?"
	case Unauthorized:
		return fmt.Sprintf("wants a user and password (%d%s)", e.Status, e.wanted())
	case Rejected:
		return fmt.Sprintf("does not take the user and password (%d%s)", e.Status, e.wanted())
	case Forbidden:
		return fmt.Sprintf("does not connect to %s (%d): allow CONNECT to that host and port there", e.Target, e.Status)
	case TargetUnreached:
		why := "in time"
		if e.Status != 0 {
			why = fmt.Sprintf("(%d)", e.Status)
		}
		return fmt.Sprintf("gets no connection to %s %s: is the server up, and reachable from there?", e.Target, why)
	case NoProxy:
		if e.Status != 0 {
			return fmt.Sprintf("answers CONNECT with HTTP status %d: is it a proxy, and one that may CONNECT?", e.Status)
		}
		return fmt.Sprintf("does not answer as an HTTP proxy does (%v): is that its port?", e.Err)
	case Unreachable:
	}
	return fmt.Sprintf("cannot be reached: %v", e.Err)
}

func (e *Error) wanted() string {
	if len(e.Schemes) == 0 || slices.Contains(e.Schemes, "basic") {
		return ""
	}
	return ", by " + strings.Join(e.Schemes, " or ") + ", and postern speaks Basic alone"
}

// maxSchemes bounds the kinds of credentials that are told.
const maxSchemes = 4

// scheme is how a kind of credentials is written that can be one.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,19}`)

// schemes are the kinds of credentials that a proxy takes.
func schemes(headers []string) (out []string) {
	for _, h := range headers {
		s := strings.ToLower(scheme.FindString(h))
		if s != "" && len(out) < maxSchemes && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
