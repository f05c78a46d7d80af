package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/testenv/pki"
)

func TestAuthVerdicts(t *testing.T) {
	hello := `{"version":"1.7","name":"cloud","offers":["auth","apiServer"],"somethingNew":1}`
	for _, c := range []struct {
		name    string
		serve   func(net.Conn)
		facts   func(*Facts)
		outcome api.Outcome
		code    catalogue.Code
		stage   string
	}{
		{"answers, with a newer minor version", says(body(hello)), nil, api.OK, "", ""},
		{"refuses", nil, nil, api.Error, catalogue.AuthRefused, StageTCP},
		{"accepts and says nothing", silent, nil, api.Error, catalogue.AuthTimeout, StageHTTP},
		{"closes without an answer", says(""), nil, api.Error, catalogue.AuthBroken, StageHTTP},
		{"is cut off within the body", says("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), nil, api.Error, catalogue.AuthBroken, StageHTTP},
		{"fails", says(status("500 Internal Server Error")), nil, api.Error, catalogue.AuthHTTP, StageHTTP},
		{"denies", says(status("403 Forbidden")), nil, api.Error, catalogue.AuthDenied, StageAuth},
		{"speaks another major version", says(body(`{"version":"2.0"}`)), nil, api.Error, catalogue.AuthVersion, StageAuth},
		{"offers nothing", says(body(`{"version":"1.0","name":"cloud","offers":[]}`)), nil, api.Off, catalogue.AuthOff, ""},
		{"is not HTTP", says("SSH-2.0-OpenSSH_9.9\r\n"), nil, api.Error, catalogue.AuthNotUnderstood, StageHTTP},
		{"is another web server", says(status("404 Not Found")), nil, api.Error, catalogue.AuthNotUnderstood, StageHTTP},
		{"is not JSON", says(body("<html>")), nil, api.Error, catalogue.AuthNotUnderstood, StageHTTP},
		{"has no version", says(body(`{"name":"cloud","offers":["auth"]}`)), nil, api.Error, catalogue.AuthNotUnderstood, StageHTTP},
		{"is a plain WireGuard peer", nil, func(f *Facts) { f.Stock = true }, api.Off, catalogue.AuthOff, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, f := newOverlay(t), facts()
				o.on(api.PortAuth, c.serve)
				if c.facts != nil {
					c.facts(&f)
				}
				start := time.Now()
				r, _ := Auth(t.Context(), o.Dial, f)
				checkVerdict(t, r, c.outcome, c.code, c.stage)
				if took := time.Since(start); took > Timeout {
					t.Errorf("took %s, at most %s is allowed", took, Timeout)
				}
				if c.code == catalogue.AuthVersion && !strings.Contains(r.Verdict().Cause, "2.0") {
					t.Errorf("the cause does not name the version: %s", r.Verdict().Cause)
				}
			})
		})
	}
}

func TestAuthGivesTheHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverlay(t)
		o.on(api.PortAuth, says(body(`{"version":"1.0","name":"cloud","offers":["auth"],"apiServer":{"serverName":"api"}}`)))
		r, hello := Auth(t.Context(), o.Dial, facts())
		if hello == nil || hello.Name != "cloud" || hello.APIServer == nil || hello.APIServer.ServerName != "api" {
			t.Errorf("got %+v", hello)
		}
		var stages []string
		for _, s := range r.Stages {
			stages = append(stages, s.Name+" "+string(s.Outcome))
		}
		if got, want := strings.Join(stages, ", "), "tcp ok, http ok, auth ok"; got != want {
			t.Errorf("stages: got %s, want %s", got, want)
		}
	})
}

func TestAPIServerVerdicts(t *testing.T) {
	live := says(body("ok"))
	demanding := func(a authorities) *tls.Config {
		c := a.conf.Clone()
		c.ClientAuth = tls.RequireAndVerifyClientCert
		return c
	}
	type setup struct {
		serve func(net.Conn)
		facts Facts
	}
	for _, c := range []struct {
		name    string
		make    func(a authorities, f Facts) setup
		outcome api.Outcome
		code    catalogue.Code
		stage   string
		cause   string // what the cause must name
	}{
		{"lives", func(a authorities, f Facts) setup {
			return setup{secure(demanding(a), live), f}
		}, api.OK, "", "", ""},
		{"lives and asks for no identity", func(a authorities, f Facts) setup {
			f.Identity = nil
			return setup{secure(a.conf, live), f}
		}, api.OK, "", "", ""},
		{"is not offered", func(a authorities, f Facts) setup {
			f.Offers = []string{api.ServiceAuth}
			return setup{secure(a.conf, live), f}
		}, api.Off, catalogue.APIServerOff, "", "cloud"},
		{"refuses", func(_ authorities, f Facts) setup {
			return setup{nil, f}
		}, api.Error, catalogue.APIServerRefused, StageTCP, "[fd12::1]:6443"},
		{"accepts and says nothing", func(_ authorities, f Facts) setup {
			return setup{silent, f}
		}, api.Error, catalogue.APIServerTimeout, StageTLS, "4s"},
		{"closes at once", func(_ authorities, f Facts) setup {
			return setup{func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }, f}
		}, api.Error, catalogue.APIServerBroken, StageTLS, "EOF"},
		{"speaks plain HTTP", func(_ authorities, f Facts) setup {
			return setup{func(c net.Conn) {
				buf := make([]byte, 4096)
				_, _ = c.Read(buf)
				_, _ = io.WriteString(c, status("400 Bad Request"))
			}, f}
		}, api.Error, catalogue.TLSFailed, StageTLS, "TLS"},
		{"shows a certificate of another authority", func(a authorities, f Facts) setup {
			f.CA = a.clients.CertPEM()
			return setup{secure(a.conf, live), f}
		}, api.Error, catalogue.TLSUnknownCA, StageTLS, "cluster-ca"},
		{"announced an authority that is none", func(a authorities, f Facts) setup {
			f.CA = []byte("not PEM")
			return setup{secure(a.conf, live), f}
		}, api.Error, catalogue.TLSUnknownCA, StageTLS, "no PEM"},
		{"shows a certificate for another name", func(a authorities, f Facts) setup {
			f.ServerName = "api.example.net"
			return setup{secure(a.conf, live), f}
		}, api.Error, catalogue.TLSWrongName, StageTLS, "valid for kubernetes.default.svc, 10.0.0.5, not for api.example.net"},
		{"shows a certificate of another authority for another name", func(a authorities, f Facts) setup {
			f.CA, f.ServerName = a.clients.CertPEM(), "api.example.net"
			return setup{secure(a.conf, live), f}
		}, api.Error, catalogue.TLSUnknownCA, StageTLS, "cluster-ca"},
		{"demands an identity that we have not", func(a authorities, f Facts) setup {
			f.Identity = nil
			return setup{secure(demanding(a), live), f}
		}, api.Error, catalogue.IdentityMissing, StageAuth, "cloud"},
		{"ends TLS over the identity", func(a authorities, f Facts) setup {
			c := demanding(a)
			c.ClientCAs = a.serving.Pool()
			return setup{secure(c, live), f}
		}, api.Error, catalogue.IdentityRejected, StageAuth, "certificate"},
		{"says 401 to an anonymous request", func(a authorities, f Facts) setup {
			f.Identity = nil
			return setup{secure(a.conf, says(status("401 Unauthorized"))), f}
		}, api.Error, catalogue.IdentityMissing, StageAuth, "401"},
		{"says 401 to the identity", func(a authorities, f Facts) setup {
			return setup{secure(a.conf, says(status("401 Unauthorized"))), f}
		}, api.Error, catalogue.APIServerUnauthorized, StageAuth, "401"},
		{"says 401 to an identity that has expired", func(a authorities, f Facts) setup {
			old := *a.identity
			leaf := *old.Leaf
			leaf.NotAfter = time.Now().Add(-time.Hour)
			old.Leaf = &leaf
			f.Identity = &old
			return setup{secure(a.conf, says(status("401 Unauthorized"))), f}
		}, api.Error, catalogue.IdentityExpired, StageAuth, "valid until"},
		{"says 403", func(a authorities, f Facts) setup {
			return setup{secure(a.conf, says(status("403 Forbidden"))), f}
		}, api.Warning, catalogue.APIServerForbidden, StageAuth, "403"},
		{"is ill", func(a authorities, f Facts) setup {
			return setup{secure(a.conf, says(status("500 Internal Server Error"))), f}
		}, api.Error, catalogue.APIServerHTTP, StageHTTP, "500"},
		{"is a login page", func(a authorities, f Facts) setup {
			return setup{secure(a.conf, says("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 6\r\n\r\n<html>")), f}
		}, api.Error, catalogue.APIServerHTTP, StageHTTP, "a web page"},
		{"redirects to one", func(a authorities, f Facts) setup {
			return setup{secure(a.conf, says(status("302 Found"))), f}
		}, api.Error, catalogue.APIServerHTTP, StageHTTP, "a redirection"},
		{"hangs after TLS", func(a authorities, f Facts) setup {
			return setup{secure(a.conf, silent), f}
		}, api.Error, catalogue.APIServerTimeout, StageHTTP, "4s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthorities(t, catalogue.DefaultServerName, "10.0.0.5")
				f := facts()
				f.CA, f.Identity = a.serving.CertPEM(), a.identity
				s := c.make(a, f)
				o := newOverlay(t)
				o.on(api.PortAPIServer, s.serve)
				r := APIServer(t.Context(), o.Dial, s.facts)
				checkVerdict(t, r, c.outcome, c.code, c.stage)
				if !strings.Contains(r.Verdict().Cause, c.cause) {
					t.Errorf("the cause does not name %q: %s", c.cause, r.Verdict().Cause)
				}
			})
		})
	}
}

// An API server that rejects an identity because of its own clock is not told to trust the issuer.
func TestAWrongClockRejectsIdentities(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead time.Duration // the server's clock
		clock bool
	}{
		{"the clocks agree", 0, false},
		{"it is behind, by less than the identity is old", -30 * time.Minute, false},
		{"it is behind, and the identity is not valid yet", -3 * time.Hour, true},
		{"it is ahead, and the identity has expired", 48 * time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, f := newAuthorities(t, catalogue.DefaultServerName), facts()
				identity := *a.identity
				leaf := *identity.Leaf
				leaf.NotBefore, leaf.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
				identity.Leaf = &leaf
				f.CA, f.Identity = a.serving.CertPEM(), &identity
				o := newOverlay(t)
				o.on(api.PortAPIServer, secure(a.conf, says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nDate: "+time.Now().Add(c.ahead).UTC().Format(http.TimeFormat)+"\r\n\r\n")))
				r := APIServer(t.Context(), o.Dial, f)
				checkVerdict(t, r, api.Error, catalogue.APIServerUnauthorized, StageAuth)
				if v := r.Verdict(); strings.Contains(v.Cause, "by its clock") != c.clock || strings.Contains(v.Fix, "client-ca-file") == c.clock {
					t.Errorf("it says %s; %s", v.Cause, v.Fix)
				}
			})
		})
	}
}

func TestExpiredServerCertificateNamesItsDates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorities(t, catalogue.DefaultServerName)
		time.Sleep(48 * time.Hour) // virtual: the certificate is valid for a day
		f, o := facts(), newOverlay(t)
		f.CA = a.serving.CertPEM()
		o.on(api.PortAPIServer, secure(a.conf, says(body("ok"))))
		r := APIServer(t.Context(), o.Dial, f)
		checkVerdict(t, r, api.Error, catalogue.TLSNotValidNow, StageTLS)
		leaf, err := x509.ParseCertificate(a.conf.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if want := leaf.NotAfter.UTC().Format(time.DateTime); !strings.Contains(r.Verdict().Cause, want) {
			t.Errorf("the cause does not name %s: %s", want, r.Verdict().Cause)
		}
	})
}

// An authority that has expired is named, not the server's certificate, which is still valid.
func TestAnExpiredAuthorityIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewCABetween(time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour), "old-ca")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := ca.ServerBetween(time.Now().Add(-47*time.Hour), time.Now().Add(24*time.Hour), catalogue.DefaultServerName)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		f := facts()
		f.CA = ca.CertPEM()
		r := askedOf(t, f, secure(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, says(body("ok"))))
		checkVerdict(t, r, api.Error, catalogue.TLSNotValidNow, StageTLS)
		if v := r.Verdict(); !strings.Contains(v.Cause, "the authority old-ca") || !strings.Contains(v.Fix, "renew that authority's certificate") {
			t.Errorf("got the cause %q and the fix %q", v.Cause, v.Fix)
		}
	})
}

// The name of an authority may say nothing: that of every cluster made by kubeadm is kubernetes.
func TestAuthoritiesWithOneNameAreToldApart(t *testing.T) {
	announced, signer := must(pki.NewCA("kubernetes"))(t), must(pki.NewCA("kubernetes"))(t)
	cert := must(must(signer.Server(catalogue.DefaultServerName))(t).TLS())(t)
	f := facts()
	f.CA = announced.CertPEM()
	r := askedOf(t, f, secure(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, silent))
	checkVerdict(t, r, api.Error, catalogue.TLSUnknownCA, StageTLS)
	id := keyID(must(x509.ParseCertificate(cert.Certificate[0]))(t).AuthorityKeyId)
	v := r.Verdict()
	if !strings.Contains(v.Cause, "signed by kubernetes (its key has the identifier "+id+"...), but cloud announces kubernetes, another authority with that name") ||
		!strings.Contains(v.Fix, "if that is the one with the identifier "+id) || !strings.Contains(v.Fix, "subjectKeyIdentifier") {
		t.Errorf("got the cause %q and the fix %q", v.Cause, v.Fix)
	}
}

// A server may speak TLS well, and show what is no server's certificate, or has no name that counts.
func TestACertificateThatIsNoServersIsNamed(t *testing.T) {
	ca := must(pki.NewCA("cluster-ca"))(t)
	for name, c := range map[string]struct {
		pair       pki.Pair
		code       catalogue.Code
		cause, fix string
		unfit      string // a fix that changes nothing
	}{
		"a client's": {must(ca.Client(pkix.Name{CommonName: "kubelet"}, catalogue.DefaultServerName))(t), catalogue.TLSFailed,
			"cannot be used for that: tls: failed to verify certificate: x509: certificate specifies an incompatible key usage", "serverAuth", "HTTPS port"},
		"without names": {must(ca.Unnamed("kube-apiserver"))(t), catalogue.TLSWrongName,
			"valid for no name, not for kubernetes.default.svc", "subject alternative name kubernetes.default.svc", "serverName"},
	} {
		f := facts()
		f.CA = ca.CertPEM()
		cert := must(c.pair.TLS())(t)
		r := askedOf(t, f, secure(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, silent))
		checkVerdict(t, r, api.Error, c.code, StageTLS)
		if v := r.Verdict(); !strings.Contains(v.Cause, c.cause) || !strings.Contains(v.Fix, c.fix) || strings.Contains(v.Fix, c.unfit) {
			t.Errorf("%s: got the cause %q and the fix %q", name, v.Cause, v.Fix)
		}
	}
}

// must returns a value that is needed for a test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// What an HTTP status says about who answered is told.
func TestAStatusTellsWhoAnswers(t *testing.T) {
	a := newAuthorities(t, catalogue.DefaultServerName)
	f := facts()
	f.CA, f.Identity = a.serving.CertPEM(), a.identity
	for status, want := range map[string]string{
		"404 Not Found": "another server", "407 Proxy Authentication Required": "a proxy", "429 Too Many Requests": "too many requests",
		"502 Bad Gateway": "load balancer", "503 Service Unavailable": "HTTP 503", "504 Gateway Timeout": "load balancer",
	} {
		r := askedOf(t, f, secure(a.conf, says("HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")))
		checkVerdict(t, r, api.Error, catalogue.APIServerHTTP, StageHTTP)
		if v := r.Verdict(); !strings.Contains(v.Cause, want) || strings.Contains(v.Fix, "livez?verbose") != (want == "HTTP 503") {
			t.Errorf("%s: got the cause %q and the fix %q", status, v.Cause, v.Fix)
		}
	}
}

func TestGatewayVerdicts(t *testing.T) {
	answered := func() error { return nil }
	for _, c := range []struct {
		name    string
		ping    func() error
		facts   func(*Facts)
		outcome api.Outcome
		code    catalogue.Code
		stage   string
	}{
		{"answers", answered, nil, api.OK, "", ""},
		{"answers before the handshake is noticed", answered, func(f *Facts) { f.LastHandshake = time.Time{} }, api.OK, "", ""},
		{"never answered", nil, func(f *Facts) { f.LastHandshake = time.Time{} }, api.Error, catalogue.PeerSilent, StageHandshake},
		{"has no endpoint", nil, func(f *Facts) { f.LastHandshake, f.Endpoints = time.Time{}, nil }, api.Error, catalogue.PeerMustDial, StageHandshake},
		{"went away", nil, func(f *Facts) { f.LastHandshake = time.Now().Add(-10 * time.Minute) }, api.Error, catalogue.HandshakeStale, StageHandshake},
		{"went away a moment ago, as probes show", nil, func(f *Facts) {
			f.NoPath, f.PathLost = "the last path failed", time.Now().Add(-10*time.Second)
		}, api.Error, catalogue.HandshakeStale, StageProbe},
		{"never answered a probe either", nil, func(f *Facts) {
			f.LastHandshake, f.NoPath = time.Time{}, "none of 5 addresses answers"
		}, api.Error, catalogue.PeerSilent, StageProbe},
		{"answers before the path is noticed", answered, func(f *Facts) { f.NoPath = "no candidate is known yet" }, api.OK, "", ""},
		{"fell silent a moment ago", nil, nil, api.Error, catalogue.Unanswered, StagePing},
		{"cannot be pinged at once", func() error { return errLost }, nil, api.Error, catalogue.Unanswered, StagePing},
		{"shakes hands but loses packets", nil, func(f *Facts) { f.LastHandshake = time.Now().Add(time.Second) }, api.Error, catalogue.PingLost, StagePing},
		{"waits for approval", nil, func(f *Facts) { f.Pending = true }, api.Warning, catalogue.AwaitingApproval, StageHandshake},
		{"has yet to approve this gateway", nil, func(f *Facts) {
			f.LastHandshake, f.Awaited = time.Time{}, true
			f.Candidates = []catalogue.Candidate{{Address: "10.7.7.7:51820", Source: api.SourceAdvertised}}
		}, api.Warning, catalogue.AwaitingApproval, StageHandshake},
		{"has yet to approve this gateway again, which it removed", nil, func(f *Facts) {
			f.LastHandshake, f.Awaited, f.Unverified = time.Time{}, true, Sight{At: time.Now().Add(-time.Second)}
		}, api.Warning, catalogue.AwaitingApproval, StageHandshake},
		{"has approved this gateway, which the peer's firewall shuts out", nil, func(f *Facts) {
			f.LastHandshake, f.Awaited, f.HeardUnanswered = time.Time{}, true, seen(publicCloud)
		}, api.Error, catalogue.NotHeardByPeer, StageProbe},
		{"has approved this gateway, which cannot answer", nil, func(f *Facts) {
			f.LastHandshake, f.Awaited, f.Initiated = time.Time{}, true, seen(publicCloud)
		}, api.Error, catalogue.PeerSilent, StageHandshake},
		{"has approved this gateway, and answers probes alone", nil, func(f *Facts) {
			f.LastHandshake, f.Awaited, f.Probed = time.Time{}, true, time.Now().Add(2*time.Second)
		}, api.Error, catalogue.PeerSilent, StageHandshake},
		{"approved this gateway and went away", nil, func(f *Facts) {
			f.LastHandshake, f.Awaited = time.Now().Add(-10*time.Minute), true
		}, api.Error, catalogue.HandshakeStale, StageHandshake},
		{"is a plain peer that shook hands", nil, func(f *Facts) { f.Stock, f.Address = true, netip.Addr{} }, api.OK, "", ""},
		{"is a plain peer that is silent", nil, func(f *Facts) {
			f.Stock, f.Address, f.LastHandshake = true, netip.Addr{}, time.Now().Add(-time.Hour)
		}, api.Unknown, catalogue.HandshakeStale, StageHandshake},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, f := newOverlay(t), facts()
				o.pings(c.ping)
				if c.facts != nil {
					c.facts(&f)
				}
				start := time.Now()
				checkVerdict(t, Gateway(t.Context(), o.Ping, f), c.outcome, c.code, c.stage)
				if took := time.Since(start); took > Timeout {
					t.Errorf("took %s, at most %s is allowed", took, Timeout)
				}
			})
		})
	}
}

// A silent peer has a verdict within 3 s, which says how certain it is. One that answers probes may
// be in a handshake.
func TestASilentPeerHasAVerdictSoon(t *testing.T) {
	for _, c := range []struct {
		name string
		seen func(f *Facts, since time.Duration)
		took time.Duration
		code catalogue.Code
		sure api.Confidence
	}{
		{"probes are not answered either", func(f *Facts, since time.Duration) {
			if since >= echoEvery {
				f.Path.Unanswered = time.Now().Add(echoEvery - since)
			}
		}, silence, catalogue.HandshakeStale, api.Tentative},
		{"the path is given up", func(f *Facts, _ time.Duration) { f.NoPath, f.PathLost = "the last path failed", time.Now() }, silence, catalogue.HandshakeStale, api.Likely},
		{"this machine has no route", func(f *Facts, _ time.Duration) { f.Unreachable = []Refusal{here(networkUnreachable)} }, silence, catalogue.NoRoute, api.Certain},
		{"probes are answered", func(f *Facts, _ time.Duration) { f.Probed = time.Now() }, Timeout, catalogue.PingLost, api.Likely},
		{"nothing more is known", func(*Facts, time.Duration) {}, silence, catalogue.Unanswered, api.Tentative},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := facts()
				f.LastHandshake, f.Endpoints = time.Now().Add(-time.Minute), []string{publicCloud}
				began, doubts := time.Now(), 0
				got := gateway(t.Context(), newOverlay(t).Ping, f, asking{
					again: func() Facts { now := f; c.seen(&now, time.Since(began)); return now },
					doubt: func() { doubts++ },
				})
				checkVerdict(t, got, api.Error, c.code, got.Stage)
				if took := time.Since(began); took != c.took || doubts == 0 || got.Verdict().Confidence != c.sure {
					t.Errorf("took %s with %d doubts, %s; want %s, %s", took, doubts, got.Verdict().Confidence, c.took, c.sure)
				}
			})
		})
	}
}

func TestALostPathIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reason = "the last path, 198.51.100.7:51820, failed: no answer to 34 probes in 10 s"
		f := facts()
		f.NoPath, f.PathLost = reason, time.Now().Add(-55*time.Second)
		v := Gateway(t.Context(), newOverlay(t).Ping, f).Verdict()
		if want := "no path to cloud has worked for 58s: " + reason; !strings.HasPrefix(v.Cause, want) {
			t.Errorf("got the cause %q, want %q", v.Cause, want)
		}
		if strings.Contains(v.Fix, "mtu") || !strings.Contains(v.Fix, "see there what it finds, which may name the cause: `postern check`") {
			t.Errorf("the fix does not fit: %s", v.Fix)
		}
		f.LastHandshake = time.Time{}
		if v = Gateway(t.Context(), newOverlay(t).Ping, f).Verdict(); !strings.Contains(v.Cause, ": "+reason) {
			t.Errorf("before the first handshake: got the cause %q, want the path finder's reason", v.Cause)
		}
	})
}

func TestOneLostPingIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverlay(t)
		var n atomic.Int32
		ping := func(ctx context.Context, _ netip.Addr, _ int) (time.Duration, error) {
			if n.Add(1) == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 7 * time.Millisecond, nil
		}
		r := Gateway(t.Context(), ping, facts())
		checkVerdict(t, r, api.OK, "", "")
		if r.Verdict().RTTSeconds != 0.007 {
			t.Errorf("RTT %v s, want that of the ping that was answered", r.Verdict().RTTSeconds)
		}
		o.wg.Wait()
	})
}

func TestTheRoundTripIsThatOfAnEchoWithoutAHandshake(t *testing.T) {
	const handshake, way = 207 * time.Millisecond, 20 * time.Millisecond
	for _, c := range []struct {
		name  string
		echos []time.Duration // 0 is lost
		last  time.Duration   // age of the last handshake; 0 is none
		want  time.Duration
		pings int
	}{
		{"with a session", []time.Duration{way}, time.Minute, way, 1},
		{"before the first handshake", []time.Duration{handshake, way}, 0, way, 2},
		{"with a session that is over", []time.Duration{handshake, way}, 4 * time.Minute, way, 2},
		{"with a session that ends during the check", []time.Duration{handshake, way}, sessionLife - time.Second, way, 2},
		{"with a session that the peer has forgotten", []time.Duration{0, handshake, handshake, handshake, way}, time.Minute, way, 2 + moreEchoes},
		{"when the second echo is lost", []time.Duration{handshake, 0}, 0, handshake, 2},
		{"when the second echo is late", []time.Duration{handshake, 3 * handshake}, 0, handshake, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int32
				ping := func(ctx context.Context, _ netip.Addr, _ int) (time.Duration, error) {
					rtt := c.echos[min(int(sent.Add(1)), len(c.echos))-1]
					if rtt == 0 {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					return rtt, nil
				}
				f := facts()
				f.LastHandshake = time.Time{}
				if c.last > 0 {
					f.LastHandshake = time.Now().Add(-c.last)
				}
				r := Gateway(t.Context(), ping, f)
				checkVerdict(t, r, api.OK, "", "")
				if got := time.Duration(r.Verdict().RTTSeconds * float64(time.Second)).Round(time.Millisecond); got != c.want || int(sent.Load()) != c.pings {
					t.Errorf("got %s with %d pings, want %s with %d", got, sent.Load(), c.want, c.pings)
				}
			})
		})
	}
}

// A check starts from observations. Verdicts, including those of peers, are combined with its
// findings afterwards and are not requested in between, or each side would wait for the other.
func TestACheckStartsFromNoVerdict(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(path string, of reflect.Type)
	look = func(path string, of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		if of.PkgPath() == reflect.TypeFor[verdict.Finding]().PkgPath() || of == reflect.TypeFor[api.Verdict]() {
			t.Errorf("%s is a %s", path, of)
		}
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			look(path, of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				look(path+"."+of.Field(i).Name, of.Field(i).Type)
			}
		}
	}
	look("Facts", reflect.TypeFor[Facts]())
	look("Own", reflect.TypeFor[Own]())
	if len(seen) < 20 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}
