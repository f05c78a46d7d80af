package auth

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/audit"
)

func TestIdentityInBand(t *testing.T) {
	ca := loadCA(t, nil)
	s := serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
	request := csr(t, newKey(t), &x509.CertificateRequest{})
	first, err := s.client(edgeKey).Identity(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.client(edgeKey).Identity(t.Context(), request)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("a retry got another answer (%v)", err)
	}
	issued := s.log.events(audit.Issue)
	if len(issued) != 1 || issued[0]["peer"] != "edge" || issued[0]["serial"] != parse(t, first).SerialNumber.Text(16) || issued[0]["notAfter"] == nil {
		t.Errorf("recorded as %v, want once, with name and serial number", issued)
	}
}

func TestIdentityNeedsBothGrants(t *testing.T) {
	ca := loadCA(t, nil)
	request := csr(t, newKey(t), &x509.CertificateRequest{})
	for _, c := range []struct {
		name   string
		caller Caller
		want   error
	}{
		{"nothing granted", Caller{}, ErrDenied},
		{"auth alone", Caller{Grants: []string{"auth"}}, ErrDenied},
		{"apiServer alone", Caller{Grants: []string{"apiServer"}}, ErrDenied},
		{"both, but pending", Caller{Grants: []string{"auth", "apiServer"}, Pending: true}, ErrPending},
		{"both, but one-time", Caller{Grants: []string{"auth", "apiServer"}, Kind: KindOneTime}, ErrDenied},
	} {
		s := serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
		c.caller.Name, c.caller.PublicKey = "edge", edgeKey
		s.dir.set(c.caller)
		if _, err := s.client(edgeKey).Identity(t.Context(), request); !errors.Is(err, c.want) || !errors.Is(err, ErrDenied) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if n := len(s.log.events(audit.Refuse)); n != 1 {
			t.Errorf("%s: %d refusals were recorded, want 1", c.name, n)
		}
		s.stop()
	}
}

func TestIdentityWithoutIssuer(t *testing.T) {
	s := serve(t, nil)
	if _, err := s.client(edgeKey).Identity(t.Context(), nil); !errors.Is(err, ErrNoIssuer) {
		t.Errorf("got %v, want %v", err, ErrNoIssuer)
	}
}

// removing is an issuer that removes the peer while it works.
type removing struct {
	Issuer
	dir *directory
}

func (r removing) Issue(ctx context.Context, s Subject, csr []byte) (Issuance, error) {
	r.dir.remove(s.PublicKey)
	return r.Issuer.Issue(ctx, s, csr)
}

func TestAPeerRemovedMeanwhileGetsNothing(t *testing.T) {
	ca := loadCA(t, nil)
	s := serve(t, nil)
	s.srv.o.Issuer = func() Issuer { return removing{ca, s.dir} }
	if cert, err := s.client(edgeKey).Identity(t.Context(), csr(t, newKey(t), &x509.CertificateRequest{})); !errors.Is(err, ErrDenied) || cert != nil {
		t.Errorf("got %q, %v; want %v", cert, err, ErrDenied)
	}
}

func TestIdentitiesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := loadCA(t, nil)
		s := serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
		k := newKey(t)
		for i := range identityBurst {
			if _, err := s.client(edgeKey).Identity(t.Context(), csr(t, k, &x509.CertificateRequest{})); err != nil {
				t.Fatalf("request %d: %v", i+1, err)
			}
		}
		_, err := s.client(edgeKey).Identity(t.Context(), csr(t, k, &x509.CertificateRequest{}))
		var answer *Error
		if !errors.Is(err, ErrRateLimited) || !errors.As(err, &answer) || answer.RetryAfter <= 0 || answer.RetryAfter > 10*time.Second {
			t.Errorf("got %#v, want %v with a time", err, ErrRateLimited)
		}
		s.stop()
	})
}

func TestIdentityPrintsWithoutItsKey(t *testing.T) {
	ca := loadCA(t, nil)
	k := newKey(t)
	out, err := ca.Issue(t.Context(), subject, csr(t, k, &x509.CertificateRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	id, err := newIdentity(out.CertificatePEM, keyPEM(t, k))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if text := fmt.Sprintf(verb+verb, id, &id); strings.Contains(text, "PRIVATE") || !strings.Contains(text, "postern:peer:edge") || len(text) > 300 {
			t.Errorf("%s prints %q", verb, text)
		}
	}
}
