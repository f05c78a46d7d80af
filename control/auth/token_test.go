package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

// mint returns a token like Kubernetes', with an unverified signature.
func mint(from time.Time, life time.Duration, id string) Token {
	claims, err := json.Marshal(map[string]any{
		"sub": "system:serviceaccount:postern-peers:postern-peer-edge", "jti": id,
		"iat": from.Unix(), "exp": from.Add(life).Unix(),
	})
	if err != nil {
		panic(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return Token(encode([]byte(`{"alg":"RS256"}`)) + "." + encode(claims) + "." + encode([]byte("signature")))
}

// mintIssuer is an Issuer of tokens.
type mintIssuer struct {
	mu     sync.Mutex
	life   time.Duration
	issued int
	err    error
}

func (*mintIssuer) Tokens() bool { return true }

func (*mintIssuer) User(s Subject) string { return "mint:" + s.IdentityName() }

func (m *mintIssuer) Issue(_ context.Context, _ Subject, _ []byte) (Issuance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return Issuance{}, m.err
	}
	m.issued++
	t := mint(time.Now(), m.life, fmt.Sprint("id-", m.issued))
	return Issuance{Token: t, Serial: t.ID(), NotAfter: time.Now().Add(m.life)}, nil
}

func (*mintIssuer) Revoke(Subject) Revocation { return Revocation{Recalled: true} }

func serveTokens(t *testing.T, m *mintIssuer) *site {
	t.Helper()
	return serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return m } })
}

func TestTokensAreIssuedToThoseWhoTakeThem(t *testing.T) {
	s := serveTokens(t, &mintIssuer{life: time.Hour})
	h, err := s.client(edgeKey).Hello(t.Context())
	if err != nil || !h.Can(CapabilityIdentity) || !h.Can(CapabilityToken) {
		t.Errorf("hello: %v, %v; want the capabilities %s and %s", h.Capabilities, err, CapabilityIdentity, CapabilityToken)
	}
	_, csrPEM, err := keyAndCSR("")
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.client(edgeKey).AnyIdentity(t.Context(), csrPEM)
	if err != nil || g.Token == "" || len(g.CertificatePEM) > 0 || g.NotAfter.IsZero() {
		t.Fatalf("got %v, %v; want a token", g, err)
	}
	issues := s.log.events(audit.Issue)
	if len(issues) != 1 || issues[0][audit.KeySerial] != "id-1" {
		t.Errorf("audit: %v, want one issue with the token's id", issues)
	}
	if strings.Contains(s.log.String(), string(g.Token)) {
		t.Error("the token was logged")
	}
}

// An older gateway does not say what it accepts. How it interprets the answer depends on the
// codes and statuses that it knows.
func TestAnOlderJoinerIsToldThatItCannotTakeTokens(t *testing.T) {
	m := &mintIssuer{life: time.Hour}
	s := serveTokens(t, m)
	_, csrPEM, err := keyAndCSR("")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.client(edgeKey).Identity(t.Context(), csrPEM)
	if !errors.Is(err, ErrIncompatible) || !strings.Contains(err.Error(), "upgrade the caller's gateway") {
		t.Errorf("got %v, want %v that says what to do", err, ErrIncompatible)
	}
	if m.issued != 0 {
		t.Error("got a token that the caller cannot use")
	}
	older := &Error{Status: http.StatusNotImplemented, Code: "unknown to it", Message: "upgrade"}
	if !errors.Is(older, ErrNoIssuer) {
		t.Errorf("an older joiner sees %v, want %v", older, ErrNoIssuer)
	}
}

func TestAnOlderGatewayIssuesCertificatesToThoseWhoTakeBoth(t *testing.T) {
	ca := loadCA(t, nil)
	s := serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
	_, csrPEM, err := keyAndCSR("")
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.client(edgeKey).AnyIdentity(t.Context(), csrPEM)
	if err != nil || g.Token != "" || len(g.CertificatePEM) == 0 {
		t.Errorf("got %v, %v; want a certificate", g, err)
	}
	if h, err := s.client(edgeKey).Hello(t.Context()); err != nil || h.Can(CapabilityToken) {
		t.Errorf("hello: %v, %v; want no capability %s", h.Capabilities, err, CapabilityToken)
	}
}

func TestKeeperRenewsTokensWithoutABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = time.Hour
		m := &mintIssuer{life: life}
		s := serveTokens(t, m)
		store := &cabinet{}
		k, stop := keepAny(t, s.client(edgeKey).AnyIdentity, store, nil)
		synctest.Wait()
		for minute := range 10 * 60 {
			id, ok := k.Current()
			if left := time.Until(id.NotAfter); !ok || id.Token == "" || left < life/5 {
				t.Fatalf("minute %d: %v, %v left; want a token with a fifth of its life before it", minute, id, left)
			}
			time.Sleep(time.Minute) // virtual
		}
		if m.issued < 14 || m.issued > 17 {
			t.Errorf("%d tokens in ten lives, want one in two thirds of a life", m.issued)
		}
		id, _ := k.Current()
		if id.User != "system:serviceaccount:postern-peers:postern-peer-edge" || id.TLS != nil {
			t.Errorf("got %v, TLS %v; want the account's name and no certificate", id, id.TLS != nil)
		}
		stop()

		// After a restart the stored one is used, and renewed when it is due.
		k, stop = keepAny(t, s.client(edgeKey).AnyIdentity, store, nil)
		again, ok := k.Current()
		if !ok || again.Token != id.Token || !again.NotAfter.Equal(id.NotAfter) || !again.NotBefore.Equal(id.NotBefore) {
			t.Errorf("after a restart: %v until %v, want the same until %v", again, again.NotAfter, id.NotAfter)
		}
		// A rejected token is replaced at once.
		issued := m.issued
		time.Sleep(10 * time.Second) // virtual; the allowance of identities
		k.Renew()
		synctest.Wait()
		if m.issued != issued+1 {
			t.Errorf("%d tokens were issued after a rejection, want 1", m.issued-issued)
		}
		stop()
		s.stop()
	})
}

func TestTokensOfUnknownMakeEndWhenTheIssuerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, asked := &cabinet{}, 0
		end := time.Now().Add(time.Hour)
		request := func(context.Context, []byte) (Grant, error) {
			asked++
			return Grant{Token: "opaque", NotAfter: end}, nil
		}
		k, stop := keepAny(t, request, store, nil)
		synctest.Wait()
		first, _ := k.Current()
		stop()
		time.Sleep(10 * time.Minute) // virtual
		k, stop = keepAny(t, request, store, nil)
		synctest.Wait()
		id, ok := k.Current()
		if !ok || !id.NotAfter.Equal(end) || !id.NotBefore.Equal(first.NotBefore) || asked != 1 {
			t.Errorf("got %v from %v, asked %d times; want the stored one from %v", id, id.NotBefore, asked, first.NotBefore)
		}
		stop()
	})
}

func TestKeeperTakesNoTokenThatIsNone(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, g := range map[string]Grant{
		"a line break":       {Token: "a\r\nX-Evil: 1", NotAfter: now.Add(time.Hour)},
		"a space":            {Token: "a b", NotAfter: now.Add(time.Hour)},
		"nothing but =":      {Token: "==", NotAfter: now.Add(time.Hour)},
		"= within":           {Token: "a=b", NotAfter: now.Add(time.Hour)},
		"endless":            {Token: Token(strings.Repeat("a", maxToken+1)), NotAfter: now.Add(time.Hour)},
		"no end":             {Token: "opaque"},
		"an end in the past": {Token: "opaque", NotAfter: now},
		"never valid":        {Token: mint(now, -time.Second, "x")},
		"two identities":     {Token: "opaque", CertificatePEM: []byte("x"), NotAfter: now.Add(time.Hour)},
		"none":               {NotAfter: now.Add(time.Hour)},
	} {
		if id, err := g.identity(nil, now); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: got %v, %v; want %v", name, id, err, ErrAnswer)
		}
	}
}

func TestTokensAreNotShown(t *testing.T) {
	token := mint(time.Unix(1_800_000_000, 0), time.Hour, "x")
	id, err := newTokenIdentity(token, time.Time{}, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	issued := Issuance{Token: token}
	granted := Grant{Token: token}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", slog.Any("token", token), slog.Any("identity", id), slog.Any("issued", issued))
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		fmt.Fprintf(&out, format+format+format+format, token, id, issued, granted)
	}
	if b, err := json.Marshal([]any{token, id, issued, granted}); err != nil {
		t.Error(err)
	} else {
		out.Write(b)
	}
	if strings.Contains(out.String(), string(token)) {
		t.Errorf("the token is shown: %s", out.String())
	}
}

func FuzzToken(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	f.Add(string(mint(now, time.Hour, "x")))
	f.Add("opaque")
	f.Add("a.e30.c")
	f.Add("a." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1e300,"iat":-1}`)) + ".c")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := newTokenIdentity(Token(s), now.Add(time.Hour), now)
		if err != nil {
			return
		}
		if strings.ContainsAny(s, "\r\n \x00") {
			t.Errorf("%q was taken for a header", s)
		}
		if strings.ContainsAny(id.User+id.Token.ID(), " \n`$/") {
			t.Errorf("%q: user %q, id %q: these are shown", s, id.User, id.Token.ID())
		}
		if !id.NotBefore.Before(id.NotAfter) {
			t.Errorf("%q is valid from %v to %v", s, id.NotBefore, id.NotAfter)
		}
		again, err := storedIdentity(nil, id.TokenPEM())
		if err != nil || again.Token != id.Token {
			t.Errorf("%q: stored and read it is %v, %v", s, again, err)
		}
	})
}

func TestARefusedIssueIsNoFailureOnceThePeerIsGone(t *testing.T) {
	m := &mintIssuer{life: time.Hour, err: fmt.Errorf("%w: no such account", ErrIssuer)}
	s := serveTokens(t, m)
	c := s.client(edgeKey)
	if _, err := c.AnyIdentity(t.Context(), nil); !errors.Is(err, ErrServer) {
		t.Errorf("got %v, want %v", err, ErrServer)
	}
	s.srv.o.Directory = &flicker{directory: s.dir, key: edgeKey}
	if _, err := c.AnyIdentity(t.Context(), nil); !errors.Is(err, ErrDenied) {
		t.Errorf("removed meanwhile: got %v, want %v", err, ErrDenied)
	}
}

// flicker is a directory that removes a peer when it is looked up.
type flicker struct {
	*directory
	key peer.PublicKey
}

func (f *flicker) Caller(a netip.Addr) (Caller, bool) {
	defer f.remove(f.key)
	return f.directory.Caller(a)
}
