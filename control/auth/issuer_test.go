package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newKey returns a P-256 key.
func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pemOf(t testing.TB, kind string, b []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})
}

func keyPEM(t testing.TB, k crypto.Signer) []byte {
	t.Helper()
	b, err := x509.MarshalPKCS8PrivateKey(k)
	return pemOf(t, "PRIVATE KEY", b, err)
}

// authority returns a CA's template; tests change it.
func authority() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "postern peers"},
		NotBefore: noon.Add(-365 * 24 * time.Hour), NotAfter: noon.Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

// caFiles writes a self-signed certificate and its key.
func caFiles(t testing.TB, template *x509.Certificate) (certFile, keyFile string) {
	t.Helper()
	k := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	for file, b := range map[string][]byte{certFile: pemOf(t, "CERTIFICATE", der, err), keyFile: keyPEM(t, k)} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func loadCA(t testing.TB, change func(*LocalCAOptions)) *LocalCA {
	t.Helper()
	o := LocalCAOptions{Now: func() time.Time { return noon }}
	o.CertFile, o.KeyFile = caFiles(t, authority())
	if change != nil {
		change(&o)
	}
	ca, err := LoadLocalCA(o)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func csr(t testing.TB, k crypto.Signer, template *x509.CertificateRequest) []byte {
	t.Helper()
	b, err := x509.CreateCertificateRequest(rand.Reader, template, k)
	return pemOf(t, "CERTIFICATE REQUEST", b, err)
}

func parse(t testing.TB, certPEM []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(certPEM)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one PEM block: %q", certPEM)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var subject = Subject{Name: "edge", PublicKey: edgeKey}

func TestTheIssuerWritesTheSubject(t *testing.T) {
	ca := loadCA(t, nil)
	k := newKey(t)
	// The request asks for everything that is ignored; another user or a group would be refused.
	uri := &x509.CertificateRequest{
		Subject:  pkix.Name{OrganizationalUnit: []string{"admins"}, SerialNumber: "7", Country: []string{"XX"}},
		DNSNames: []string{"kubernetes"}, EmailAddresses: []string{"admin@example.net"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}, // CA:TRUE
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}},
		},
	}
	out, err := ca.Issue(t.Context(), subject, csr(t, k, uri))
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, out.CertificatePEM)
	if got, want := c.Subject.String(), "CN=postern:peer:edge"; got != want || len(c.Subject.Names) != 1 {
		t.Errorf("subject: got %q, want only %q", got, want)
	}
	if !sameKey(c.PublicKey, k.Public()) {
		t.Error("the certificate is not for the request's key")
	}
	if c.IsCA || !c.BasicConstraintsValid {
		t.Error("the certificate is not marked as no CA")
	}
	if len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || len(c.UnknownExtKeyUsage) > 0 || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("usage: %v %v %v, want only client authentication", c.ExtKeyUsage, c.UnknownExtKeyUsage, c.KeyUsage)
	}
	if n := len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs); n > 0 {
		t.Errorf("%d alternative names got in", n)
	}
	for _, e := range c.Extensions {
		if e.Id.Equal(asn1.ObjectIdentifier{1, 2, 3, 4}) {
			t.Error("an extension got in")
		}
	}
	if !c.NotBefore.Equal(noon.Add(-backdate)) || !c.NotAfter.Equal(c.NotBefore.Add(MaxTTL)) || !out.NotAfter.Equal(c.NotAfter) {
		t.Errorf("valid from %v to %v (told %v), want 24 h from %v", c.NotBefore, c.NotAfter, out.NotAfter, noon.Add(-backdate))
	}
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.Text(16) != out.Serial || c.SerialNumber.BitLen() < 64 {
		t.Errorf("serial number %x (told %s)", c.SerialNumber, out.Serial)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: noon, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("verify: %v", err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: noon, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("the certificate serves for a server")
	}
}

func TestAServerThatAsksForTheCATakesTheCertificate(t *testing.T) {
	ca := loadCA(t, func(o *LocalCAOptions) {
		o.CertFile, o.KeyFile = caFiles(t, func() *x509.Certificate {
			c := authority()
			c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
			return c
		}())
		o.Now = time.Now
	})
	k := newKey(t)
	out, err := ca.Issue(t.Context(), subject, csr(t, k, &x509.CertificateRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	id, err := newIdentity(out.CertificatePEM, keyPEM(t, k))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key}},
		ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	client := tls.Client(near, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, Certificates: []tls.Certificate{*id.TLS}})
	ended := make(chan error, 1)
	go func() { ended <- client.HandshakeContext(context.Background()) }()
	if err := server.HandshakeContext(t.Context()); err != nil {
		t.Errorf("the server refuses: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the client: %v", err)
	}
	if got := server.ConnectionState().PeerCertificates; len(got) != 1 || got[0].Subject.CommonName != "postern:peer:edge" {
		t.Errorf("the server sees %v", got)
	}
	_, _ = near.Close(), far.Close()
}

func TestTheSameRequestGetsTheSameCertificate(t *testing.T) {
	now := noon
	ledger := &ledger{}
	ca := loadCA(t, func(o *LocalCAOptions) {
		o.Now = func() time.Time { return now }
		o.Ledger = ledger
	})
	k := newKey(t)
	issue := func(s Subject) Issuance {
		t.Helper()
		out, err := ca.Issue(t.Context(), s, csr(t, k, &x509.CertificateRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := issue(subject)
	now = noon.Add(repeatFor)
	again := issue(subject) // the request is signed again, but with the same key
	if !bytes.Equal(first.CertificatePEM, again.CertificatePEM) || first.Again || !again.Again {
		t.Error("a repeated request got another certificate")
	}
	for _, other := range []Subject{{Name: "berlin", PublicKey: berlinKey}, {Name: "renamed", PublicKey: edgeKey}} {
		out := issue(other)
		if c := parse(t, out.CertificatePEM); out.Again || c.Subject.CommonName != other.User() {
			t.Errorf("%s got %s", other.Name, c.Subject)
		}
	}
	now = noon.Add(repeatFor + time.Second)
	if late := issue(subject); late.Again || late.Serial == first.Serial {
		t.Error("much later the same certificate was given")
	}
	if n := len(ledger.entries); n != 4 {
		t.Errorf("%d identities were noted, want 4", n)
	}
}

func TestRequestsAtOnceAreSignedOnce(t *testing.T) {
	ledger := &ledger{}
	ca := loadCA(t, func(o *LocalCAOptions) { o.Ledger = ledger })
	request := csr(t, newKey(t), &x509.CertificateRequest{})
	serials := make([]string, 32)
	var wg sync.WaitGroup
	for i := range serials {
		wg.Go(func() {
			out, err := ca.Issue(context.Background(), subject, request)
			if err != nil {
				t.Error(err)
			}
			serials[i] = out.Serial
		})
	}
	wg.Wait()
	for _, s := range serials {
		if s != serials[0] {
			t.Errorf("serial numbers %s and %s", s, serials[0])
		}
	}
	if n := len(ledger.entries); n != 1 {
		t.Errorf("%d identities were noted, want 1", n)
	}
}

// ledger is a Ledger that can fail.
type ledger struct {
	mu      sync.Mutex
	entries []entry
	err     error
}

type entry struct {
	peer     peer.PublicKey
	notAfter time.Time
}

func (l *ledger) RecordIssued(k peer.PublicKey, _, _ string, _, notAfter time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.entries = append(l.entries, entry{k, notAfter})
	}
	return l.err
}

func (l *ledger) IdentityHolder(string, peer.PublicKey, time.Time) (holder peer.PublicKey, until time.Time, ok bool) {
	return holder, until, false
}

func (l *ledger) LastIssued(k peer.PublicKey, now time.Time) (n int, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.peer == k && now.Before(e.notAfter) {
			n, last = n+1, later(last, e.notAfter)
		}
	}
	return n, last
}

func TestRevokeTellsWhatIsOutstanding(t *testing.T) {
	now := noon
	ledger := &ledger{}
	ca := loadCA(t, func(o *LocalCAOptions) {
		o.Now = func() time.Time { return now }
		o.Ledger, o.TTL = ledger, time.Hour
	})
	k := newKey(t)
	issue := func() {
		t.Helper()
		if _, err := ca.Issue(t.Context(), subject, csr(t, k, &x509.CertificateRequest{})); err != nil {
			t.Fatal(err)
		}
	}
	issue()
	now = now.Add(30 * time.Minute)
	ledger.err = errors.New("no space left on device")
	issue() // a full disk must not lock out the peer
	if r := ca.Revoke(subject); r.Outstanding != 2 || !r.NotAfter.Equal(noon.Add(90*time.Minute)) {
		t.Errorf("outstanding: %+v, want 2 until %v", r, noon.Add(90*time.Minute))
	}
	now = noon.Add(time.Hour)
	if r := ca.Revoke(subject); r.Outstanding != 1 {
		t.Errorf("an hour later %d are outstanding, want 1", r.Outstanding)
	}
	if r := ca.Revoke(Subject{PublicKey: berlinKey}); r != (Revocation{}) {
		t.Errorf("another peer: %+v, want none", r)
	}
}

func TestNoIdentityOutlivesItsCA(t *testing.T) {
	now := noon
	soon := authority()
	soon.NotAfter = noon.Add(time.Hour)
	soon.NotBefore = noon.Add(-time.Minute)
	ca := loadCA(t, func(o *LocalCAOptions) {
		o.CertFile, o.KeyFile = caFiles(t, soon)
		o.Now = func() time.Time { return now }
	})
	out, err := ca.Issue(t.Context(), subject, csr(t, newKey(t), &x509.CertificateRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if c := parse(t, out.CertificatePEM); !c.NotAfter.Equal(soon.NotAfter) || !c.NotBefore.Equal(soon.NotBefore) {
		t.Errorf("valid from %v to %v, the CA from %v to %v", c.NotBefore, c.NotAfter, soon.NotBefore, soon.NotAfter)
	}
	now = soon.NotAfter
	if _, err := ca.Issue(t.Context(), subject, csr(t, newKey(t), &x509.CertificateRequest{})); !errors.Is(err, ErrIssuer) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its end: got %v, want %v", err, ErrIssuer)
	}
}
