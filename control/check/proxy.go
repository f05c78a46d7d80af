package check

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/egress"
)

// NameProxy is the check of the HTTP proxy for outbound connections.
const NameProxy = "proxy"

// proxyMemory is how long a failed connection says something about the proxy: whoever needs one
// retries sooner.
const proxyMemory = 10 * time.Minute

// proxyFailures are the failures that are the proxy's fault. If it cannot connect to a server, that
// is the server's.
var proxyFailures = map[egress.Failure]catalogue.Failure{
	egress.Unresolved: catalogue.FailureName, egress.Unreachable: catalogue.FailureRoute,
	egress.Refused: catalogue.FailureRefused, egress.Timeout: catalogue.FailureTimeout,
	egress.NoProxy: catalogue.FailureProtocol, egress.Unauthorized: catalogue.FailureUnknown,
	egress.Rejected: catalogue.FailureRejected, egress.Forbidden: catalogue.FailureForbidden,
}

// blamed reports whether a failure is the proxy's fault.
func blamed(e *egress.Error) bool { return proxyFailures[e.Failure] != "" }

// Proxy checks the proxy by the last connection to each host. Without a proxy there is no check.
func Proxy(o Own, now time.Time) []verdict.Finding {
	if o.Proxy == "" {
		return nil
	}
	r := beginOwn(NameProxy)
	r.Rests = []string{verdict.Own(NameNetwork)}
	var p catalogue.Params
	p.Inbound, p.Server, p.Address = true, o.Proxy, o.Proxy
	for _, last := range o.Proxied {
		if last.Err == nil || !blamed(last.Err) || now.Sub(last.At) > proxyMemory {
			continue
		}
		p.Names = append(p.Names, last.Target)
		if p.Failure == "" {
			p.Failure, p.Status, p.Detail = proxyFailures[last.Err.Failure], last.Err.Status, last.Err.Error()
			p.Remote = last.Target
		}
	}
	if p.Failure != "" {
		return []verdict.Finding{r.fail(api.Warning, StageTCP, catalogue.ProxyRefuses, p)}
	}
	seen := "not used yet"
	if i := slices.IndexFunc(o.Proxied, func(last egress.Outcome) bool { return last.Err == nil }); i >= 0 {
		seen = "connected to " + o.Proxied[i].Target
	}
	r.passed(StageTCP, o.Proxy+": "+seen)
	return []verdict.Finding{r.ok(0)}
}
