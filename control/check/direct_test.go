package check

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/testenv/apiserver"
)

const goodToken = "token-of-edge"

// jwt returns a token with an expiry.
func jwt(expires time.Time) Token {
	enc := base64.RawURLEncoding.EncodeToString
	return Token(enc([]byte(`{"alg":"none"}`)) + "." + enc(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix())) + ".sig")
}

// authSite answers like auth outside the tunnel: only for a known token.
func authSite(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != auth.HelloPath:
		w.WriteHeader(http.StatusNotFound)
	case r.Header.Get("Authorization") != "Bearer "+goodToken:
		w.WriteHeader(http.StatusUnauthorized)
	default:
		_, _ = io.WriteString(w, `{"version":"1.0","name":"cloud","offers":["auth","apiServer"]}`)
	}
}

func TestAuthOutsideTheTunnel(t *testing.T) {
	s := newSite(t)
	right := func() *tls.Config { return s.conf(t, s.ca, "127.0.0.1") }
	https := func(addr string) string { return "https://" + addr }
	for _, c := range []struct {
		name       string
		url        func() string
		net        Network
		token      Token
		outcome    api.Outcome
		code       catalogue.Code
		stage      string
		cause, fix string
	}{
		{"works", func() string { return https(serveTLS(t, right(), authSite)) }, Network{}, goodToken,
			api.OK, "", "", "", ""},
		{"refuses", func() string { return https(closedPort(t)) }, Network{}, goodToken,
			api.Error, catalogue.AuthURLUnreachable, StageTCP, "nothing listens at https://127.0.0.1:", "correct spec.peers[name=cloud].outOfBand.authURL"},
		{"has an unknown name", func() string { return "https://auth.example.invalid:8443" }, nameless(), goodToken,
			api.Error, catalogue.AuthURLUnreachable, StageDNS, "https://auth.example.invalid:8443, the URL for auth of cloud, does not resolve", "resolv.conf"},
		{"is given without TLS", func() string { return "http://auth.example.net" }, nameless(), goodToken,
			api.Error, catalogue.AuthURLUnreachable, StageDNS, "want https://", "set spec.peers[name=cloud].outOfBand.authURL to https://HOST:PORT"},
		{"shows a certificate of another authority", func() string { return https(serveTLS(t, s.conf(t, s.other, "127.0.0.1"), authSite)) }, Network{}, goodToken,
			api.Error, catalogue.TLSUnknownCA, StageTLS, "signed by other-ca, but spec.peers[name=cloud].outOfBand.caFile holds site-ca", "here set spec.peers[name=cloud].outOfBand.caFile"},
		{"shows a certificate for another name", func() string { return https(serveTLS(t, s.conf(t, s.ca, "auth.example.net"), authSite)) }, Network{}, goodToken,
			api.Error, catalogue.TLSWrongName, StageTLS, "valid for auth.example.net, not for 127.0.0.1", "here set the host in spec.peers[name=cloud].outOfBand.authURL to auth.example.net"},
		{"shows somebody else's certificate for another name", func() string { return https(serveTLS(t, s.conf(t, s.other, "auth.evil.example"), authSite)) }, Network{}, goodToken,
			api.Error, catalogue.TLSUnknownCA, StageTLS, "signed by other-ca, but spec.peers[name=cloud].outOfBand.caFile holds site-ca", "here set spec.peers[name=cloud].outOfBand.caFile"},
		{"shows a certificate that ran out", func() string { return https(serveTLS(t, s.expired(t, "127.0.0.1"), authSite)) }, Network{}, goodToken,
			api.Error, catalogue.TLSNotValidNow, StageTLS, "auth of cloud at https://127.0.0.1:", "at cloud, renew the certificate"},
		{"speaks no TLS", func() string { return https(listen(t, greets)) }, Network{}, goodToken,
			api.Error, catalogue.TLSFailed, StageTLS, "TLS with auth of cloud at https://127.0.0.1:", "spec.peers[name=cloud].outOfBand.authURL leads to an HTTPS port"},
		{"resets connections", func() string { return https(listen(t, reset)) }, Network{}, goodToken,
			api.Error, catalogue.AuthBroken, StageTLS, "reset", "log of the gateway of cloud"},
		{"wants a token", func() string { return https(serveTLS(t, right(), authSite)) }, Network{}, "",
			api.Error, catalogue.AuthTokenRejected, StageAuth, "requires a token, and none is configured", "set spec.peers[name=cloud].outOfBand.tokenFile"},
		{"does not know the token", func() string { return https(serveTLS(t, right(), authSite)) }, Network{}, "another",
			api.Error, catalogue.AuthTokenRejected, StageAuth, "does not accept the token (HTTP 401)", "`postern peer token NAME`"},
		{"is shown a token that ran out", func() string { return https(serveTLS(t, right(), authSite)) }, Network{}, jwt(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)),
			api.Error, catalogue.AuthTokenRejected, StageAuth, "valid until 2026-03-04 05:06:07 UTC", "`postern peer token NAME`"},
		{"denies", func() string { return https(serveTLS(t, right(), answers(403))) }, Network{}, goodToken,
			api.Error, catalogue.AuthDenied, StageAuth, "outside the tunnel denied /v1/hello with HTTP 403", "`postern peer allow NAME auth,apiServer`"},
		{"is something else", func() string { return https(serveTLS(t, right(), answers(404))) }, Network{}, goodToken,
			api.Error, catalogue.AuthNotUnderstood, StageHTTP, "is not the auth service of cloud", "spec.peers[name=cloud].outOfBand.authURL"},
		{"fails", func() string { return https(serveTLS(t, right(), answers(502))) }, Network{}, goodToken,
			api.Error, catalogue.AuthHTTP, StageHTTP, "HTTP 502", "log of the gateway of cloud"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := facts()
			f.Direct = DirectFacts{AuthURL: c.url(), CA: s.ca.CertPEM(), Token: c.token}
			r, made := AuthDirect(t.Context(), c.net, f)
			if !made {
				t.Fatal("it was not tried")
			}
			checkDirect(t, r, NameAuthDirect, c.outcome, c.code, c.stage)
			tellsTheReader(t, r, c.cause, c.fix)
			if strings.Contains(fmt.Sprintf("%+v %v", r, f), goodToken) {
				t.Error("the token is in the result")
			}
		})
	}
}

// checkDirect compares name, outcome, code and stage of a check outside the tunnel.
func checkDirect(t *testing.T, r verdict.Finding, name string, o api.Outcome, c catalogue.Code, stage string) {
	t.Helper()
	v := r.Verdict()
	if r.Name != name || v.Verdict != o || v.Code != string(c) || v.Stage != stage || v.Via != verdict.ViaDirect {
		t.Errorf("got %s: %s %s at %q by %s (%s), want %s: %s %s at %q by %s", r.Name, v.Verdict, v.Code, v.Stage, v.Via, v.Cause, name, o, c, stage, verdict.ViaDirect)
	}
	if (v.Cause == "" || v.Fix == "") != (o == api.OK) {
		t.Errorf("%s verdict has cause %q and fix %q", o, v.Cause, v.Fix)
	}
}

func TestNothingIsTriedOutsideWithoutAURL(t *testing.T) {
	for name, f := range map[string]func(context.Context, Network, Facts) (verdict.Finding, bool){"auth": AuthDirect, "API server": APIServerDirect} {
		if r, made := f(t.Context(), nameless(), facts()); made {
			t.Errorf("%s was tried: %+v", name, r)
		}
	}
}

func TestAURLIsShownWithoutItsSecrets(t *testing.T) {
	for raw, want := range map[string]string{
		"https://edge:planted@auth.example.net/x?token=planted": "https://auth.example.net/x, the URL for auth of cloud, cannot be used",
		"http://auth.example.net?token=planted#planted":         "http://auth.example.net, the URL",
		"https://auth.example.net:99999":                        "https://auth.example.net:99999, the URL",
		"%planted":                                              "what is configured, the URL",
		"auth.example.net:8443":                                 "what is configured, the URL",
	} {
		f := facts()
		f.Direct.AuthURL = raw
		r, _ := AuthDirect(t.Context(), nameless(), f)
		checkDirect(t, r, NameAuthDirect, api.Error, catalogue.AuthURLUnreachable, StageDNS)
		tellsTheReader(t, r, want, "set spec.peers[name=cloud].outOfBand.authURL to https://HOST:PORT")
		if strings.Contains(r.Verdict().Cause+r.Verdict().Fix, "planted") {
			t.Errorf("%s: the cause shows a secret: %s", raw, r.Verdict().Cause)
		}
	}
}

// A token is only sent to a server whose certificate verifies.
func TestATokenIsNotSentToAServerThatDoesNotVerify(t *testing.T) {
	s := newSite(t)
	var got atomic.Int32
	count := func(w http.ResponseWriter, r *http.Request) { got.Add(1) }
	for name, conf := range map[string]*tls.Config{
		"another authority": s.conf(t, s.other, "127.0.0.1"),
		"another name":      s.conf(t, s.ca, "auth.example.net"),
		"a past validity":   s.expired(t, "127.0.0.1"),
	} {
		url := "https://" + serveTLS(t, conf, count)
		f := facts()
		f.Direct = DirectFacts{AuthURL: url, APIServerURL: url, CA: s.ca.CertPEM(), Token: goodToken}
		f.Token = goodToken
		AuthDirect(t.Context(), Network{}, f)
		APIServerDirect(t.Context(), Network{}, f)
		if n := got.Load(); n != 0 {
			t.Fatalf("a server with %s got %d requests", name, n)
		}
	}
}

func TestARedirectionIsNotFollowed(t *testing.T) {
	s := newSite(t)
	var followed atomic.Int32
	elsewhere := serveTLS(t, s.conf(t, s.ca, "127.0.0.1"), func(http.ResponseWriter, *http.Request) { followed.Add(1) })
	url := "https://" + serveTLS(t, s.conf(t, s.ca, "127.0.0.1"), func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
	})
	f := facts()
	f.Direct = DirectFacts{AuthURL: url, APIServerURL: url, CA: s.ca.CertPEM(), Token: goodToken}
	r, _ := AuthDirect(t.Context(), Network{}, f)
	checkDirect(t, r, NameAuthDirect, api.Error, catalogue.AuthHTTP, StageHTTP)
	r, _ = APIServerDirect(t.Context(), Network{}, f)
	checkDirect(t, r, NameAPIServerDirect, api.Error, catalogue.APIServerHTTP, StageHTTP)
	if followed.Load() != 0 {
		t.Error("the redirection was followed")
	}
}

// kube answers like an API server: 401 to an unknown client, 403 to a known one without rights.
func kube(anonymous bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if len(r.TLS.PeerCertificates) > 0 {
			user = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		switch user {
		case "postern:peer:edge", goodToken:
			live(w, r)
		case "postern:peer:nobody", "token-of-nobody":
			w.WriteHeader(http.StatusForbidden)
		case "":
			if anonymous {
				live(w, r)
				return
			}
			fallthrough
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
}

// The API server gets the identity as a certificate or a token, and each way in which that can fail
// has its code.
func TestIdentitiesAtARealTLSServer(t *testing.T) {
	s := newSite(t)
	identity := func(name string) *tls.Certificate {
		pair, err := s.ca.Client(pkix.Name{CommonName: name})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		return &cert
	}
	past := identity("postern:peer:past")
	leaf := *past.Leaf
	leaf.NotAfter = time.Now().Add(-time.Minute)
	past.Leaf = &leaf
	conf := func(a tls.ClientAuthType, most uint16) *tls.Config {
		c := s.conf(t, s.ca, "127.0.0.1")
		c.ClientAuth, c.ClientCAs, c.MaxVersion = a, s.ca.Pool(), most
		return c
	}
	strangers := conf(tls.RequireAndVerifyClientCert, 0)
	strangers.ClientCAs = s.other.Pool()
	asked := conf(tls.VerifyClientCertIfGiven, 0)
	for _, c := range []struct {
		name    string
		conf    *tls.Config
		facts   func(*Facts)
		outcome api.Outcome
		code    catalogue.Code
		cause   string
	}{
		{"certificate accepted", asked, func(f *Facts) { f.Identity = identity("postern:peer:edge") }, api.OK, "", ""},
		{"token accepted", asked, func(f *Facts) { f.Token = goodToken }, api.OK, "", ""},
		{"certificate unknown", asked, func(f *Facts) { f.Identity = identity("stranger") }, api.Error, catalogue.APIServerUnauthorized, "does not trust the issuer"},
		{"token unknown", asked, func(f *Facts) { f.Token = "stale" }, api.Error, catalogue.APIServerUnauthorized, "HTTP 401: it does not know the token that cloud issued"},
		{"certificate without rights", asked, func(f *Facts) { f.Identity = identity("postern:peer:nobody") }, api.Warning, catalogue.APIServerForbidden, "HTTP 403"},
		{"token without rights", asked, func(f *Facts) { f.Token = "token-of-nobody" }, api.Warning, catalogue.APIServerForbidden, "HTTP 403"},
		{"certificate expired", asked, func(f *Facts) { f.Identity = past }, api.Error, catalogue.IdentityExpired, leaf.NotAfter.UTC().Format(time.DateTime)},
		{"token expired", asked, func(f *Facts) { f.Token, f.TokenExpires = "stale", leaf.NotAfter }, api.Error, catalogue.IdentityExpired, leaf.NotAfter.UTC().Format(time.DateTime)},
		{"none, 401", asked, nil, api.Error, catalogue.IdentityMissing, "HTTP 401"},
		{"none, demanded by TLS 1.3", conf(tls.RequireAndVerifyClientCert, tls.VersionTLS13), nil, api.Error, catalogue.IdentityMissing, "certificate required"},
		{"none, demanded by TLS 1.2", conf(tls.RequireAndVerifyClientCert, tls.VersionTLS12), nil, api.Error, catalogue.IdentityMissing, "cloud has issued no identity"},
		{"certificate rejected by TLS", strangers, func(f *Facts) { f.Identity = identity("postern:peer:edge") }, api.Error, catalogue.IdentityRejected, "over this gateway's certificate"},
		{"expired certificate rejected by TLS", strangers, func(f *Facts) { f.Identity = past }, api.Error, catalogue.IdentityExpired, leaf.NotAfter.UTC().Format(time.DateTime)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := facts()
			f.Direct = DirectFacts{APIServerURL: "https://" + serveTLS(t, c.conf, kube(false)), CA: s.ca.CertPEM()}
			if c.facts != nil {
				c.facts(&f)
			}
			r, _ := APIServerDirect(t.Context(), Network{}, f)
			stage := StageAuth
			if c.outcome == api.OK {
				stage = ""
			}
			checkDirect(t, r, NameAPIServerDirect, c.outcome, c.code, stage)
			tellsTheReader(t, r, c.cause, "")
		})
	}
}

// For a check the lab's stand-in is like a real API server.
func TestAPIServerOutsideTheTunnel(t *testing.T) {
	s := newSite(t)
	srv, err := apiserver.Start(t.Context(), s.ca, s.ca.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	f := facts()
	f.Direct = DirectFacts{APIServerURL: "https://" + strings.Replace(srv.Addr(), "127.0.0.1", "localhost", 1), CA: s.ca.CertPEM()}
	loopback := Network{Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}, nil
	}}
	r, _ := APIServerDirect(t.Context(), loopback, f)
	checkDirect(t, r, NameAPIServerDirect, api.OK, "", "")
	if r.Address != f.Direct.APIServerURL { // which the other way's verdict may name
		t.Errorf("asked at %q, want %s", r.Address, f.Direct.APIServerURL)
	}
	var stages []string
	for _, st := range r.Stages {
		stages = append(stages, st.Name)
		if st.Name == StageHTTP && st.Detail != "HTTP 200, v1.36.0-lab" {
			t.Errorf("the HTTP stage saw %q, want the version too", st.Detail)
		}
	}
	if got, want := strings.Join(stages, " "), "dns tcp tls http auth"; got != want {
		t.Errorf("got the stages %s, want %s", got, want)
	}
	f.Offers = []string{api.ServiceAuth}
	r, _ = APIServerDirect(t.Context(), loopback, f)
	checkDirect(t, r, NameAPIServerDirect, api.Off, catalogue.APIServerOff, "")
}

func TestAURLThatDoesNotAnswerIsGivenUpInTime(t *testing.T) {
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"to connections": func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		"in TLS": func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go silent(there)
			return here, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := facts()
				f.Direct = DirectFacts{AuthURL: "https://auth.example.net", APIServerURL: "https://api.example.net:6443"}
				n := Network{Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) { return dial(ctx) },
					Lookup: func(context.Context, string) ([]netip.Addr, error) {
						return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}, nil
					}}
				start := time.Now()
				got := tryOutside(t.Context(), n, f)()
				if took := time.Since(start); took > Timeout {
					t.Errorf("took %s, at most %s is allowed", took, Timeout)
				}
				if len(got) != 2 {
					t.Fatalf("got %d results, want 2", len(got))
				}
				if strings.HasPrefix(name, "to") {
					checkDirect(t, got[0], NameAuthDirect, api.Error, catalogue.AuthURLUnreachable, StageTCP)
					checkDirect(t, got[1], NameAPIServerDirect, api.Error, catalogue.APIServerURLUnreachable, StageTCP)
					tellsTheReader(t, got[1], "https://api.example.net:6443 ([2001:db8::1]:6443)", "`nft insert rule inet filter output ip6 daddr 2001:db8::1 tcp dport 6443 accept`")
					return
				}
				checkDirect(t, got[0], NameAuthDirect, api.Error, catalogue.AuthTimeout, StageTLS)
				checkDirect(t, got[1], NameAPIServerDirect, api.Error, catalogue.APIServerTimeout, StageTLS)
			})
		})
	}
}

// An unreachable address must not hide the next one.
func TestTheNextAddressIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")
		here, there := net.Pipe()
		defer there.Close()
		n := Network{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if to.Addr() == first {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return here, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), Timeout)
		defer cancel()
		c, to, err := n.dialAny(ctx, []netip.Addr{first, second}, 443)
		if err != nil || to.Addr() != second {
			t.Fatalf("got %s, %v, want %s", to, err, second)
		}
		c.Close()
	})
}
