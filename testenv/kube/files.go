//go:build linux

package kube

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/testenv/pki"
)

// files are the paths of files that the components read.
type files struct {
	clientCAs, servingCert, servingKey, accountCert, accountKey string
}

// writeFiles creates the cluster's authorities and the certificates of the API server and the
// administrator.
func (c *Cluster) writeFiles() (files, error) {
	var f files
	dir := c.pkiDir()
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
		// The first address of the range is the API server's own Service.
		"127.0.0.1", c.services.Masked().Addr().Next().String(), c.options.Address.String(),
	}, c.options.ServerNames...)
	serving, err := ca.Server(names...)
	if err != nil {
		return f, err
	}
	if f.servingCert, f.servingKey, err = serving.Write(dir, "apiserver"); err != nil {
		return f, err
	}
	// Tokens are signed with a key pair. Its certificate is not used.
	if f.accountCert, f.accountKey, err = c.writeClient("service-accounts", "service-accounts", ""); err != nil {
		return f, err
	}
	adminCert, adminKey, err := c.writeClient("admin", "admin", "system:masters")
	if err != nil {
		return f, err
	}
	if c.admin, err = tls.LoadX509KeyPair(adminCert, adminKey); err != nil {
		return f, err
	}
	if err := os.WriteFile(c.CAFile(), ca.CertPEM(), 0o644); err != nil {
		return f, err
	}
	f.clientCAs = filepath.Join(dir, "client-ca.crt")
	return f, os.WriteFile(f.clientCAs, append(ca.CertPEM(), c.options.ClientCAs...), 0o644)
}

func (c *Cluster) pkiDir() string { return filepath.Join(c.options.Dir, "pki") }

// writeClient creates a client certificate for a user, in a group unless that is "", and returns
// the paths of certificate and key.
func (c *Cluster) writeClient(file, user, group string) (certFile, keyFile string, err error) {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	pair, err := c.ca.Client(subject)
	if err != nil {
		return "", "", err
	}
	return pair.Write(c.pkiDir(), file)
}

// writeKubeconfig writes a kubeconfig with the client certificate of the given file name and
// returns its path.
func (c *Cluster) writeKubeconfig(file string) (string, error) {
	path := filepath.Join(c.options.Dir, file+".kubeconfig")
	text := strings.NewReplacer("SERVER", c.URL(), "PKI", c.pkiDir(), "USER", file).Replace(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: "SERVER", certificate-authority: "PKI/ca.crt"}
users:
- name: USER
  user: {client-certificate: "PKI/USER.crt", client-key: "PKI/USER.key"}
contexts:
- name: test
  context: {cluster: test, user: USER}
current-context: test
`)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// WriteTokenKubeconfig writes a kubeconfig with a token, such as a ServiceAccount's, and a
// namespace ("" means default).
func (c *Cluster) WriteTokenKubeconfig(file, namespace, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: %q, certificate-authority: %q, tls-server-name: %s}
users:
- name: bearer
  user: {token: %q}
contexts:
- name: test
  context: {cluster: test, user: bearer, namespace: %q}
current-context: test
`, c.URL(), c.CAFile(), ServerName, token, namespace)
	return os.WriteFile(file, []byte(text), 0o600)
}
