package egress_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/discovery/egress"
	"github.com/postern-dev/postern/testenv/pki"
)

// trusted is the authority that this process trusts instead of the system's.
var trusted *pki.CA

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "egress")
	if err == nil {
		trusted, err = pki.NewCA("proxies")
	}
	file := filepath.Join(dir, "ca.crt")
	if err == nil {
		err = os.WriteFile(file, trusted.CertPEM(), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("SSL_CERT_FILE", file)
	os.Setenv("SSL_CERT_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// An https proxy is asked inside TLS, and only if its certificate is valid.
func TestAProxyByTLS(t *testing.T) {
	other, err := pki.NewCA("others")
	if err != nil {
		t.Fatal(err)
	}
	for _, ca := range []*pki.CA{trusted, other} {
		pair, err := ca.Server("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		at := listen(t, func(c net.Conn) {
			secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}})
			r := bufio.NewReader(secure)
			if _, err := http.ReadRequest(r); err == nil {
				_, _ = io.WriteString(secure, "HTTP/1.1 200 OK\r\n\r\n")
				_, _ = io.Copy(secure, r)
			}
		})
		c, err := egress.New(egress.Proxy{URL: "https://" + at, Username: "edge", Password: "s3cret"}).DialContext(t.Context(), "tcp", "turn.example:443")
		if ca == other {
			var e *egress.Error
			if !errors.As(err, &e) || e.Failure != egress.NoProxy || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
				t.Errorf("of an authority that is not trusted: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := make([]byte, len("postern"))
		if _, err := io.WriteString(c, "postern"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "postern" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
