package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/postern-dev/postern/control/audit"
)

func TestCSRsThatAreRefused(t *testing.T) {
	k := newKey(t)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GODEBUG", "rsa1024min=0")
	rsa1024, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	named := func(n pkix.Name) []byte { return csr(t, k, &x509.CertificateRequest{Subject: n}) }
	names := func(list ...pkix.AttributeTypeAndValue) []byte { return named(pkix.Name{ExtraNames: list}) }
	cn := func(v any) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: oidCommonName, Value: v}
	}
	good := csr(t, k, &x509.CertificateRequest{})
	block, _ := pem.Decode(good)
	broken := bytes.Clone(block.Bytes)
	broken[len(broken)-5] ^= 1 // in the signature
	for _, c := range []struct {
		name string
		csr  []byte
		want error
	}{
		{"system:masters", named(pkix.Name{Organization: []string{"system:masters"}}), ErrCSRSubject},
		{"system:masters under its own name", named(pkix.Name{CommonName: "postern:peer:edge", Organization: []string{"system:masters"}}), ErrCSRSubject},
		{"system:masters as the second group", named(pkix.Name{Organization: []string{"", "system:masters"}}), ErrCSRSubject},
		{"an empty group", names(pkix.AttributeTypeAndValue{Type: oidOrganization, Value: ""}), ErrCSRSubject},
		{"an administrator", named(pkix.Name{CommonName: "kubernetes-admin"}), ErrCSRSubject},
		{"another peer", named(pkix.Name{CommonName: "postern:peer:berlin"}), ErrCSRSubject},
		{"a name that begins with its own", named(pkix.Name{CommonName: "postern:peer:edge2"}), ErrCSRSubject},
		{"another name in front of its own", names(cn("system:admin"), cn("postern:peer:edge")), ErrCSRSubject},
		{"another name behind its own", names(cn("postern:peer:edge"), cn("system:admin")), ErrCSRSubject},
		{"a name that is no text", names(cn(7)), ErrCSRSubject},
		{"nothing", nil, ErrCSR},
		{"no PEM", []byte("hello"), ErrCSR},
		{"a certificate", pemOf(t, "CERTIFICATE", block.Bytes, nil), ErrCSR},
		{"garbage in PEM", pemOf(t, "CERTIFICATE REQUEST", []byte("hello"), nil), ErrCSR},
		{"two requests", append(bytes.Clone(good), good...), ErrCSR},
		{"a signature that does not fit", pemOf(t, "CERTIFICATE REQUEST", broken, nil), ErrCSR},
		{"P-224", csr(t, p224, &x509.CertificateRequest{}), ErrCSR},
		{"P-521", csr(t, p521, &x509.CertificateRequest{}), ErrCSR},
		{"RSA of 1024 bits", csr(t, rsa1024, &x509.CertificateRequest{}), ErrCSR},
	} {
		t.Run(c.name, func(t *testing.T) {
			ca := loadCA(t, nil)
			s := serve(t, func(o *ServerOptions) { o.Issuer = func() Issuer { return ca } })
			if out, err := ca.Issue(t.Context(), subject, c.csr); !errors.Is(err, c.want) {
				t.Errorf("Issue: got %v, %v; want %v", out, err, c.want)
			}
			_, err := s.client(edgeKey).Identity(t.Context(), c.csr)
			want, records := ErrRequest, 0
			if errors.Is(c.want, ErrCSRSubject) {
				want, records = ErrDenied, 1
			}
			if !errors.Is(err, want) {
				t.Errorf("in-band: got %v, want %v", err, want)
			}
			refusals := s.log.events(audit.Refuse)
			if len(refusals) != records {
				t.Errorf("%d refusals were recorded, want %d: %v", len(refusals), records, refusals)
			}
			if records == 1 && (refusals[0]["peer"] != "edge" || refusals[0]["result"] != codeCSRSubject) {
				t.Errorf("recorded as %v", refusals[0])
			}
			if n := len(s.log.events(audit.Issue)); n != 0 {
				t.Errorf("%d identities were issued", n)
			}
		})
	}
}

func TestKeysThatAreTaken(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ca := loadCA(t, nil)
	for name, k := range map[string]crypto.Signer{"P-256": newKey(t), "P-384": p384, "Ed25519": ed, "RSA of 2048 bits": rsa2048} {
		for _, cn := range []string{"", subject.User()} {
			if _, err := ca.Issue(t.Context(), subject, csr(t, k, &x509.CertificateRequest{Subject: pkix.Name{CommonName: cn}})); err != nil {
				t.Errorf("%s, CN %q: %v", name, cn, err)
			}
		}
	}
}

func FuzzCSR(f *testing.F) {
	k := newKey(f)
	for _, n := range []pkix.Name{{}, {CommonName: "postern:peer:edge"}, {Organization: []string{"system:masters"}}} {
		block, _ := pem.Decode(csr(f, k, &x509.CertificateRequest{Subject: n}))
		f.Add(block.Bytes)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		r, err := parseCSR(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		if err != nil || checkSubject(r, subject.User()) != nil {
			return
		}
		if len(r.Subject.Organization) > 0 || r.Subject.CommonName != "" && r.Subject.CommonName != subject.User() {
			t.Errorf("took the subject %q", r.Subject)
		}
	})
}
