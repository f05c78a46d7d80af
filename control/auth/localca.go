package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// MaxTTL bounds an identity's lifetime: certificates are only revoked by expiry.
	MaxTTL = 24 * time.Hour
	// MinTTL leaves a peer time to renew.
	MinTTL = 30 * time.Second
	// backdate allows for the API server's clock being behind ours.
	backdate = 5 * time.Minute
	// repeatFor is how long the same request gets the same certificate: longer than a client
	// retries after a lost answer.
	repeatFor = 5 * time.Minute
)

// Ledger records across restarts what was issued. [state.Store] is one.
//
// [state.Store]: https://pkg.go.dev/github.com/postern-dev/postern/control/state#Store
type Ledger interface {
	// RecordIssued records a certificate for an identity name. The same serial may be recorded
	// again.
	RecordIssued(k peer.PublicKey, identity, serial string, now, notAfter time.Time) error
	LastIssued(k peer.PublicKey, now time.Time) (count int, notAfter time.Time)
	// IdentityHolder returns the key, other than k, with valid certificates for an identity name,
	// and when the last of them ends.
	IdentityHolder(identity string, k peer.PublicKey, now time.Time) (holder peer.PublicKey, until time.Time, ok bool)
}

// CheckHolder refuses to issue for an identity name for which another key has certificates. Such a
// peer is refused, unless it is in the configuration when the gateway starts.
func CheckHolder(l Ledger, s Subject, now time.Time) error {
	if l == nil {
		return nil
	}
	if holder, until, ok := l.IdentityHolder(s.IdentityName(), s.PublicKey, now); ok {
		return fmt.Errorf("%w: the name %s belongs to the key with the fingerprint %s until %s (name the peer otherwise, or wait)",
			ErrIssuer, s.IdentityName(), peer.Fingerprint(holder), until.UTC().Format(time.RFC3339))
	}
	return nil
}

// LocalCAOptions configure a LocalCA.
type LocalCAOptions struct {
	// CertFile and KeyFile are PEM files; the CA must serve this purpose only.
	CertFile, KeyFile string
	// TTL of an identity; 0 means MaxTTL.
	TTL time.Duration
	// ClusterCA holds the PEM certificates that signed the API server's own, if known: that CA is
	// refused here.
	ClusterCA []byte
	// Ledger and Logger may be nil.
	Ledger Ledger
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// LocalCA issues client certificates with a CA kept for this purpose. The API server must trust it
// for clients (--client-ca-file). It is safe for concurrent use.
type LocalCA struct {
	o    LocalCAOptions
	cert *x509.Certificate
	key  crypto.Signer

	mu     sync.Mutex
	recent map[requestID]*recentIssue
	issued map[peer.PublicKey][]time.Time // expiry of what the ledger could not store
}

// requestID is a peer with its user, and the key that it requests a certificate for.
type requestID struct {
	peer peer.PublicKey
	user string
	spki [sha256.Size]byte
}

// recentIssue is filled in by its creator, so that of concurrent requests one signs and the others
// wait.
type recentIssue struct {
	once sync.Once
	at   time.Time
	out  Issuance
	err  error
}

// Issue implements [Issuer].
func (ca *LocalCA) Issue(_ context.Context, s Subject, csrPEM []byte) (Issuance, error) {
	csr, err := parseCSR(csrPEM)
	if err != nil {
		return Issuance{}, err
	}
	if err := checkSubject(csr, s.User()); err != nil {
		return Issuance{}, err
	}
	id := requestID{peer: s.PublicKey, user: s.User(), spki: sha256.Sum256(csr.RawSubjectPublicKeyInfo)}
	now := ca.o.Now()
	if err := CheckHolder(ca.o.Ledger, s, now); err != nil {
		return Issuance{}, err
	}
	r := ca.remember(id, now)
	again := true
	r.once.Do(func() {
		again = false
		r.out, r.err = ca.sign(s, csr.PublicKey, now)
	})
	if r.err != nil {
		ca.mu.Lock()
		if ca.recent[id] == r {
			delete(ca.recent, id)
		}
		ca.mu.Unlock()
		return Issuance{}, r.err
	}
	out := r.out
	out.Again = again
	return out, nil
}

// remember finds or creates the entry of a request, and drops expired ones.
func (ca *LocalCA) remember(id requestID, now time.Time) *recentIssue {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	for k, r := range ca.recent {
		if age := now.Sub(r.at); age > ca.repeat() || age < 0 {
			delete(ca.recent, k)
		}
	}
	r := ca.recent[id]
	if r == nil {
		r = &recentIssue{at: now}
		ca.recent[id] = r
	}
	return r
}

// repeat is repeatFor, or less if certificates are short-lived.
func (ca *LocalCA) repeat() time.Duration { return min(repeatFor, ca.o.TTL/4) }

// sign creates a certificate. It uses nothing of the request but its key.
func (ca *LocalCA) sign(s Subject, key crypto.PublicKey, now time.Time) (Issuance, error) {
	if !now.Before(ca.cert.NotAfter) {
		return Issuance{}, fmt.Errorf("%w: the CA in %s expired at %s (make a new one)", ErrIssuer, ca.o.CertFile, ca.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return Issuance{}, fmt.Errorf("%w: %w", ErrIssuer, err)
	}
	notBefore := later(now.Add(-backdate), ca.cert.NotBefore).Truncate(time.Second)
	notAfter := earlier(now.Add(ca.o.TTL), notBefore.Add(MaxTTL), ca.cert.NotAfter).Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: s.User()},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, // and not a CA
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key)
	if err != nil {
		return Issuance{}, fmt.Errorf("%w: %w", ErrIssuer, err)
	}
	out := Issuance{
		CertificatePEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Serial:         serial.Text(16),
		NotAfter:       notAfter,
	}
	ca.record(s, out, now)
	return out, nil
}

// record records what was issued. A full disk must not cut peers off from the API server: then it
// is recorded in memory.
func (ca *LocalCA) record(s Subject, out Issuance, now time.Time) {
	if ca.o.Ledger != nil {
		err := ca.o.Ledger.RecordIssued(s.PublicKey, s.IdentityName(), out.Serial, now, out.NotAfter)
		if err == nil {
			return
		}
		ca.o.Logger.Warn("failed to record an issued identity", slog.String("peer", s.Name), slog.Any("error", err))
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	ca.issued[s.PublicKey] = append(valid(ca.issued[s.PublicKey], now), out.NotAfter)
}

// Tokens implements [Issuer].
func (ca *LocalCA) Tokens() bool { return false }

// User implements [Issuer].
func (ca *LocalCA) User(s Subject) string { return s.User() }

// Revoke implements [Issuer]. Certificates cannot be revoked: they expire.
func (ca *LocalCA) Revoke(s Subject) Revocation {
	now := ca.o.Now()
	var r Revocation
	if ca.o.Ledger != nil {
		r.Outstanding, r.NotAfter = ca.o.Ledger.LastIssued(s.PublicKey, now)
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	for _, end := range valid(ca.issued[s.PublicKey], now) {
		r.Outstanding++
		r.NotAfter = later(r.NotAfter, end)
	}
	maps.DeleteFunc(ca.recent, func(id requestID, _ *recentIssue) bool { return id.peer == s.PublicKey })
	return r
}

// valid returns the times still in the future.
func valid(ends []time.Time, now time.Time) []time.Time {
	var out []time.Time
	for _, end := range ends {
		if now.Before(end) {
			out = append(out, end)
		}
	}
	return out
}

// newSerial returns 127 random bits, more than the 64 that the CA/Browser Forum requires (Baseline
// Requirements 7.1) and fewer than RFC 5280's 20 octets.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil // RFC 5280 §4.1.2.2: positive
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a time.Time, more ...time.Time) time.Time {
	for _, b := range more {
		if b.Before(a) {
			a = b
		}
	}
	return a
}

// sameKey compares public keys by their encoding.
func sameKey(a, b any) bool {
	x, errX := x509.MarshalPKIXPublicKey(a)
	y, errY := x509.MarshalPKIXPublicKey(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
