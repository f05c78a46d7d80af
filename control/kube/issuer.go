package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// issueTimeout bounds one Issue, including retries: the peer waits for it, 20 s at most.
	issueTimeout = 15 * time.Second
	// firstRetry and maxRetry pace the retries while the API server does not answer. A removed peer
	// should not profit from an outage for long after it.
	firstRetry = 250 * time.Millisecond
	maxRetry   = 10 * time.Second
)

// TokenIssuerOptions configure a TokenIssuer.
type TokenIssuerOptions struct {
	// Gateway is the name of this gateway, which its accounts have as a label.
	Gateway string
	// Namespace is the accounts' namespace. It must exist, and hold nothing else.
	Namespace string
	// TTL of a token, which the API server may shorten; at least 10 min.
	TTL time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// TokenIssuer issues tokens of one ServiceAccount per peer. It is an auth.Issuer, and safe for
// concurrent use. It issues to the peers of SetPeers, and Run removes all other accounts.
type TokenIssuer struct {
	o        TokenIssuerOptions
	accounts accounts
	wake     wake.Signal

	incarnations incarnations

	mu    sync.Mutex
	known bool                      // SetPeers was called
	peers map[string]peer.PublicKey // by identity name
}

var _ auth.Issuer = (*TokenIssuer)(nil)

// NewTokenIssuer returns an issuer in a cluster. It sends no request yet.
func NewTokenIssuer(c *Cluster, o TokenIssuerOptions) *TokenIssuer {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &TokenIssuer{
		o: o, accounts: accounts{cluster: c, namespace: o.Namespace, gateway: o.Gateway},
		wake: wake.New(),
	}
}

// Tokens implements auth.Issuer.
func (*TokenIssuer) Tokens() bool { return true }

// User implements auth.Issuer.
func (t *TokenIssuer) User(s auth.Subject) string {
	return "system:serviceaccount:" + t.o.Namespace + ":" + nameOf(s)
}

// Issue returns a token of the peer's account, which is created if needed. It ignores the signing
// request.
func (t *TokenIssuer) Issue(ctx context.Context, s auth.Subject, _ []byte) (auth.Issuance, error) {
	if !t.isPeer(s) {
		return auth.Issuance{}, fmt.Errorf("%w: %s is no peer to issue to", auth.ErrIssuer, s.Name)
	}
	ctx, cancel := context.WithTimeout(t.logged(ctx), issueTimeout)
	defer cancel()
	out, err := t.issue(ctx, s)
	// The peer may have been removed meanwhile, and its account deleted before it was created here:
	// then it must be deleted again.
	if !t.isPeer(s) {
		t.wake.Set()
		return auth.Issuance{}, fmt.Errorf("%w: %s is no longer a peer to issue to", auth.ErrIssuer, s.Name)
	}
	return out, err
}

func (t *TokenIssuer) issue(ctx context.Context, s auth.Subject) (auth.Issuance, error) {
	seconds := int64(math.Ceil(t.o.TTL.Seconds()))
	pause := newBackoff()
	for {
		out, err := t.try(ctx, s, seconds)
		if err == nil {
			return out, nil
		}
		if !transient(err) {
			return auth.Issuance{}, t.accounts.explain(err)
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return auth.Issuance{}, t.accounts.explain(err)
		}
	}
}

func (t *TokenIssuer) try(ctx context.Context, s auth.Subject, seconds int64) (auth.Issuance, error) {
	uid, err := t.accounts.ensure(ctx, s)
	if err != nil {
		return auth.Issuance{}, err
	}
	got, err := t.accounts.token(ctx, s, uid, seconds)
	if err != nil {
		return auth.Issuance{}, err
	}
	token := auth.Token(got.Status.Token)
	if token == "" || got.Status.ExpirationTimestamp.IsZero() {
		return auth.Issuance{}, fmt.Errorf("%w: the API server at %s gave no token", auth.ErrIssuer, t.accounts.cluster.server)
	}
	return auth.Issuance{Token: token, Serial: token.ID(), NotAfter: got.Status.ExpirationTimestamp.Time}, nil
}

// SetPeers sets the peers that may have an identity. Run deletes all other accounts.
func (t *TokenIssuer) SetPeers(peers []auth.Subject) {
	next := make(map[string]peer.PublicKey, len(peers))
	for _, p := range peers {
		next[p.IdentityName()] = p.PublicKey
	}
	t.mu.Lock()
	removed := !t.known
	for name, key := range t.peers {
		removed = removed || next[name] != key
	}
	t.known, t.peers = true, next
	t.mu.Unlock()
	if removed {
		t.wake.Set()
	}
}

// Revoke implements auth.Issuer: from now on nothing is issued to the peer, and its account is
// deleted.
func (t *TokenIssuer) Revoke(s auth.Subject) auth.Revocation {
	t.mu.Lock()
	if name := s.IdentityName(); t.peers[name] == s.PublicKey {
		delete(t.peers, name)
	}
	t.mu.Unlock()
	t.wake.Set()
	return auth.Revocation{Recalled: true}
}

func (t *TokenIssuer) isPeer(s auth.Subject) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	have, ok := t.peers[s.IdentityName()]
	return ok && have == s.PublicKey
}

// Run first reports what would keep the issuer from issuing. Once SetPeers has been called, and
// whenever a peer is removed, it deletes the accounts of all others, with retries. It returns when
// ctx ends.
func (t *TokenIssuer) Run(ctx context.Context) {
	defer t.accounts.cluster.close()
	ctx = t.logged(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { t.incarnations.run(ctx, t.accounts, t.o) })
	if err := t.accounts.preflight(ctx); err != nil && ctx.Err() == nil {
		t.o.Logger.Warn("cannot issue identities to peers", "namespace", t.o.Namespace, "error", t.accounts.explain(err))
	}
	pause := newBackoff()
	var complained bool
	var reason metav1.StatusReason // of the last logged error; empty if there was no answer
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-again:
		}
		err := t.reconcile(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			again, complained = nil, false
			pause.Reset()
			continue
		}
		wait := pause.NextBackOff()
		again = time.After(wait)
		level := slog.LevelDebug
		if r := apierrors.ReasonForError(err); !complained || r != reason { // messages contain ports
			level, complained, reason = slog.LevelWarn, true, r
		}
		t.o.Logger.Log(ctx, level, "failed to delete the accounts of removed peers; their tokens may still be valid", "namespace", t.o.Namespace, "error", err, "retryIn", wait)
	}
}

// reconcile deletes the accounts of those who are no peers.
func (t *TokenIssuer) reconcile(ctx context.Context) error {
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	if !known {
		return nil
	}
	list, err := t.accounts.list(ctx)
	if err != nil {
		return t.accounts.explain(err)
	}
	var errs []error
	for _, x := range list {
		var key peer.PublicKey
		name := x.Labels[labelPeer]
		if key.UnmarshalText([]byte(x.Annotations[annotationKey])) == nil &&
			t.isPeer(auth.Subject{Name: name, Identity: strings.TrimPrefix(x.Name, accountPrefix), PublicKey: key}) {
			continue
		}
		if err := t.accounts.delete(ctx, &x); err != nil {
			errs = append(errs, t.accounts.explain(err))
			continue
		}
		t.o.Logger.Info("deleted the account of a removed peer; its tokens expire", "peer", name, "account", x.Namespace+"/"+x.Name, "within", auth.RecallTime)
	}
	return errors.Join(errs...)
}

// logged makes client-go use our logger, not the process's stderr.
func (t *TokenIssuer) logged(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(t.o.Logger.Handler()))
}

func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = firstRetry, maxRetry
	return b
}
