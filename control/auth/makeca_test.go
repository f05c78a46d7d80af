package auth

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

// A CA created by MakeLocalCA issues identities that an API server accepts if it trusts the CA,
// and cannot sign other CAs.
func TestAMadeCAIssues(t *testing.T) {
	cert, key, err := MakeLocalCA("cloud")
	if err != nil {
		t.Fatal(err)
	}
	o := LocalCAOptions{CertFile: filepath.Join(t.TempDir(), "ca.crt"), KeyFile: filepath.Join(t.TempDir(), "ca.key")}
	for file, b := range map[string][]byte{o.CertFile: cert, o.KeyFile: key} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := LoadLocalCA(o)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ca.Issue(t.Context(), subject, csr(t, newKey(t), &x509.CertificateRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, cert))
	if _, err := parse(t, out.CertificatePEM).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if c := parse(t, cert); c.MaxPathLen != 0 || !c.MaxPathLenZero || c.KeyUsage != x509.KeyUsageCertSign || c.Subject.CommonName != "postern peers of cloud" {
		t.Errorf("the CA is %+v", c)
	}
}
