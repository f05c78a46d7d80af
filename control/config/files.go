package config

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/tunnel/peer"
)

// fileReader is the part of the file system that checking needs.
type fileReader interface {
	Stat(path string) (fs.FileInfo, error)
	// ReadFile reads at most maxFileSize bytes.
	ReadFile(path string) ([]byte, error)
}

type osFiles struct{}

func (osFiles) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }
func (osFiles) ReadFile(path string) ([]byte, error)  { return readBounded(path) }

// othersMayRead are the permission bits that make a secret public. The group's are allowed:
// Kubernetes mounts Secrets readable by the pod's group.
const othersMayRead fs.FileMode = 0o007

// read returns a file's content, or reports at the field why it cannot be read.
func (c *checker) read(field, path string) ([]byte, bool) {
	if path == "" {
		c.fail(field, "missing (want the path of a file)")
		return nil, false
	}
	data, err := c.files.ReadFile(path)
	if err != nil {
		c.fail(field, "%s", fileError(path, err))
		return nil, false
	}
	return data, true
}

// fileError says in one line why a file cannot be read and what to do.
func fileError(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist (create it, or correct the path)", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s may not be read by this user (chown it to the gateway's)", path)
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Sprintf("%s cannot be read: %v", path, err)
}

// secret reads a file with a secret, and reports one that others may read.
func (c *checker) secret(field, configured string) ([]byte, bool) {
	path := c.path(field, configured)
	if path != "" && !c.private(field, path) {
		return nil, false
	}
	return c.read(field, path)
}

// private reports a file whose mode gives others access. A missing file is left for read to report.
func (c *checker) private(field, path string) bool {
	info, err := c.files.Stat(path)
	if err != nil || info.Mode().Perm()&othersMayRead == 0 {
		return true
	}
	c.fail(field, "%s has mode %04o: every user may read it (chmod 600 %s)", path, info.Mode().Perm(), path)
	return false
}

// privateKey reads the configured key. Package state reads or creates the default one; here only
// its mode is checked, so that `config validate` finds it, too.
func (c *checker) privateKey(r *Resolved) {
	const field = "spec.privateKeyFile"
	configured := c.doc.Spec.PrivateKeyFile
	if configured == "" {
		r.PrivateKeyFile = filepath.Join(r.StateDir, privateKeyName)
		c.private(field, r.PrivateKeyFile)
		return
	}
	r.PrivateKeyFile = c.path(field, configured)
	data, ok := c.secret(field, configured)
	if !ok {
		return
	}
	key, err := peer.ParsePrivateKey(strings.TrimSpace(string(data)))
	if err != nil {
		c.fail(field, "%s holds no private key (make one: postern key gen > %s)", r.PrivateKeyFile, r.PrivateKeyFile)
		return
	}
	r.PrivateKey = key
}

// presharedKey reads a peer's preshared key.
func (c *checker) presharedKey(field, configured string) peer.PresharedKey {
	data, ok := c.secret(field, configured)
	if !ok {
		return peer.PresharedKey{}
	}
	key, err := peer.ParsePresharedKey(strings.TrimSpace(string(data)))
	if err != nil {
		c.fail(field, "%s holds no preshared key (make one for both sides: postern key gen)", c.path(field, configured))
	}
	return key
}

// certificates reads PEM certificates and returns the file's content.
func (c *checker) certificates(field, configured string) []byte {
	path := c.path(field, configured)
	data, ok := c.read(field, path)
	if !ok {
		return nil
	}
	if err := CheckCertificates(data); err != nil {
		c.fail(field, "%s: %v", path, err)
		return nil
	}
	return data
}

// CheckCertificates requires at least one PEM certificate, and all of them complete.
func CheckCertificates(data []byte) error {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("its certificate %d is damaged: %w", n+1, err)
		}
		n++
	}
	if n == 0 {
		return errors.New("no PEM certificate in it (want BEGIN CERTIFICATE)")
	}
	return nil
}

// certificateAuthority checks that both files exist, belong together and are a CA's.
func (c *checker) certificateAuthority(at, certFile, keyFile string) {
	cert := c.certificates(at+".certFile", certFile)
	key, ok := c.secret(at+".keyFile", keyFile)
	if cert == nil || !ok {
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.fail(at+".keyFile", "%s is not the key of %s: %v", c.path(at+".keyFile", keyFile), c.path(at+".certFile", certFile), err)
		return
	}
	if !pair.Leaf.IsCA {
		c.fail(at+".certFile", "%s is not a CA certificate (want basicConstraints CA:TRUE; make a CA only for this)", c.path(at+".certFile", certFile))
	}
}

// fingerprint distinguishes contents; it is not meant for people.
func fingerprint(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
