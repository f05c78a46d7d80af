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

// identityKeepers obtain and renew the identities that peers issue to us. There is one keeper for
// each peer that offers both auth and its API server.
type identityKeepers struct {
	x      *Exchange
	stored identities

	mu       sync.Mutex
	closed   bool
	keepers  map[string]*runningKeeper // by peer name
	renewals map[peer.PublicKey]*renewal
}

// renewal is the state of replacing a peer's identity.
type renewal struct {
	// pace limits requests for a new identity; at is the time of the last one.
	pace *rate.Limiter
	at   time.Time
	// told limits how often it is logged that the peer says ours has ended.
	told *rate.Limiter
	// due says that a replacement was wanted too soon and is still to do.
	due bool
}

type runningKeeper struct {
	key    peer.PublicKey
	keeper *auth.Keeper
	cancel context.CancelFunc
	done   chan struct{}
	// direct is how it was last configured to ask outside the tunnel; guarded by
	// identityKeepers.mu.
	direct check.DirectFacts
}

// stop ends the keeper and waits for it: nothing is stored afterwards.
func (k *runningKeeper) stop() {
	k.cancel()
	<-k.done
}

func newIdentityKeepers(x *Exchange) *identityKeepers {
	return &identityKeepers{x: x, stored: identities{store: x.o.Store}, keepers: map[string]*runningKeeper{}, renewals: map[peer.PublicKey]*renewal{}}
}

// setPeers stops the keepers of peers that are gone or no longer offer us an identity, and starts
// those of peers that do.
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

// setPeer starts or stops one peer's keeper.
func (i *identityKeepers) setPeer(m *roster.Member) {
	if i.x.offersIdentity(m) {
		i.start(m)
	} else if i.end(m.Name) {
		i.mu.Lock()
		i.renewal(m.Key).due = true // the identity may end with the grant
		i.mu.Unlock()
	}
}

// end stops a peer's keeper and waits for it. It reports whether there was one.
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

// renewal returns the renewal state of a peer's identity; i.mu is held.
func (i *identityKeepers) renewal(k peer.PublicKey) *renewal {
	r := i.renewals[k]
	if r == nil {
		r = &renewal{pace: rate.NewLimiter(rate.Every(renewPace), renewAtOnce), told: rate.NewLimiter(rate.Every(renewEvery), renewAtOnce)}
		i.renewals[k] = r
	}
	return r
}

// offersIdentity reports whether the peer lets us request an identity and grants us something to
// use it for.
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

// start starts a peer's keeper unless there is one.
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
		OnDoubt:  func() { i.x.checks.Wake(m.Name) }, // otherwise the API server would look healthy for minutes
	})
	if err != nil {
		i.x.log.Error("cannot start renewing the identity at a peer", "peer", m.Name, "error", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &runningKeeper{key: m.Key, direct: m.Direct, keeper: keeper, cancel: cancel, done: make(chan struct{})}
	i.keepers[m.Name] = k
	if r := i.renewals[m.Key]; r != nil && r.due { // a keeper that comes back asks at once
		i.renewLocked(time.Now(), m)
	}
	go func() {
		defer close(k.done)
		if err := keeper.Run(ctx); err != nil {
			i.x.log.Error("stopped renewing the identity at a peer", "peer", m.Name, "error", err)
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

// wake retries a waiting request now.
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

// renew replaces an identity that the peer's API server rejects, but at most once in renewEvery.
func (i *identityKeepers) renew(now time.Time, m *roster.Member) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := i.renewals[m.Key]; r == nil || now.Sub(r.at) >= renewEvery {
		i.renewLocked(now, m)
	}
}

// renewLocked replaces the identity unless that was requested too often; done reports which.
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

// tell logs why an identity is replaced, at a limited rate, since the peer sets the pace; i.mu is
// held.
func (i *identityKeepers) tell(now time.Time, m *roster.Member, why string) {
	if i.renewal(m.Key).told.AllowN(now, 1) {
		i.x.log.Info("requesting a new identity", "peer", m.Name, "reason", why)
	}
}

// ended is renew on the peer's word, which comes once. renewDue later does what came too often.
func (i *identityKeepers) ended(now time.Time, m *roster.Member) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.renewLocked(now, m) {
		i.tell(now, m, "the peer says that the account of our identity is gone or its issuer was switched")
	} else if r := i.renewals[m.Key]; r != nil {
		r.due = true
	}
}

// renewDue does what came too often for ended, and covers what no report mentioned. heard is the
// peer's latest report. If our identity is older than that report and the report ties it to
// nothing, the identity ended before we learned what it was tied to.
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

// shown adds the identity in use to the facts of a check.
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

// status returns the identity that a peer issued to us; nil if there is none.
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

// retriedSoon is how soon the next attempt must be for a caller to wait for it.
const retriedSoon = 5 * time.Second

// Credential returns the identity that the peer issued to us.
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

// requestIdentity returns a function that requests an identity from a peer, on the path that its
// mode currently selects.
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
