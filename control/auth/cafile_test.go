package auth

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoadLocalCARefuses(t *testing.T) {
	change := func(f func(*x509.Certificate)) func(*testing.T, *LocalCAOptions) {
		return func(t *testing.T, o *LocalCAOptions) {
			t.Helper()
			c := authority()
			f(c)
			o.CertFile, o.KeyFile = caFiles(t, c)
		}
	}
	overwrite := func(which func(*LocalCAOptions) string, content string) func(*testing.T, *LocalCAOptions) {
		return func(t *testing.T, o *LocalCAOptions) {
			t.Helper()
			if err := os.WriteFile(which(o), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cert := func(o *LocalCAOptions) string { return o.CertFile }
	key := func(o *LocalCAOptions) string { return o.KeyFile }
	for _, c := range []struct {
		name  string
		spoil func(*testing.T, *LocalCAOptions)
		wants []string
		file  func(*LocalCAOptions) string
	}{
		{"no CA", change(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, 0 }), []string{"CA:TRUE"}, cert},
		{"may not sign", change(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), []string{"keyCertSign"}, cert},
		{"for servers", change(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), []string{"clientAuth"}, cert},
		{"expired", change(func(c *x509.Certificate) { c.NotAfter = noon }), []string{"expired at 2026-03-01T12:00:00Z"}, cert},
		{"not valid yet", change(func(c *x509.Certificate) { c.NotBefore = noon.Add(time.Hour) }), []string{"clock"}, cert},
		{"another's key", func(t *testing.T, o *LocalCAOptions) { t.Helper(); _, o.KeyFile = caFiles(t, authority()) }, []string{"is not that of the certificate"}, key},
		{"a key that others may read", func(t *testing.T, o *LocalCAOptions) {
			t.Helper()
			if err := os.Chmod(o.KeyFile, 0o644); err != nil {
				t.Fatal(err)
			}
		}, []string{"0644", "chmod 600"}, key},
		{"certificate and key exchanged", func(_ *testing.T, o *LocalCAOptions) { o.CertFile, o.KeyFile = o.KeyFile, o.CertFile }, []string{"exchanged"}, cert},
		{"an empty certificate file", overwrite(cert, ""), []string{"PEM certificate"}, cert},
		{"an empty key file", overwrite(key, ""), []string{"no PEM private key"}, key},
		{"an encrypted key", overwrite(key, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), []string{"decrypted"}, key},
		{"a broken key", overwrite(key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), []string{"cannot be read"}, key},
		{"a missing certificate", func(_ *testing.T, o *LocalCAOptions) { o.CertFile += ".missing" }, []string{"no such file"}, cert},
		{"a missing key", func(_ *testing.T, o *LocalCAOptions) { o.KeyFile += ".missing" }, []string{"no such file"}, key},
		{"the cluster's own CA", func(t *testing.T, o *LocalCAOptions) {
			t.Helper()
			b, err := os.ReadFile(o.CertFile)
			if err != nil {
				t.Fatal(err)
			}
			other, _ := caFiles(t, authority())
			first, err := os.ReadFile(other)
			if err != nil {
				t.Fatal(err)
			}
			o.ClusterCA = append(first, b...)
		}, []string{"the cluster's own", "--client-ca-file"}, cert},
		{"too long a life", func(_ *testing.T, o *LocalCAOptions) { o.TTL = MaxTTL + time.Second }, []string{"24h"}, nil},
		{"too short a life", func(_ *testing.T, o *LocalCAOptions) { o.TTL = time.Second }, []string{"30s"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := LocalCAOptions{Now: func() time.Time { return noon }}
			o.CertFile, o.KeyFile = caFiles(t, authority())
			c.spoil(t, &o)
			_, err := LoadLocalCA(o)
			if err == nil {
				t.Fatal("no error")
			}
			wants := c.wants
			if c.file != nil {
				wants = append(wants, c.file(&o))
			}
			for _, want := range wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestKeyFilesOfEveryKindAreRead(t *testing.T) {
	ec := newKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(ec)
	params := "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
	for name, c := range map[string]struct {
		key crypto.Signer
		pem []byte
	}{
		"PKCS #8": {ec, keyPEM(t, ec)},
		"SEC 1, as openssl ecparam -genkey writes it": {ec, append([]byte(params), pemOf(t, "EC PRIVATE KEY", sec1, err)...)},
		"PKCS #1": {rsaKey, pemOf(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey), nil)},
	} {
		der, err := x509.CreateCertificate(rand.Reader, authority(), authority(), c.key.Public(), c.key)
		certFile, keyFile := filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
		for file, b := range map[string][]byte{certFile: pemOf(t, "CERTIFICATE", der, err), keyFile: c.pem} {
			if err := os.WriteFile(file, b, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		ca := loadCA(t, func(o *LocalCAOptions) { o.CertFile, o.KeyFile = certFile, keyFile })
		if _, err := ca.Issue(t.Context(), subject, csr(t, newKey(t), &x509.CertificateRequest{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
