package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/wake"
)

const (
	// A failed request is repeated after 1 s, then at growing intervals up to 2 min: a peer's
	// restart or a lost path should not be noticed, and a dead peer should cost little.
	firstRetry = time.Second
	maxRetry   = 2 * time.Minute
	// A denial is an operator's decision, which seldom changes within seconds.
	deniedRetry = 30 * time.Second
	// wokenAgain is how long after a refusal [Keeper.Wake] may cause another request: each check of
	// a peer that answers wakes its keeper, and a refusal may cause a check.
	wokenAgain = 5 * time.Second
	// shortest is the least time an identity is kept: each one is a write, and the peer decides its
	// lifetime.
	shortest = 10 * time.Second
	// earlyAgain is when a certificate that is not valid yet, because the issuer's clock is ahead,
	// is replaced. The interval then grows, since our own clock may be behind.
	earlyAgain = time.Minute
	// checkClock is how often the keeper compares the wall clock with the deadline: a timer uses
	// the monotonic clock, which stops while a host sleeps and does not follow changes of the wall
	// clock.
	checkClock = time.Minute
)

// IdentityStore keeps identities across restarts. state.Store is one. For a token there is no
// certificate, and keyPEM is its [TokenPEM].
type IdentityStore interface {
	Identity(k peer.PublicKey) (certPEM, keyPEM []byte, ok bool)
	SetIdentity(k peer.PublicKey, certPEM, keyPEM []byte) error
}

// KeeperOptions configure a Keeper.
type KeeperOptions struct {
	// Peer is the issuer, Name its local name.
	Peer peer.PublicKey
	Name string
	// Request requests a certificate or a token: Client.AnyIdentity.
	Request func(ctx context.Context, csrPEM []byte) (Grant, error)
	Store   IdentityStore
	// OnChange is called with every new identity; it may be nil.
	OnChange func(Identity)
	// OnDoubt is called each time the peer refuses to replace an identity after [Keeper.Renew]: the
	// current one may no longer be valid. It may be nil.
	OnDoubt func()
	// Logger may be nil.
	Logger *slog.Logger
}

// Keeper holds the identity that one peer issues to us and renews it after two thirds of its
// lifetime, with jitter so that many peers do not renew at once. It starts with the stored one, so
// that a restart requests nothing. A key is used for one certificate.
type Keeper struct {
	o    KeeperOptions
	wake wake.Signal

	mu      sync.Mutex
	current *Identity
	since   time.Time // when the current one arrived or was loaded, monotonic
	stored  bool      // it was loaded: since is not when it was issued
	err     error
	next    time.Time
	forced  bool // a new one is wanted regardless of the current one
	renewed bool // Renew was called, and Run has not seen it yet

	// Owned by Run, and by NewKeeper before.
	due        time.Time // when to renew, by the wall clock
	keyPEM     []byte    // of the current request
	csrPEM     []byte
	user       string // the user that the issuer told us to ask for; empty if not needed
	retry      *backoff.ExponentialBackOff
	retryAfter time.Time
	refused    time.Time // when the peer last answered with an error; zero if it did not
	early      int       // how many certificates in a row were not valid yet on arrival
}

// NewKeeper returns a keeper with the stored identity. It works once Run is called.
func NewKeeper(o KeeperOptions) (*Keeper, error) {
	if o.Request == nil || o.Store == nil {
		return nil, errors.New("identity keeper: request and store are needed")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = firstRetry, maxRetry
	k := &Keeper{o: o, wake: wake.New(), retry: retry}
	certPEM, keyPEM, ok := o.Store.Identity(o.Peer)
	if !ok {
		return k, nil
	}
	id, err := storedIdentity(certPEM, keyPEM)
	if err != nil {
		o.Logger.Warn("stored identity is unusable; requesting a new one", slog.String("peer", o.Name), slog.Any("error", err))
		return k, nil
	}
	k.current, k.since, k.stored = &id, time.Now(), true
	k.due = renewAt(id)
	return k, nil
}

// Current returns the identity in use, which may have expired; false if there is none.
func (k *Keeper) Current() (Identity, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return Identity{}, false
	}
	return *k.current, true
}

// Held is how long this keeper has had the current identity, which may have been stored before;
// false if there is none, or another one is being requested.
func (k *Keeper) Held(now time.Time) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || k.forced {
		return 0, false
	}
	return now.Sub(k.since), true
}

// NotAfter is the end of the current identity's validity; zero if there is none.
func (k *Keeper) NotAfter() time.Time {
	id, _ := k.Current()
	return id.NotAfter
}

// LastError returns why the last request failed and when the next one is; nil after a success.
func (k *Keeper) LastError() (next time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.next, k.err
}

// Wake retries a waiting request now, because the peer became reachable. It does nothing if no
// request is due, or just after the peer refused.
func (k *Keeper) Wake() { k.signal(false) }

// Renew requests a new identity now, because the current one was rejected.
func (k *Keeper) Renew() { k.signal(true) }

func (k *Keeper) signal(force bool) {
	if force {
		k.mu.Lock()
		k.forced, k.renewed = true, true
		k.mu.Unlock()
	}
	k.wake.Set()
}

// Run maintains the identity until ctx ends, and then returns nil. Call it once.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		woken := false
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-k.wake:
			woken = true
		}
		now := time.Now()
		renewed := k.takeRenewed()
		if renewed { // not for the reason of the last failure
			k.retry.Reset()
		}
		if k.isDue(now) && (renewed || woken && now.Sub(k.refused) >= wokenAgain || !now.Before(k.retryAfter)) {
			k.renew(ctx)
		}
		timer.Reset(k.pause(time.Now()))
	}
}

// takeRenewed reports whether Renew was called since the last call.
func (k *Keeper) takeRenewed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	renewed := k.renewed
	k.renewed = false
	return renewed
}

// isDue reports whether a new identity is needed: by the wall clock or, in case that is behind, by
// how long we have had the current one.
func (k *Keeper) isDue(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || k.forced {
		return true
	}
	life := k.current.NotAfter.Sub(k.current.NotBefore)
	held := now.Sub(k.since)
	if k.current.early(now) && held >= k.earlyWait(life) {
		return true
	}
	if k.stored {
		return !now.Round(0).Before(k.due)
	}
	if held < max(life/4, shortest) { // it is new, whatever our clock says
		return false
	}
	return !now.Round(0).Before(k.due) || held >= life/3*2
}

// earlyWait is how long to keep a certificate of that lifetime that is not valid yet.
func (k *Keeper) earlyWait(life time.Duration) time.Duration {
	return max(earlyAgain, min(earlyAgain<<min(max(k.early-1, 0), 16), life/2))
}

// pause is the time until the next action, at most checkClock.
func (k *Keeper) pause(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || k.forced || k.err != nil {
		return clamp(k.retryAfter.Sub(now))
	}
	wait := k.due.Sub(now.Round(0))
	if !k.stored {
		life := k.current.NotAfter.Sub(k.current.NotBefore)
		held := now.Sub(k.since)
		wait = max(min(wait, life/3*2-held), max(life/4, shortest)-held)
		if k.current.early(now) {
			wait = min(wait, k.earlyWait(life)-held)
		}
	}
	return clamp(wait)
}

func clamp(d time.Duration) time.Duration { return min(max(d, 10*time.Millisecond), checkClock) }

// renew makes one request. Until it succeeds the same key and signing request are used, so that a
// lost answer is repeated and not another identity issued.
func (k *Keeper) renew(ctx context.Context) {
	id, err := k.obtain(ctx)
	if ctx.Err() != nil && err != nil {
		return
	}
	if err != nil {
		k.failed(err)
		return
	}
	k.keyPEM, k.csrPEM = nil, nil
	k.retry.Reset()
	if id.early(time.Now()) {
		k.early++
	} else {
		k.early = 0
	}
	k.mu.Lock()
	first := k.current == nil
	k.current, k.since, k.stored = &id, time.Now(), false
	k.err, k.next, k.forced = nil, time.Time{}, false
	k.mu.Unlock()
	k.due, k.retryAfter = renewAt(id), time.Time{}
	if err := k.o.Store.SetIdentity(k.o.Peer, id.CertificatePEM, id.storedSecret()); err != nil {
		k.o.Logger.Warn("failed to store the identity; a restart will lose it", slog.String("peer", k.o.Name), slog.Any("error", err))
	}
	k.o.Logger.Info("identity obtained", slog.String("peer", k.o.Name), slog.Bool("first", first), slog.String("user", id.User), slog.Time("notAfter", id.NotAfter))
	if k.o.OnChange != nil {
		k.o.OnChange(id)
	}
}

func (k *Keeper) obtain(ctx context.Context) (Identity, error) {
	granted, err := k.ask(ctx)
	if err == nil && granted.User != "" {
		if k.user = userAsked(granted.User); k.user == "" {
			return Identity{}, fmt.Errorf("ask %s for an identity: %w: the user that it tells to ask for is no peer's", k.o.Name, ErrAnswer)
		}
		k.keyPEM, k.csrPEM = nil, nil
		granted, err = k.ask(ctx)
	}
	if err != nil {
		if errors.Is(err, ErrDenied) && k.user != "" { // we may have another name there now
			k.user, k.keyPEM, k.csrPEM = "", nil, nil
		}
		return Identity{}, fmt.Errorf("ask %s for an identity: %w", k.o.Name, err)
	}
	id, err := granted.identity(k.keyPEM, time.Now())
	if err != nil {
		k.keyPEM, k.csrPEM = nil, nil // the same request might get the same answer
		return Identity{}, fmt.Errorf("ask %s for an identity: %w", k.o.Name, err)
	}
	return id, nil
}

// ask makes one request, with the current key and signing request.
func (k *Keeper) ask(ctx context.Context) (Grant, error) {
	if k.csrPEM == nil {
		keyPEM, csrPEM, err := keyAndCSR(k.user)
		if err != nil {
			return Grant{}, err
		}
		k.keyPEM, k.csrPEM = keyPEM, csrPEM
	}
	return k.o.Request(ctx, k.csrPEM)
}

// userAsked returns the user that another gateway tells us to ask for if it may be a peer's user,
// otherwise nothing.
func userAsked(user string) string {
	if !userForm.MatchString(user) {
		return ""
	}
	return user
}

// failed records an error and when to retry.
func (k *Keeper) failed(err error) {
	wait := k.retry.NextBackOff()
	if errors.Is(err, ErrDenied) || errors.Is(err, ErrNoIssuer) || errors.Is(err, ErrIncompatible) {
		wait = max(wait, deniedRetry)
	}
	if answer, ok := errors.AsType[*Error](err); ok {
		wait = max(wait, answer.RetryAfter)
	}
	answered := !errors.Is(err, ErrUnreachable)
	k.retryAfter, k.refused = time.Now().Add(wait), time.Time{}
	if answered {
		k.refused = time.Now()
	}
	k.mu.Lock()
	news := k.err == nil || k.err.Error() != err.Error()
	k.err, k.next = err, k.retryAfter.Round(0)
	doubtful := k.forced && k.current != nil && answered
	k.mu.Unlock()
	level := slog.LevelDebug
	if news {
		level = slog.LevelWarn
	}
	k.o.Logger.Log(context.Background(), level, "failed to obtain an identity", slog.String("peer", k.o.Name), slog.Any("error", err), slog.Duration("retryIn", wait))
	if doubtful && k.o.OnDoubt != nil {
		k.o.OnDoubt()
	}
}

// renewAt is after two thirds of an identity's lifetime, or up to a twentieth earlier.
func renewAt(id Identity) time.Time {
	life := id.NotAfter.Sub(id.NotBefore)
	jitter := time.Duration(rand.Int64N(int64(life/20) + 1))
	return id.NotBefore.Add(life/3*2 - jitter)
}
