package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/testenv/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListNeedsACertificateOfTheAuthority(t *testing.T) {
	serving, clients, strangers := newCA(t, "serving"), newCA(t, "clients"), newCA(t, "strangers")
	s, err := Start(t.Context(), serving, clients.Pool(), "default", "shop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })

	get := func(path string, certs ...tls.Certificate) (int, string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: serving.Pool(), ServerName: ServerName,
			// Unlike Certificates, this sends the certificate even if the server lists other
			// authorities.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &certs[0], nil
			},
		}}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+s.Addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}

	if code, body, err := get("/livez"); code != 200 || body != "ok" {
		t.Errorf("/livez without a certificate: got %d %q %v, want 200 ok", code, body, err)
	}
	if code, _, err := get("/api/v1/namespaces"); code != http.StatusUnauthorized {
		t.Errorf("list without a certificate: got %d %v, want 401", code, err)
	}
	if _, _, err := get("/api/v1/namespaces", client(t, strangers, "alice")); err == nil {
		t.Error("list with a stranger's certificate: got a response, want a handshake error")
	}
	code, body, err := get("/api/v1/namespaces", client(t, clients, "alice"))
	if code != 200 || !strings.Contains(body, `"name":"shop"`) {
		t.Errorf("list with a certificate: got %d %q %v, want 200 and the namespaces", code, body, err)
	}
	if got := s.Requests("alice"); got != 1 {
		t.Errorf("requests of alice: got %d, want 1", got)
	}
}

func newCA(t *testing.T, name string) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func client(t *testing.T, ca *pki.CA, user string) tls.Certificate {
	t.Helper()
	p, err := ca.Client(pkix.Name{CommonName: user})
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
