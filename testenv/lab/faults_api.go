package lab

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/apiserver"
	"github.com/postern-dev/postern/testenv/pki"
)

// late is the response time of the slow API server: longer than the second from which checks warn.
const late = 1500 * time.Millisecond

// apiServers are faults of cloud's API server. Edge sees them through the tunnel, and cloud sees
// them itself.
func apiServers() []Scenario {
	const otherName = "api.example.net"
	act := func(text string, do func(ctx context.Context, l *Lab) error) func(context.Context, *Lab) (string, error) {
		return func(ctx context.Context, l *Lab) (string, error) { return text, do(ctx, l) }
	}
	answers := func(text string, status int, after time.Duration) func(context.Context, *Lab) (string, error) {
		return act(text, func(_ context.Context, l *Lab) error { l.Cloud.API.Answer(status, after); return nil })
	}
	renew := act("cloud's API server got a certificate by its cluster CA, for its name, valid for a day", func(_ context.Context, l *Lab) error {
		return l.Cloud.present(l.Cloud.pki.serving, apiserver.ServerName, 24*time.Hour)
	})
	both := func(c catalogue.Code, f fault) *fault { f.cloud, f.edge = codes(c), codes(c); return &f }
	return []Scenario{
		{Name: "api-down", Summary: "cloud's API server is down: refused at edge, and cloud says why", fault: &fault{
			harm:  act("cloud's API server was stopped", func(_ context.Context, l *Lab) error { return l.Cloud.API.Close() }),
			cloud: codes(catalogue.UpstreamRefused), edge: codes(catalogue.APIServerRefused),
			fix: act("it was started again", func(ctx context.Context, l *Lab) error { return l.Cloud.API.Restart(ctx) }),
		}},
		{Name: "api-slow", Summary: fmt.Sprintf("cloud's API server answers after %s", late), fault: both(catalogue.APIServerSlow, fault{
			harm: answers(fmt.Sprintf("cloud's API server takes %s for each answer", late), 0, late),
			fix:  answers("what slowed it down is gone", 0, 0),
		})},
		{Name: "api-wrong-name", Summary: "the certificate of cloud's API server is for another name", fault: both(catalogue.TLSWrongName, fault{
			harm: act("cloud's API server shows a certificate for "+otherName, func(_ context.Context, l *Lab) error {
				return l.Cloud.present(l.Cloud.pki.serving, otherName, 24*time.Hour)
			}),
			fix: act("at cloud: spec.services.apiServer.serverName: "+otherName+", and reload", func(ctx context.Context, l *Lab) error {
				if err := l.Cloud.Edit(func(s *api.GatewaySpec) { s.Services.APIServer.ServerName = otherName }); err != nil {
					return err
				}
				return l.Cloud.reload(ctx)
			}),
		})},
		{Name: "api-unknown-ca", Summary: "the certificate of cloud's API server is signed by an authority that nobody announced", fault: both(catalogue.TLSUnknownCA, fault{
			harm: act("cloud's API server shows a certificate of another authority", func(_ context.Context, l *Lab) error {
				other, err := pki.NewCA("somebody-elses-ca")
				if err != nil {
					return err
				}
				return l.Cloud.present(other, apiserver.ServerName, 24*time.Hour)
			}),
			fix: renew,
		})},
		{Name: "api-expired", Summary: "the certificate of cloud's API server has expired", fault: both(catalogue.TLSNotValidNow, fault{
			harm: act("the certificate of cloud's API server ended an hour ago", func(_ context.Context, l *Lab) error {
				return l.Cloud.present(l.Cloud.pki.serving, apiserver.ServerName, -time.Hour)
			}),
			fix: renew,
		})},
		{Name: "api-401", Summary: "cloud's API server does not accept the identity that cloud's auth issued to edge", fault: both(catalogue.APIServerUnauthorized, fault{
			harm: answers("cloud's API server trusts the issuer of identities no more: it answers 401", http.StatusUnauthorized, 0),
			fix:  answers("it has the issuer's certificate in --client-ca-file again", 0, 0),
		})},
		{Name: "api-403", Summary: "cloud's API server knows edge and forbids what it asks", fault: both(catalogue.APIServerForbidden, fault{
			harm: answers("cloud's API server has no role for edge: it answers 403", http.StatusForbidden, 0),
			fix:  answers("edge was given the role again", 0, 0),
		})},
	}
}

// present makes the API server present a certificate of an authority that expires after a while.
func (s *Site) present(ca *pki.CA, name string, ends time.Duration) error {
	now := time.Now()
	pair, err := ca.ServerBetween(now.Add(-48*time.Hour), now.Add(ends), name)
	if err != nil {
		return err
	}
	cert, err := pair.TLS()
	if err != nil {
		return err
	}
	s.API.Present(cert)
	return nil
}
