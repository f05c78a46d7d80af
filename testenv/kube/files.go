//go:build linux

package kube

import (
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/testenv/pki"
)

// files are the paths of what the components read.
type files struct {
	clientCAs, servingCert, servingKey, accountCert, accountKey string
}

// writeFiles makes the cluster's authorities and certificates.
func (c *Cluster) writeFiles() (files, error) {
	var f files
	dir := filepath.Join(c.options.Dir, "pki")
	for _, d := range []string{dir, filepath.Join(c.options.Dir, "log")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return f, err
		}
	}
	ca, err := pki.NewCA("kube-ca")
	if err != nil {
		return f, err
	}
	c.ca = ca
	names := append([]string{
		"kubernetes", "kubernetes.default", ServerName, ServerName + ".cluster.local", "localhost",
		"127.0.0.1", serviceAddress, c.options.Address.String(),
	}, c.options.ServerNames...)
	serving, err := ca.Server(names...)
	if err != nil {
		return f, err
	}
	// Tokens are signed with a key pair; that it comes with a certificate is of no
	// consequence.
	account, err := ca.Client(pkix.Name{CommonName: "service-accounts"})
	if err != nil {
		return f, err
	}
	admin, err := ca.Client(pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
	if err != nil {
		return f, err
	}
	if c.admin, err = admin.TLS(); err != nil {
		return f, err
	}
	if f.servingCert, f.servingKey, err = serving.Write(dir, "apiserver"); err != nil {
		return f, err
	}
	if f.accountCert, f.accountKey, err = account.Write(dir, "service-accounts"); err != nil {
		return f, err
	}
	if _, _, err = admin.Write(dir, "admin"); err != nil {
		return f, err
	}
	if err := os.WriteFile(c.CAFile(), ca.CertPEM(), 0o644); err != nil {
		return f, err
	}
	f.clientCAs = filepath.Join(dir, "client-ca.crt")
	return f, os.WriteFile(f.clientCAs, append(ca.CertPEM(), c.options.ClientCAs...), 0o644)
}

// writeKubeconfig writes the administrator's kubeconfig.
func (c *Cluster) writeKubeconfig() error {
	c.kubeconfig = filepath.Join(c.options.Dir, "admin.kubeconfig")
	text := strings.NewReplacer("SERVER", c.URL(), "PKI", filepath.Join(c.options.Dir, "pki")).Replace(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: "SERVER", certificate-authority: "PKI/ca.crt"}
users:
- name: admin
  user: {client-certificate: "PKI/admin.crt", client-key: "PKI/admin.key"}
contexts:
- name: test
  context: {cluster: test, user: admin}
current-context: test
`)
	return os.WriteFile(c.kubeconfig, []byte(text), 0o600)
}
