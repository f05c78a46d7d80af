package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/discovery/egress"
)

func TestTheProxyIsJudgedByItsLastConnections(t *testing.T) {
	now := time.Now()
	failed := func(f egress.Failure, status int, err error) []egress.Outcome {
		return []egress.Outcome{{Target: "turn.example.net:443", At: now, Err: &egress.Error{
			Proxy: "proxy.example.net:3128", Target: "turn.example.net:443", Failure: f, Status: status, Err: err,
		}}}
	}
	old := failed(egress.Forbidden, 403, nil)
	old[0].At = now.Add(-time.Hour)
	for _, c := range []struct {
		name    string
		proxied []egress.Outcome
		cause   string
		fix     string
	}{
		{"not used yet", nil, "", ""},
		{"it connects", []egress.Outcome{{Target: "turn.example.net:443", At: now}}, "", ""},
		{"the server is away", failed(egress.TargetUnreached, 503, nil), "", ""},
		{"long ago", old, "", ""},
		{"no credentials", failed(egress.Unauthorized, 407, nil), "requires a user and password (HTTP 407)", "spec.proxy.username"},
		{"wrong credentials", failed(egress.Rejected, 407, nil), "rejects this gateway's user and password", "spec.proxy.username"},
		{"forbidden", failed(egress.Forbidden, 403, nil), "does not connect to turn.example.net:443 (HTTP 403)", "transport: tls"},
		{"no name", failed(egress.Unresolved, 0, errors.New("no such host")), "does not resolve", "spec.proxy.url"},
		{"refused", failed(egress.Refused, 0, errors.New("refused")), "refuses TCP", "HTTPS_PROXY"},
		{"silent", failed(egress.Timeout, 0, errors.New("timeout")), "does not answer", "spec.proxy.url"},
		{"no proxy", failed(egress.NoProxy, 404, nil), "does not answer CONNECT as an HTTP proxy does (HTTP status 404)", "HTTPS_PROXY"},
		{"no way", failed(egress.Unreachable, 0, errors.New("no route")), "cannot be reached", "ip route"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Proxy(Own{Proxy: "proxy.example.net:3128", Proxied: c.proxied}, now)
			if len(found) != 1 {
				t.Fatalf("%d findings", len(found))
			}
			v := found[0].Verdict()
			if c.cause == "" {
				if v.Verdict != api.OK {
					t.Errorf("got %+v", v)
				}
				return
			}
			if found[0].Code != catalogue.ProxyRefuses || !strings.Contains(v.Cause, c.cause) || !strings.Contains(v.Fix, c.fix) {
				t.Errorf("cause %q, fix %q", v.Cause, v.Fix)
			}
		})
	}
	if found := Proxy(Own{}, now); len(found) != 0 {
		t.Errorf("without a proxy: %+v", found)
	}
}

// A relay that cannot be used because the proxy refuses is not a separate fault.
func TestARelayFollowsFromTheProxy(t *testing.T) {
	o := Own{Proxy: "proxy.example.net:3128", TURN: []Server{{Name: "turn.example.net:443", Err: "the proxy refuses"}}}
	o.Proxied = []egress.Outcome{{Target: "turn.example.net:443", At: time.Now(), Err: &egress.Error{Failure: egress.Forbidden, Status: 403}}}
	out, _ := verdict.Correlate(time.Now(), nil, append(Proxy(o, time.Now()), TURNServers(o)...), nil)
	if len(out) != 2 || out[1].Because == nil || out[1].Because.Code != catalogue.ProxyRefuses {
		t.Errorf("got %+v", out)
	}
}
