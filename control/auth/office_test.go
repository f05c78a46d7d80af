package auth

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// cabinet is an IdentityStore that can fail.
type cabinet struct {
	mu        sync.Mutex
	cert, key []byte
	err       error
}

func (c *cabinet) Identity(peer.PublicKey) (certPEM, keyPEM []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert, c.key, c.key != nil
}

func (c *cabinet) SetIdentity(_ peer.PublicKey, certPEM, keyPEM []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.cert, c.key = certPEM, keyPEM
	}
	return c.err
}

// office simulates the peer: it records when it was asked, and signs unless told otherwise.
type office struct {
	t    *testing.T
	life time.Duration
	skew time.Duration // of its clock relative to ours
	ca   *LocalCA

	mu    sync.Mutex
	asked []time.Time
	csrs  [][]byte
	fail  func(n int) error // may be nil
	lose  func(n int) bool  // whether the n-th answer is lost; may be nil
}

func newOffice(t *testing.T, life time.Duration) *office {
	return &office{t: t, life: life, ca: loadCA(t, nil)}
}

func (o *office) Request(_ context.Context, csrPEM []byte) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, time.Now())
	o.csrs = append(o.csrs, csrPEM)
	n := len(o.asked)
	if o.fail != nil {
		if err := o.fail(n); err != nil {
			return nil, err
		}
	}
	r, err := parseCSR(csrPEM)
	if err != nil {
		return nil, err
	}
	from := time.Now().Add(o.skew)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(n)), Subject: pkix.Name{CommonName: "postern:peer:edge"},
		NotBefore: from, NotAfter: from.Add(o.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, o.ca.cert, r.PublicKey, o.ca.key)
	if o.lose != nil && o.lose(n) {
		return nil, &UnreachableError{Address: "[fd00::1]:80", Err: errors.New("lost")}
	}
	return pemOf(o.t, "CERTIFICATE", der, err), nil
}

// times returns the times of the requests since the start.
func (o *office) times(start time.Time) []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []time.Duration
	for _, at := range o.asked {
		out = append(out, at.Sub(start))
	}
	return out
}

// keep runs a keeper of certificates until the end of the test, or stop.
func keep(t *testing.T, request func(context.Context, []byte) ([]byte, error), store IdentityStore, change func(*KeeperOptions)) (k *Keeper, stop func()) {
	t.Helper()
	return keepAny(t, func(ctx context.Context, csrPEM []byte) (Grant, error) {
		certPEM, err := request(ctx, csrPEM)
		return Grant{CertificatePEM: certPEM}, err
	}, store, change)
}

// keepAny is keep for any grant.
func keepAny(t *testing.T, request func(context.Context, []byte) (Grant, error), store IdentityStore, change func(*KeeperOptions)) (k *Keeper, stop func()) {
	t.Helper()
	o := KeeperOptions{Peer: peer.PublicKey{9}, Name: "cloud", Request: request, Store: store}
	if change != nil {
		change(&o)
	}
	k, err := NewKeeper(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return k, stop
}
