package csr

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// MinTTL is the minimum that Kubernetes grants (expirationSeconds), MaxTTL the maximum that
	// the policy permits, and DefaultTTL the default.
	MinTTL     = 10 * time.Minute
	MaxTTL     = 24 * time.Hour
	DefaultTTL = time.Hour

	// issueTimeout is how long Issue polls for the certificate: the peer waits 20 s at most.
	issueTimeout = 15 * time.Second
	// lastLook is the additional time for the last poll: if it were cut off, its error would be
	// the timeout instead of what is missing.
	lastLook = 2 * time.Second
	// requestTimeout bounds one request to the API server.
	requestTimeout = 5 * time.Second
	// firstPoll and maxPoll pace the polling for the certificate: a signer takes some
	// milliseconds unless overloaded.
	firstPoll = 100 * time.Millisecond
	maxPoll   = time.Second
	// keepFor is how long objects are kept for repeated requests, and how long a denial counts.
	keepFor = 5 * time.Minute
	// firstRetry and maxRetry pace retries when the API server does not answer.
	firstRetry = 250 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// Options configure an Issuer.
type Options struct {
	// Gateway is the name of this gateway, a label of its objects.
	Gateway string
	// TTL of a certificate, MinTTL to MaxTTL; 0 means DefaultTTL. The signer may shorten it.
	TTL time.Duration
	// Ledger records issued certificates; it may be nil.
	Ledger auth.Ledger
	// Report is called with what keeps the issuer from issuing, or an empty list. It must not
	// block, and may be nil.
	Report func([]check.OwnProblem)
	// Logger may be nil.
	Logger *slog.Logger
}

// Issuer issues certificates signed by the cluster. It is an auth.RequestIssuer, and safe for
// concurrent use. It issues to the peers of SetPeers; Run deletes old objects.
type Issuer struct {
	o       Options
	objects objects
	guard   guard
	wake    wake.Signal

	mu       sync.Mutex
	known    bool // SetPeers was called
	peers    map[string]peer.PublicKey
	problems map[string]check.OwnProblem // by peer; that of the guard by ""
}

var _ auth.RequestIssuer = (*Issuer)(nil)

// New returns an issuer in a cluster. It sends no request yet.
func New(c *kube.Cluster, o Options) (*Issuer, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return nil, fmt.Errorf("csr: ttl %s must be between %s and %s", o.TTL, MinTTL, MaxTTL)
	}
	objects, err := newObjects(c, o)
	if err != nil {
		return nil, err
	}
	return &Issuer{o: o, objects: objects, guard: guard{objects: objects}, wake: wake.New(), problems: map[string]check.OwnProblem{}}, nil
}

// Tokens implements auth.Issuer.
func (*Issuer) Tokens() bool { return false }

// Verbatim implements auth.RequestIssuer.
func (*Issuer) Verbatim() {}

// User implements auth.Issuer. The gateway's name in it separates its peers from those of other
// gateways in the cluster, which the policy enforces.
func (i *Issuer) User(s auth.Subject) string { return i.objects.user(s) }

// Issue returns a certificate for the request. A repeated request gets the same one.
func (i *Issuer) Issue(ctx context.Context, s auth.Subject, csrPEM []byte) (auth.Issuance, error) {
	if !i.isPeer(s) {
		return auth.Issuance{}, fmt.Errorf("%w: %s is no peer to issue to", auth.ErrIssuer, s.Name)
	}
	request, err := auth.ExactRequest(csrPEM, i.User(s))
	if err != nil {
		return auth.Issuance{}, err
	}
	if err := auth.CheckHolder(i.o.Ledger, s, time.Now()); err != nil {
		return auth.Issuance{}, err
	}
	ctx, cancel := context.WithTimeout(i.logged(ctx), issueTimeout+lastLook)
	defer cancel()
	out, err := i.issue(ctx, s, request, time.After(issueTimeout))
	i.wake.Set() // so that the object is deleted in time
	if !i.isPeer(s) {
		return auth.Issuance{}, fmt.Errorf("%w: %s is no longer a peer to issue to", auth.ErrIssuer, s.Name)
	}
	i.note(s.Name, err)
	if err != nil {
		return auth.Issuance{}, wrapped(err)
	}
	if i.o.Ledger != nil { // also for a repeated request: the first answer may not have been recorded
		if err := i.o.Ledger.RecordIssued(s.PublicKey, s.IdentityName(), out.Serial, time.Now(), out.NotAfter); err != nil {
			i.o.Logger.Warn("failed to record an issued identity", "peer", s.Name, "error", err)
		}
	}
	return out, nil
}

// wrapped wraps an error in an auth.ErrIssuer.
func wrapped(err error) error {
	if errors.Is(err, auth.ErrIssuer) || errors.Is(err, auth.ErrCSR) {
		return err
	}
	return fmt.Errorf("%w: %w", auth.ErrIssuer, err)
}

// issue continues from the current state of the request's object, until there is a certificate or
// enough fires.
func (i *Issuer) issue(ctx context.Context, s auth.Subject, request *x509.CertificateRequest, enough <-chan time.Time) (auth.Issuance, error) {
	if err := i.guard.check(ctx, time.Now()); err != nil {
		i.noteGuard(err)
		return auth.Issuance{}, err
	}
	i.noteGuard(nil)
	want := i.objects.wanted(s, request)
	pause, made := newBackoff(firstPoll, maxPoll), false
	for {
		have, created, err := i.objects.ensure(ctx, want)
		made = made || created
		if err == nil {
			out, done, stepErr := i.step(ctx, s, request, have)
			if done && stepErr == nil {
				out.Again = !made
				return out, nil
			}
			err = stepErr
		}
		if err != nil && !transient(err) {
			return auth.Issuance{}, explain(err, want.Name)
		}
		select {
		case <-time.After(pause.NextBackOff()):
			continue
		case <-enough:
		case <-ctx.Done():
		}
		if err == nil {
			err = unsigned(want.Name)
		}
		return auth.Issuance{}, explain(err, want.Name)
	}
}

// step performs the next step for an object.
func (i *Issuer) step(ctx context.Context, s auth.Subject, request *x509.CertificateRequest, have *object) (out auth.Issuance, done bool, err error) {
	switch state, why := have.state(); state {
	case stateDenied:
		if have.age() > keepFor { // whoever denied it may decide differently now
			return out, false, i.objects.delete(ctx, have)
		}
		return out, false, denied(have.Name, why)
	case stateFailed:
		if have.age() > keepFor {
			return out, false, i.objects.delete(ctx, have)
		}
		return out, false, failed(have.Name, why)
	case statePending:
		return out, false, i.objects.approve(ctx, have)
	case stateSigned:
		out, err := accept(have.Status.Certificate, i.User(s), request, time.Now())
		if errors.Is(err, errTooOld) {
			return out, false, i.objects.delete(ctx, have)
		}
		return out, true, err
	}
	return out, false, nil // approved: wait for the signer
}

// SetPeers sets the peers that may have an identity. Run deletes the objects of all others.
func (i *Issuer) SetPeers(peers []auth.Subject) {
	next := make(map[string]peer.PublicKey, len(peers))
	for _, p := range peers {
		next[p.Name] = p.PublicKey
	}
	i.mu.Lock()
	changed := !i.known
	for name, key := range i.peers {
		changed = changed || next[name] != key
	}
	i.known, i.peers = true, next
	i.mu.Unlock()
	if changed {
		i.wake.Set()
	}
	i.forget(next)
}

// Revoke implements auth.Issuer: nothing more is issued to the peer, and its certificates end by
// their expiry.
func (i *Issuer) Revoke(s auth.Subject) auth.Revocation {
	i.mu.Lock()
	if i.peers[s.Name] == s.PublicKey {
		delete(i.peers, s.Name)
	}
	i.mu.Unlock()
	i.wake.Set()
	var r auth.Revocation
	if i.o.Ledger != nil {
		r.Outstanding, r.NotAfter = i.o.Ledger.LastIssued(s.PublicKey, time.Now())
	}
	return r
}

func (i *Issuer) isPeer(s auth.Subject) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	have, ok := i.peers[s.Name]
	return ok && have == s.PublicKey
}

// logged makes client-go log to our logger instead of the process's stderr.
func (i *Issuer) logged(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(i.o.Logger.Handler()))
}

func newBackoff(first, longest time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, longest
	return b
}
