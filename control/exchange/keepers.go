package exchange

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/report"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/tunnel/peer"
)

// identityKeepers hold the identities that peers issue to us: a keeper for each peer
// that offers both auth and its API server.
type identityKeepers struct {
	x      *Exchange
	stored identities

	mu       sync.Mutex
	closed   bool
	keepers  map[string]*runningKeeper // by peer name
	renewals map[peer.PublicKey]*renewal
}

// renewal is how it stands with replacing what a peer has issued.
type renewal struct {
	// pace is how often it is asked for another identity, and at when it last was.
	pace *rate.Limiter
	at   time.Time
	// told is how often it is logged that the peer says ours has ended.
	told *rate.Limiter
	// due: another one was wanted, which was too soon.
	due bool
}

type runningKeeper struct {
	key    peer.PublicKey
	keeper *auth.Keeper
	cancel context.CancelFunc
	done   chan struct{}
	// direct is how it was last told to ask outside the tunnel; under identityKeepers.mu.
	direct check.DirectFacts
}

// stop ends the keeper and waits for it: it stores nothing afterwards.
func (k *runningKeeper) stop() {
	k.cancel()
	<-k.done
}

func newIdentityKeepers(x *Exchange) *identityKeepers {
	return &identityKeepers{x: x, stored: identities{store: x.o.Store}, keepers: map[string]*runningKeeper{}, renewals: map[peer.PublicKey]*renewal{}}
}

// setPeers ends the keepers of peers that are gone and of those that offer us no
// identity any more, and starts those of peers that do.
func (i *identityKeepers) setPeers(r *roster.Roster) {
	i.mu.Lock()
	var gone []string
	for name, k := range i.keepers {
		if m := r.ByName(name); m == nil || m.Key != k.key {
			gone = append(gone, name)
		}
	}
	left := func(k peer.PublicKey) bool { return r.ByKey(k) == nil }
	maps.DeleteFunc(i.renewals, func(k peer.PublicKey, _ *renewal) bool { return left(k) })
	i.mu.Unlock()
	i.stored.forget(left)
	for _, name := range gone {
		i.end(name)
	}
	for _, m := range r.Members() {
		i.setPeer(m)
	}
}

// setPeer starts or ends one peer's keeper.
func (i *identityKeepers) setPeer(m *roster.Member) {
	if i.x.offersIdentity(m) {
		i.start(m)
	} else if i.end(m.Name) {
		i.mu.Lock()
		i.renewal(m.Key).due = true // what it issued may end with the grant
		i.mu.Unlock()
	}
}

// end ends the keeper of a peer and waits for it. It reports whether there was one.
func (i *identityKeepers) end(name string) bool {
	i.mu.Lock()
	k := i.keepers[name]
	delete(i.keepers, name)
	i.mu.Unlock()
	if k != nil {
		k.stop()
	}
	return k != nil
}

// renewal is how it stands with a peer's identity; i.mu is held.
func (i *identityKeepers) renewal(k peer.PublicKey) *renewal {
	r := i.renewals[k]
	if r == nil {
		r = &renewal{pace: rate.NewLimiter(rate.Every(renewPace), renewAtOnce), told: rate.NewLimiter(rate.Every(renewEvery), renewAtOnce)}
		i.renewals[k] = r
	}
	return r
}

// offersIdentity reports whether the peer grants us what an identity is for, and asking
// for it.
func (x *Exchange) offersIdentity(m *roster.Member) bool {
	if m.Stock || m.Pending {
		return false
	}
	if m.Mode == api.ModeOutOfBand {
		return m.Direct.AuthURL != ""
	}
	offers := x.Offers(m)
	return slices.Contains(offers, api.ServiceAuth) && slices.Contains(offers, api.ServiceAPIServer)
}

// start makes a peer's keeper unless there is one.
func (i *identityKeepers) start(m *roster.Member) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return
	}
	if k := i.keepers[m.Name]; k != nil {
		if !reflect.DeepEqual(k.direct, m.Direct) { // another token, perhaps the right one
			k.direct = m.Direct
			k.keeper.Wake()
		}
		return
	}
	keeper, err := auth.NewKeeper(auth.KeeperOptions{
		Peer: m.Key, Name: m.Name, Request: i.x.requestIdentity(m), Store: &i.stored, Logger: i.x.log,
		OnChange: func(auth.Identity) { i.x.checks.Wake(m.Name); i.x.o.Changed() },
		OnDoubt:  func() { i.x.checks.Wake(m.Name) }, // or the API server would seem well for minutes
	})
	if err != nil {
		i.x.log.Error("the identity for a peer cannot be kept", "peer", m.Name, "error", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &runningKeeper{key: m.Key, direct: m.Direct, keeper: keeper, cancel: cancel, done: make(chan struct{})}
	i.keepers[m.Name] = k
	if r := i.renewals[m.Key]; r != nil && r.due { // what returns asks at once
		i.renewLocked(time.Now(), m)
	}
	go func() {
		defer close(k.done)
		if err := keeper.Run(ctx); err != nil {
			i.x.log.Error("the identity for a peer is no longer kept", "peer", m.Name, "error", err)
		}
	}()
}

func (i *identityKeepers) close() {
	i.mu.Lock()
	i.closed = true
	keepers := i.keepers
	i.keepers = nil
	i.mu.Unlock()
	for _, k := range keepers {
		k.stop()
	}
}

// wake makes a request that waits for its next try be made now.
func (i *identityKeepers) wake(name string) {
	if k := i.keeper(name); k != nil {
		k.Wake()
	}
}

func (i *identityKeepers) keeper(name string) *auth.Keeper {
	i.mu.Lock()
	defer i.mu.Unlock()
	if k := i.keepers[name]; k != nil {
		return k.keeper
	}
	return nil
}

// renew has a peer's identity replaced, which its API server refuses, but not twice within
// renewEvery.
func (i *identityKeepers) renew(now time.Time, m *roster.Member) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := i.renewals[m.Key]; r == nil || now.Sub(r.at) >= renewEvery {
		i.renewLocked(now, m)
	}
}

// renewLocked has it replaced unless that was asked for too often; done says whether.
func (i *identityKeepers) renewLocked(now time.Time, m *roster.Member) (done bool) {
	k := i.keepers[m.Name]
	if k == nil || k.key != m.Key {
		return false
	}
	r := i.renewal(m.Key)
	if !r.pace.AllowN(now, 1) {
		return false
	}
	r.at, r.due = now, false
	k.keeper.Renew()
	return true
}

// tell logs why an identity is replaced, but not at the peer's pace; i.mu is held.
func (i *identityKeepers) tell(now time.Time, m *roster.Member, why string) {
	if i.renewal(m.Key).told.AllowN(now, 1) {
		i.x.log.Info("another identity is asked for", "peer", m.Name, "reason", why)
	}
}

// ended is renew on the peer's word, which it gives once: what comes too often is done by
// renewDue.
func (i *identityKeepers) ended(now time.Time, m *roster.Member) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.renewLocked(now, m) {
		i.tell(now, m, "the peer says that the account of our identity is gone or its issuer was switched")
	} else if r := i.renewals[m.Key]; r != nil {
		r.due = true
	}
}

// renewDue does what was too often for ended, and what no word told of: heard is the peer's
// last report, and an identity that came before it and hangs on nothing by it ended before we
// heard on what it hung.
func (i *identityKeepers) renewDue(now time.Time, m *roster.Member, heard heardReport) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := i.renewals[m.Key]; r != nil && r.due {
		i.renewLocked(now, m)
		return
	}
	k := i.keepers[m.Name]
	if heard.Identity != report.NoIdentity || k == nil || k.key != m.Key {
		return
	}
	held, ok := k.keeper.Held(now)
	if ok && held >= reportsCatchUp && held > now.Sub(heard.at) && i.renewLocked(now, m) {
		i.tell(now, m, "the peer says that the account of our identity is gone")
	}
}

// shown adds to the facts of a check the identity in use, if there is one.
func (i *identityKeepers) shown(name string, f *check.Facts) {
	k := i.keeper(name)
	if k == nil {
		return
	}
	id, ok := k.Current()
	if !ok {
		return
	}
	f.Identity, f.User = id.TLS, id.User
	if id.Token != "" {
		f.Token, f.TokenExpires = check.Token(id.Token), id.NotAfter
	}
}

// status is the identity that a peer issued to us; nil when there is none.
func (i *identityKeepers) status(name string) *api.Identity {
	k := i.keeper(name)
	if k == nil {
		return nil
	}
	if t := k.NotAfter(); !t.IsZero() {
		id, _ := k.Current()
		return &api.Identity{User: id.User, NotAfter: t.UTC()}
	}
	return nil
}

// retriedSoon is how near the next try to get an identity must be to be worth waiting for.
const retriedSoon = 5 * time.Second

// Credential is the identity that the peer issued to us.
func (x *Exchange) Credential(_ context.Context, name string) (api.Credential, error) {
	m, err := x.o.Peers.Member(name)
	if err != nil {
		return api.Credential{}, err
	}
	k := x.keepers.keeper(name)
	switch {
	case k != nil:
	case !m.Stock && !m.Pending && x.Offers(m) == nil:
		return api.Credential{}, admin.Soon(fmt.Sprintf("peer %s has not answered yet, and issued no identity", name), fmt.Sprintf("see `postern status %s`", name))
	default:
		return api.Credential{}, admin.Conflict(fmt.Sprintf("peer %s offers us no identity", name),
			fmt.Sprintf("there, run `postern peer allow NAME auth,apiServer`; see `postern status %s`", name))
	}
	id, ok := k.Current()
	if !ok || !time.Now().Before(id.NotAfter) {
		next, err := k.LastError()
		if err == nil {
			return api.Credential{}, admin.Soon(fmt.Sprintf("the identity from %s is on its way", name), "try again in a moment")
		}
		failed := admin.Failed(fmt.Sprintf("there is no valid identity from %s: %v", name, err), "next try at "+next.Format(time.TimeOnly))
		failed.Soon = time.Until(next) < retriedSoon
		return api.Credential{}, failed
	}
	return api.Credential{
		ClientCertificate: string(id.CertificatePEM), ClientKey: string(id.KeyPEM), Token: string(id.Token), NotAfter: id.NotAfter,
	}, nil
}

// requestIdentity asks a peer for an identity, by the way that its mode says at this moment.
func (x *Exchange) requestIdentity(m *roster.Member) func(context.Context, []byte) (auth.Grant, error) {
	inside := auth.NewClient(m.Address(), x.o.Stack.DialContext)
	name, key := m.Name, m.Key
	return func(ctx context.Context, csrPEM []byte) (auth.Grant, error) {
		now := x.o.Peers.Load().ByName(name)
		if now == nil || now.Key != key {
			return auth.Grant{}, errors.New("no longer a peer")
		}
		if now.Mode != api.ModeOutOfBand {
			return inside.AnyIdentity(ctx, csrPEM)
		}
		client, err := auth.NewDirectClient(auth.DirectOptions{
			URL: now.Direct.AuthURL, CA: now.Direct.CA, Token: auth.Token(now.Direct.Token), Dial: x.o.Egress.DialContext,
		})
		if err != nil {
			return auth.Grant{}, err
		}
		return client.AnyIdentity(ctx, csrPEM)
	}
}
