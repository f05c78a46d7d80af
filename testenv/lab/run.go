package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// DefaultScenario is what Run plays.
const DefaultScenario = "one-nat"

// stepLimit bounds each step; all together take under five seconds.
const stepLimit = 20 * time.Second

// look is how often a step looks whether what it waits for has come.
const look = 20 * time.Millisecond

// Run plays the demonstration: invite, join, identities, a list through the tunnel each
// way. Each step is told to report when it has ended. The error is that of the first
// step that failed; later ones are not tried.
func (l *Lab) Run(ctx context.Context, report func(api.LabStep)) error {
	both := []string{api.ServiceAuth, api.ServiceAPIServer}
	var ticket string
	steps := []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"invite", func(ctx context.Context) (string, error) {
			r, err := l.Cloud.Gateway.Invite(ctx, api.InviteRequest{Allow: both})
			ticket = r.Ticket
			return fmt.Sprintf("cloud made a ticket of %d characters, good until %s", len(r.Ticket), r.ExpiresAt.Format(time.TimeOnly)), err
		}},
		{"join", func(ctx context.Context) (string, error) {
			r, err := l.Edge.Gateway.Join(ctx, api.JoinRequest{Ticket: ticket, Allow: both})
			if err == nil && r.Outcome != api.JoinConnected {
				err = fmt.Errorf("ended as %q: %s", r.Outcome, r.Reason)
			}
			return "edge redeemed it through the NAT and switched to its own key", err
		}},
		{"connected", l.awaitConnected},
		{"identity", l.awaitIdentities},
		{"edge → cloud", func(ctx context.Context) (string, error) { return list(ctx, l.Edge, l.Cloud) }},
		{"cloud → edge", func(ctx context.Context) (string, error) { return list(ctx, l.Cloud, l.Edge) }},
		{"checks", l.awaitVerdicts},
	}
	for _, s := range steps {
		start := time.Now()
		stepCtx, cancel := context.WithTimeout(ctx, stepLimit)
		detail, err := s.do(stepCtx)
		cancel()
		if err != nil {
			detail = err.Error()
		}
		report(api.LabStep{Name: s.name, OK: err == nil, Seconds: time.Since(start).Seconds(), Detail: detail})
		if err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
	}
	return nil
}

// Statuses are those of cloud and edge.
func (l *Lab) Statuses(ctx context.Context) ([]api.Status, error) {
	var out []api.Status
	for _, s := range []*Site{l.Cloud, l.Edge} {
		st, err := s.Gateway.Status(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// awaitBoth waits until every peer of both gateways satisfies ready, which says what is
// missing otherwise.
func (l *Lab) awaitBoth(ctx context.Context, ready func(api.PeerStatus) string) ([]api.Status, error) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		all, err := l.Statuses(ctx)
		if err != nil {
			return nil, err
		}
		missing := ""
		for _, s := range all {
			if len(s.Peers) == 0 {
				missing = s.Gateway.Name + " has no peer"
			}
			for _, p := range s.Peers {
				if m := ready(p); m != "" {
					missing = fmt.Sprintf("%s → %s: %s", s.Gateway.Name, p.Name, m)
				}
			}
		}
		if missing == "" {
			return all, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, errors.New(missing)
		}
	}
}

func (l *Lab) awaitConnected(ctx context.Context) (string, error) {
	all, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
		if p.State != api.StateConnected || p.Path.Kind != api.PathDirect {
			return fmt.Sprintf("%s, path %s", p.State, p.Path.Kind)
		}
		return ""
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("both ways, direct; cloud sees edge at %s, the NAT's address", all[0].Peers[0].Path.Remote), nil
}

func (l *Lab) awaitIdentities(ctx context.Context) (string, error) {
	_, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
		if p.Identity == nil {
			return "no identity yet"
		}
		return ""
	})
	return "each gateway issued the other a client certificate for its API server", err
}

func (l *Lab) awaitVerdicts(ctx context.Context) (string, error) {
	_, err := l.awaitBoth(ctx, func(p api.PeerStatus) string {
		out := p.Reachability.Outbound
		for target, v := range map[string]api.Verdict{"auth": out.Auth, "apiServer": out.APIServer, "gateway": out.Gateway} {
			if v.Verdict != api.OK {
				return fmt.Sprintf("%s is %s (%s) %s", target, v.Verdict, v.Code, v.Cause)
			}
		}
		return ""
	})
	return "auth, API server and gateway are ok both ways", err
}

// list asks the other cluster's API server for its namespaces as kubectl would: through
// the local listener, with the CA and server name the peer announced and the identity
// it issued.
func list(ctx context.Context, from, to *Site) (string, error) {
	k, err := from.Gateway.Kubeconfig(ctx, to.Name)
	if err != nil {
		return "", err
	}
	c, err := from.Gateway.Credential(ctx, to.Name)
	if err != nil {
		return "", err
	}
	cert, err := tls.X509KeyPair([]byte(c.ClientCertificate), []byte(c.ClientKey))
	if err != nil {
		return "", fmt.Errorf("load the issued certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(k.CAData)) {
		return "", errors.New("the peer announced no CA for its API server")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: k.ServerName, Certificates: []tls.Certificate{cert},
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.Server+"/api/v1/namespaces", nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the API server of %s answered %s", to.Name, resp.Status)
	}
	var namespaces struct {
		Items []struct {
			Metadata struct{ Name string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&namespaces); err != nil {
		return "", fmt.Errorf("read the list: %w", err)
	}
	names := make([]string, 0, len(namespaces.Items))
	for _, i := range namespaces.Items {
		names = append(names, i.Metadata.Name)
	}
	user := "postern:peer:" + from.Name
	if to.API.Requests(user) == 0 {
		return "", fmt.Errorf("the API server of %s saw no request of user %s", to.Name, user)
	}
	return fmt.Sprintf("namespaces of %s through %s as %s: %v", to.Name, k.Server, user, names), nil
}
