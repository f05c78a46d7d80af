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

// demonstration is the default: invite, join, identities, and a list request through the tunnel
// in each direction.
func (l *Lab) demonstration() []step {
	steps := []step{l.invite(), {"join", "edge redeems the ticket", func(ctx context.Context) (string, error) {
		return "edge redeemed it through the NAT and switched to its own key", l.join(ctx)
	}}, {"connected", "both wait for an authenticated answer", l.awaitConnected}}
	return append(steps, l.apiServers()...)
}

// apiServers shows what a peering is for.
func (l *Lab) apiServers() []step {
	return []step{
		{"identity", "each asks the other for a client certificate", l.awaitIdentities},
		{"edge → cloud", "edge lists cloud's namespaces", func(ctx context.Context) (string, error) { return list(ctx, l.Edge, l.Cloud) }},
		{"cloud → edge", "cloud lists edge's namespaces", func(ctx context.Context) (string, error) { return list(ctx, l.Cloud, l.Edge) }},
		{"checks", "both check what they can reach", l.awaitVerdicts},
	}
}

// invite makes cloud create a ticket, which join redeems.
func (l *Lab) invite() step {
	return step{"invite", "cloud makes a ticket", func(ctx context.Context) (string, error) {
		allow := []string{api.ServiceAuth, api.ServiceAPIServer}
		if l.load.echo != nil {
			allow = append(allow, echoService)
		}
		r, err := l.Cloud.Gateway.Invite(ctx, api.InviteRequest{Name: l.Edge.Name, Allow: allow})
		l.ticket = r.Ticket
		detail := fmt.Sprintf("cloud made a ticket of %d characters, good until %s", len(r.Ticket), r.ExpiresAt.Format(time.TimeOnly))
		for _, c := range r.Candidates {
			if c.Source == api.SourceRelay {
				detail += "; it names cloud's address at the relay, " + c.Address
			}
		}
		return detail, err
	}}
}

// join makes edge redeem the ticket.
func (l *Lab) join(ctx context.Context) error {
	r, err := l.Edge.Gateway.Join(ctx, l.joinRequest())
	if err == nil && r.Outcome != api.JoinConnected {
		err = fmt.Errorf("ended as %q: %s", r.Outcome, r.Reason)
	}
	return err
}

func (l *Lab) joinRequest() api.JoinRequest {
	r := api.JoinRequest{Ticket: l.ticket, Name: l.Cloud.Name, Allow: []string{api.ServiceAuth, api.ServiceAPIServer}, Wait: api.Duration(l.stepLimit())}
	if l.load.echo != nil {
		r.Local = map[string]string{echoService: "127.0.0.1:0"}
	}
	return r
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

// list lists the namespaces of the other cluster like kubectl: through the local listener, with
// the CA and server name that the peer announced and the identity that it issued.
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
	user, err := userAt(ctx, from, to)
	if err != nil {
		return "", err
	}
	if to.API.Requests(user) == 0 {
		return "", fmt.Errorf("the API server of %s saw no request of user %s", to.Name, user)
	}
	return fmt.Sprintf("namespaces of %s through %s as %s: %v", to.Name, k.Server, user, names), nil
}

// userAt returns a gateway's user name at another's API server, according to its issued identity.
func userAt(ctx context.Context, from, to *Site) (string, error) {
	st, err := from.Gateway.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range st.Peers {
		if p.Name == to.Name && p.Identity != nil {
			return p.Identity.User, nil
		}
	}
	return "", fmt.Errorf("%s has no identity from %s", from.Name, to.Name)
}
