package auth

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/audit"
)

// asIs is an issuer whose authority signs requests unchanged.
type asIs struct{ *LocalCA }

func (asIs) Verbatim() {}

func (i asIs) Issue(ctx context.Context, s Subject, csrPEM []byte) (Issuance, error) {
	if _, err := ExactRequest(csrPEM, s.User()); err != nil {
		return Issuance{}, err
	}
	return i.LocalCA.Issue(ctx, s, csrPEM)
}

func serveAsIs(t *testing.T) *site {
	t.Helper()
	ca := loadCA(t, nil)
	return serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return asIs{ca} } })
}

// A peer's first request is answered with the user to request, and it then requests that.
func TestPeersAreToldWhomToAskFor(t *testing.T) {
	s := serveAsIs(t)
	requests := 0
	got := make(chan Identity, 1)
	_, stop := keepAny(t, func(ctx context.Context, csrPEM []byte) (Grant, error) {
		requests++
		return s.client(edgeKey).AnyIdentity(ctx, csrPEM)
	}, &cabinet{}, func(o *KeeperOptions) { o.OnChange = func(id Identity) { got <- id } })
	if id := <-got; id.User != "postern:peer:edge" || id.TLS == nil {
		t.Errorf("got %v", id)
	}
	stop()
	if requests != 2 {
		t.Errorf("%d requests, want two: one to learn the user, and one with it", requests)
	}
	if n := len(s.log.events(audit.Issue)); n != 1 {
		t.Errorf("%d identities were issued, want 1", n)
	}
	if n := len(s.log.events(audit.Refuse)); n != 0 {
		t.Errorf("%d refusals were recorded", n)
	}
}

// The user is kept for renewals, and dropped if the gateway denies it: the peer may have another
// name there now.
func TestKeeperRemembersWhomToAskForUntilDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, time.Hour)
		var asked atomic.Int32
		var name atomic.Value
		name.Store("edge")
		_, stop := keepAny(t, func(ctx context.Context, csrPEM []byte) (Grant, error) {
			asked.Add(1)
			user := UserPrefix + name.Load().(string)
			r, err := parseCSR(csrPEM)
			switch {
			case err != nil:
				return Grant{}, err
			case r.Subject.CommonName == "":
				return Grant{User: user}, nil
			case r.Subject.CommonName != user:
				return Grant{}, newError(codeCSRSubject, "not yours")
			}
			certPEM, err := o.Request(ctx, csrPEM)
			return Grant{CertificatePEM: certPEM}, err
		}, &cabinet{}, nil)
		synctest.Wait()
		if n := asked.Load(); n != 2 {
			t.Errorf("the first identity took %d requests, want 2", n)
		}
		time.Sleep(time.Hour) // virtual
		if n := asked.Load(); n != 3 {
			t.Errorf("with the first renewal %d requests, want 3", n)
		}
		name.Store("berlin")
		time.Sleep(time.Hour)
		if n := asked.Load(); n < 6 {
			t.Errorf("with another name %d requests, want 6: a denied one, one to learn the user, one with it", n)
		}
		stop()
		if last := len(o.csrs) - 1; last < 2 {
			t.Errorf("%d identities, want 3", last+1)
		} else if r, err := parseCSR(o.csrs[last]); err != nil || r.Subject.CommonName != "postern:peer:berlin" {
			t.Errorf("last asked for %v, %v", r, err)
		}
	})
}

// A gateway must not be able to make us request an administrator's certificate.
func TestKeeperAsksForNobodyElse(t *testing.T) {
	for _, user := range []string{"kubernetes-admin", "postern:peer:", "postern:peer:a b", "system:postern:peer:edge"} {
		synctest.Test(t, func(t *testing.T) {
			k, stop := keepAny(t, func(_ context.Context, csrPEM []byte) (Grant, error) {
				if r, err := parseCSR(csrPEM); err != nil || len(r.Subject.Names) > 0 {
					t.Errorf("asked for %v, %v", r.Subject, err)
				}
				return Grant{User: user}, nil
			}, &cabinet{}, nil)
			synctest.Wait()
			if _, err := k.LastError(); !errors.Is(err, ErrAnswer) {
				t.Errorf("%q: got %v, want ErrAnswer", user, err)
			}
			stop()
		})
	}
}

func TestOlderPeersHearThatTheyCannotAsk(t *testing.T) {
	s := serveAsIs(t)
	_, csrPEM, err := keyAndCSR("")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.client(edgeKey).Identity(t.Context(), csrPEM)
	if !errors.Is(err, ErrIncompatible) {
		t.Errorf("got %v, want ErrIncompatible", err)
	}
}

func TestOnlyExactRequestsAreHandedOn(t *testing.T) {
	k := newKey(t)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edge := pkix.Name{CommonName: "postern:peer:edge"}
	for _, c := range []struct {
		name    string
		key     crypto.Signer
		request x509.CertificateRequest
		want    error
	}{
		{"exactly", k, x509.CertificateRequest{Subject: edge}, nil},
		{"nobody", k, x509.CertificateRequest{}, ErrCSR},
		{"somebody else", k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "postern:peer:berlin"}}, ErrCSRSubject},
		{"a group", k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "postern:peer:edge", Organization: []string{"system:masters"}}}, ErrCSRSubject},
		{"a unit besides", k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "postern:peer:edge", OrganizationalUnit: []string{"x"}}}, ErrCSR},
		{"its name twice", k, x509.CertificateRequest{Subject: pkix.Name{CommonName: "postern:peer:edge",
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: oidCommonName, Value: "postern:peer:edge"}, {Type: oidCommonName, Value: "postern:peer:edge"}}}}, ErrCSR},
		{"alternative names", k, x509.CertificateRequest{Subject: edge, DNSNames: []string{"kubernetes"}}, ErrCSR},
		{"another kind of key", edwards, x509.CertificateRequest{Subject: edge}, ErrCSR},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ExactRequest(csr(t, c.key, &c.request), subject.User()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
