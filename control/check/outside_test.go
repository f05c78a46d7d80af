package check

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/testenv/pki"
)

// site is a peer's site outside the tunnel: an authority and its servers on loopback.
type site struct {
	ca, other *pki.CA
}

func newSite(t *testing.T) site {
	t.Helper()
	var s site
	var err error
	if s.ca, err = pki.NewCA("site-ca"); err != nil {
		t.Fatal(err)
	}
	if s.other, err = pki.NewCA("other-ca"); err != nil {
		t.Fatal(err)
	}
	return s
}

// conf returns a server's TLS configuration with a certificate for the names.
func (s site) conf(t *testing.T, ca *pki.CA, names ...string) *tls.Config {
	t.Helper()
	pair, err := ca.Server(names...)
	return certified(t, pair, err)
}

// expired returns a configuration whose certificate expired an hour ago.
func (s site) expired(t *testing.T, names ...string) *tls.Config {
	t.Helper()
	now := time.Now()
	pair, err := s.ca.ServerBetween(now.Add(-48*time.Hour), now.Add(-time.Hour), names...)
	return certified(t, pair, err)
}

func certified(t *testing.T, pair pki.Pair, err error) *tls.Config {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
}

// serveTLS serves HTTPS on a free loopback port and returns its address.
func serveTLS(t *testing.T, conf *tls.Config, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS, s.Config.ErrorLog = conf, log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// listen answers connections to a free loopback port with a function.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// reset cuts a connection with a TCP reset once something has been sent.
func reset(c net.Conn) {
	_, _ = c.Read(make([]byte, 1))
	_ = c.(*net.TCPConn).SetLinger(0)
}

// greets sends first, and not TLS.
func greets(c net.Conn) {
	_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n")
	_, _ = io.Copy(io.Discard, c)
}

// closedPort returns a loopback address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// live answers like a healthy API server.
func live(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// answers answers every request with a status.
func answers(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// nameless returns a network that resolves nothing.
func nameless() Network {
	return Network{Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}}
}

// tellsTheReader fails unless there are a cause and a fix with the required content.
func tellsTheReader(t *testing.T, r verdict.Finding, cause, fix string) {
	t.Helper()
	if !strings.Contains(r.Verdict().Cause, cause) {
		t.Errorf("the cause does not name %q: %s", cause, r.Verdict().Cause)
	}
	if !strings.Contains(r.Verdict().Fix, fix) {
		t.Errorf("the fix does not name %q: %s", fix, r.Verdict().Fix)
	}
}
