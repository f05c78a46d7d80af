package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// outside is a gateway's auth outside the tunnel.
type outside struct {
	*site
	tokens *DirectTokens
	handle *OutOfBand
	// url and address are where it listens, ca is the authority of its certificate; empty without
	// TLS.
	url, address string
	ca           []byte
}

func newOutside(t *testing.T, change func(*ServerOptions)) *outside {
	t.Helper()
	o := &outside{site: serve(t, change)}
	var err error
	if o.tokens, err = NewDirectTokens(peer.PrivateKeyFromBytes([32]byte{1})); err != nil {
		t.Fatal(err)
	}
	o.handle = o.srv.OutOfBand(o.tokens)
	return o
}

// listen serves until the test ends.
func (o *outside) listen(t *testing.T, ln net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.handle.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// serveOutside serves with TLS, and issues identities.
func serveOutside(t *testing.T) *outside {
	t.Helper()
	ca := loadCA(t, nil)
	o := newOutside(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
	var file *FileCertificate
	file, o.ca = certificate(t)
	ln := newTLSListener(t, file)
	o.address = ln.Addr().String()
	o.url = "https://" + o.address
	o.listen(t, ln)
	return o
}

// certificate returns one for 127.0.0.1, and its authority's.
func certificate(t *testing.T) (file *FileCertificate, ca []byte) {
	t.Helper()
	authority, err := pki.NewCA("outside")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := pair.Write(t.TempDir(), "auth")
	if err != nil {
		t.Fatal(err)
	}
	if file, err = LoadCertificate(certFile, keyFile, nil); err != nil {
		t.Fatal(err)
	}
	return file, authority.CertPEM()
}

func newTLSListener(t *testing.T, f *FileCertificate) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return f.Listen(ln)
}

func (o *outside) token(t *testing.T, k peer.PublicKey, at time.Time) Token {
	t.Helper()
	token, _, err := o.tokens.Make(k, at, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (o *outside) direct(t *testing.T, url string, token Token) *Client {
	t.Helper()
	c, err := NewDirectClient(DirectOptions{URL: url, CA: o.ca, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTokensMakePeersKnownOutsideTheTunnel(t *testing.T) {
	o := serveOutside(t)
	c := o.direct(t, o.url, o.token(t, edgeKey, time.Now()))
	h, err := c.Hello(t.Context())
	if err != nil || h.Name != "cloud" || len(h.Offers) == 0 {
		t.Errorf("hello: %+v, %v", h, err)
	}
	_, csrPEM, err := keyAndCSR("")
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.AnyIdentity(t.Context(), csrPEM)
	if err != nil || len(g.CertificatePEM) == 0 {
		t.Fatalf("identity: %v", err)
	}
	inband, err := o.client(edgeKey).AnyIdentity(t.Context(), csrPEM)
	if err != nil || !bytes.Equal(inband.CertificatePEM, g.CertificatePEM) {
		t.Errorf("inside the tunnel the same request gets another: %v", err)
	}
	if issues := o.log.events(audit.Issue); len(issues) != 1 || issues[0]["peer"] != "edge" {
		t.Errorf("audit: %v", issues)
	}
}

// An Ingress that terminates TLS changes nothing for either side, except that it must be trusted.
func TestTLSMayEndBefore(t *testing.T) {
	o := serveOutside(t)
	plain := httptest.NewServer(o.handle)
	defer plain.Close()
	back, err := url.Parse(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(back))
	defer front.Close()
	o.ca = pemOf(t, "CERTIFICATE", front.Certificate().Raw, nil)
	u, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := o.direct(t, u.String(), o.token(t, edgeKey, time.Now()))
	if h, err := c.Hello(t.Context()); err != nil || h.Name != "cloud" {
		t.Errorf("hello: %+v, %v", h, err)
	}
	if _, err := o.direct(t, u.String(), "nonsense").Hello(t.Context()); !errors.Is(err, ErrDenied) {
		t.Errorf("without a good token: %v", err)
	}
}

// All callers without a valid token get the same answer, regardless of the reason.
func TestStrangersAreToldNothing(t *testing.T) {
	o := serveOutside(t)
	good := o.token(t, edgeKey, time.Now())
	header, rest, _ := strings.Cut(string(good), ".")
	payload, signature, _ := strings.Cut(rest, ".")
	other, err := NewDirectTokens(peer.PrivateKeyFromBytes([32]byte{1: 2}))
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := other.Make(edgeKey, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	later := base64.RawURLEncoding.EncodeToString(bytes.Replace(claims, []byte(`"exp":1`), []byte(`"exp":9`), 1))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	var answers []string
	for name, authorization := range map[string]string{
		"none":            "",
		"another scheme":  "Basic " + string(good),
		"no token":        "Bearer hello",
		"expired":         "Bearer " + string(o.token(t, edgeKey, time.Now().Add(-2*time.Hour))),
		"of the future":   "Bearer " + string(o.token(t, edgeKey, time.Now().Add(2*time.Hour))),
		"no peer":         "Bearer " + string(o.token(t, peer.PublicKey{99}, time.Now())),
		"another gateway": "Bearer " + string(foreign),
		"prolonged":       "Bearer " + header + "." + later + "." + signature,
		"unsigned":        "Bearer " + none + "." + payload + ".",
		"too long":        "Bearer " + strings.Repeat("a", 7<<10),
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, pathIdentity, nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		o.handle.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %d", name, w.Code)
		}
		answers = append(answers, w.Body.String())
	}
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("answers differ: %q and %q", a, answers[0])
		}
	}
	for _, piece := range []string{string(good), signature, string(foreign)} {
		if strings.Contains(o.log.String(), piece) {
			t.Error("a token is in the log")
		}
	}
	if n := len(o.log.events(audit.Issue)); n != 0 {
		t.Errorf("%d identities were issued", n)
	}
}

func TestStrangersAreBoundedAndPeersAreNot(t *testing.T) {
	o := serveOutside(t)
	ask := func(token Token) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, HelloPath, nil)
		r.Header.Set("Authorization", "Bearer "+string(token))
		w := httptest.NewRecorder()
		o.handle.ServeHTTP(w, r)
		return w.Code
	}
	codes := map[int]int{}
	for range strangerBurst + 20 {
		codes[ask("hello")]++
	}
	if codes[http.StatusUnauthorized] < strangerBurst || codes[http.StatusTooManyRequests] < 10 {
		t.Errorf("answers by code: %v", codes)
	}
	if code := ask(o.token(t, edgeKey, time.Now())); code != http.StatusOK {
		t.Errorf("a peer from the same address: %d", code)
	}
}

// Tickets, paths and reports are only available in tunnels.
func TestOnlyHelloAndIdentityAreOutside(t *testing.T) {
	o := serveOutside(t)
	for _, path := range []string{pathRedeem, pathPath, pathReport, "/"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+string(o.token(t, edgeKey, time.Now())))
		w := httptest.NewRecorder()
		o.handle.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Body)
		var e errorBody
		if err != nil || json.Unmarshal(body, &e) != nil || w.Code != http.StatusNotFound || e.Code != codeNotFound {
			t.Errorf("%s: %d %s %v", path, w.Code, body, err)
		}
	}
}

// A removed peer's token is invalid.
func TestRemovedPeersHaveNoTokens(t *testing.T) {
	o := serveOutside(t)
	token := o.token(t, edgeKey, time.Now())
	o.dir.mu.Lock()
	delete(o.dir.callers, peer.OverlayAddr(edgeKey))
	o.dir.mu.Unlock()
	if _, err := o.direct(t, o.url, token).Hello(t.Context()); !errors.Is(err, ErrDenied) {
		t.Errorf("got %v, want ErrDenied", err)
	}
}

// Removing a peer invalidates a leaked token, even if the peer is added again with the same key.
func TestTokensEndWithThePeerThoughItComesAgain(t *testing.T) {
	o := serveOutside(t)
	came := time.Now().Add(-time.Minute)
	o.dir.mu.Lock()
	c := o.dir.callers[peer.OverlayAddr(edgeKey)]
	c.NotBefore = came
	o.dir.callers[peer.OverlayAddr(edgeKey)] = c
	o.dir.mu.Unlock()
	for name, at := range map[string]struct {
		made time.Time
		want error
	}{
		"made before it was removed": {came.Add(-time.Hour / 2), ErrDenied},
		"made before it came":        {came.Add(-2 * time.Second), ErrDenied},
		"made as it came":            {came, nil},
		"made now":                   {time.Now(), nil},
	} {
		if _, err := o.direct(t, o.url, o.token(t, edgeKey, at.made)).Hello(t.Context()); !errors.Is(err, at.want) {
			t.Errorf("%s: got %v, want %v", name, err, at.want)
		}
	}
	if !strings.Contains(o.log.String(), "older than the peer") {
		t.Error("the log does not say why")
	}
}

// The token is a secret: it must not be sent to a server before verifying its certificate.
func TestTokenIsSentOnlyToWhoProvesItself(t *testing.T) {
	o := serveOutside(t)
	asked := make(chan struct{}, 1)
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	other.Config.ErrorLog = nil
	other.StartTLS()
	defer other.Close()
	if _, err := o.direct(t, other.URL, o.token(t, edgeKey, time.Now())).Hello(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	select {
	case <-asked:
		t.Error("a request was sent")
	default:
	}
}

func FuzzDirectToken(f *testing.F) {
	d, err := NewDirectTokens(peer.PrivateKeyFromBytes([32]byte{1}))
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	good, _, err := d.Make(edgeKey, now, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(good))
	f.Add("a.b.c")
	f.Add(strings.Replace(string(good), ".", "..", 1))
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := d.check(Token(text), now); err == nil && (text != string(good) || got.key != edgeKey) {
			t.Errorf("%q is good, for %v", text, got.key)
		}
	})
}
