package auth

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// maxPEM bounds the size of a certificate or key file.
const maxPEM = 1 << 20

// LoadLocalCA reads and checks the CA. Its errors name the file and what to do.
func LoadLocalCA(o LocalCAOptions) (*LocalCA, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.TTL == 0 {
		o.TTL = MaxTTL
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return nil, fmt.Errorf("localCA: ttl %s must be between %s and %s", o.TTL, MinTTL, MaxTTL)
	}
	cert, err := loadCACert(o.CertFile)
	if err != nil {
		return nil, err
	}
	if err := checkCACert(o.CertFile, cert, o.Now()); err != nil {
		return nil, err
	}
	if err := checkNotClusterCA(o.CertFile, cert, o.ClusterCA); err != nil {
		return nil, err
	}
	key, err := loadCAKey(o.KeyFile)
	if err != nil {
		return nil, err
	}
	if !sameKey(key.Public(), cert.PublicKey) {
		return nil, fmt.Errorf("localCA: the key in %s is not that of the certificate in %s (give files that belong together)", o.KeyFile, o.CertFile)
	}
	return &LocalCA{
		o: o, cert: cert, key: key,
		recent: make(map[requestID]*recentIssue), issued: make(map[peer.PublicKey][]time.Time),
	}, nil
}

func readPEM(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("localCA: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxPEM {
		return nil, fmt.Errorf("localCA: %s is not a PEM file", file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("localCA: %w", err)
	}
	return b, nil
}

func loadCACert(file string) (*x509.Certificate, error) {
	b, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("localCA: %s does not begin with a PEM certificate (certFile and keyFile exchanged?)", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("localCA: %s: %w", file, err)
	}
	return cert, nil
}

func checkCACert(file string, c *x509.Certificate, now time.Time) error {
	clientAuth := len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	switch {
	case !c.BasicConstraintsValid || !c.IsCA:
		return fmt.Errorf("localCA: the certificate in %s is not a CA (basicConstraints CA:TRUE is missing; make a CA for this purpose alone)", file)
	case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return fmt.Errorf("localCA: the CA in %s may not sign certificates (keyUsage keyCertSign is missing; make a CA for this purpose alone)", file)
	case !clientAuth:
		return fmt.Errorf("localCA: the CA in %s may not sign for clients (extendedKeyUsage has no clientAuth; make a CA for this purpose alone)", file)
	case !now.Before(c.NotAfter):
		return fmt.Errorf("localCA: the CA in %s expired at %s (make a new one, and give it to the API server's --client-ca-file)", file, c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("localCA: the CA in %s is valid only from %s on (is this machine's clock right?)", file, c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkNotClusterCA refuses the CA that signed the API server's own certificate: whoever has its
// key can be anyone in that cluster.
func checkNotClusterCA(file string, c *x509.Certificate, bundle []byte) error {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return nil
		}
		other, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // the bundle is checked elsewhere
		}
		if sameKey(c.PublicKey, other.PublicKey) {
			return fmt.Errorf("localCA: the CA in %s is the cluster's own (it is in services.apiServer.caFile); make a CA for this purpose alone and add it to the API server's --client-ca-file", file)
		}
	}
}

func loadCAKey(file string) (crypto.Signer, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("localCA: %w", err)
	}
	// The group may read it: Kubernetes mounts Secrets like that. Package config has the same rule.
	if mode := info.Mode().Perm(); mode&0o007 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("localCA: the key %s has mode %04o, so everybody may read it (run `chmod 600 %s`)", file, mode, file)
	}
	b, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return nil, fmt.Errorf("localCA: %s holds no PEM private key (certFile and keyFile exchanged, or the key encrypted?)", file)
		}
		if block.Type == "EC PARAMETERS" { // `openssl ecparam -genkey` writes them first
			continue
		}
		key, err := parseKey(block)
		if err != nil {
			return nil, fmt.Errorf("localCA: %s: %w", file, err)
		}
		return key, nil
	}
}

func parseKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a PEM block of type %q is not a usable private key (an encrypted one must be decrypted first)", clean(block.Type, 40))
	}
	if err != nil {
		return nil, errors.New("the private key cannot be read") // the parser's error could quote it
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signer, nil
}
