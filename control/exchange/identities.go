package exchange

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// storeEvery is how often a peer's identity is written to the state, after storeAtOnce writes in a
// row. Several can arrive within minutes when either side rotates its key, or a grant is removed
// and restored. An identity that waits to be written is in use; if a restart loses it, another is
// requested.
const (
	storeEvery  = 5 * time.Minute
	storeAtOnce = 5
)

// identities holds what peers issue to us, and limits how often it is written, since peers set the
// pace. It is safe for concurrent use.
type identities struct {
	store auth.IdentityStore

	mu   sync.Mutex
	kept map[peer.PublicKey]*keptIdentity // those received in this run
}

type keptIdentity struct {
	certPEM, keyPEM []byte
	waits           bool // not stored yet
	pace            *rate.Limiter
}

// Identity returns the latest one.
func (i *identities) Identity(k peer.PublicKey) (certPEM, keyPEM []byte, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if x := i.kept[k]; x != nil && x.waits {
		return x.certPEM, x.keyPEM, true
	}
	return i.store.Identity(k)
}

// SetIdentity keeps one, and writes it unless that would be too often.
func (i *identities) SetIdentity(k peer.PublicKey, certPEM, keyPEM []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	x := i.kept[k]
	if x == nil {
		x = &keptIdentity{pace: rate.NewLimiter(rate.Every(storeEvery), storeAtOnce)}
		if i.kept == nil {
			i.kept = map[peer.PublicKey]*keptIdentity{}
		}
		i.kept[k] = x
	}
	x.certPEM, x.keyPEM, x.waits = certPEM, keyPEM, true
	return i.write(time.Now(), k, x)
}

// due writes a waiting identity once it may.
func (i *identities) due(now time.Time, k peer.PublicKey) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if x := i.kept[k]; x != nil && x.waits {
		return i.write(now, k, x)
	}
	return nil
}

func (i *identities) write(now time.Time, k peer.PublicKey, x *keptIdentity) error {
	if !x.pace.AllowN(now, 1) {
		return nil
	}
	err := i.store.SetIdentity(k, x.certPEM, x.keyPEM)
	x.waits = err != nil
	return err
}

// forget drops the identities of keys that no peer has any more.
func (i *identities) forget(gone func(peer.PublicKey) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.kept, func(k peer.PublicKey, _ *keptIdentity) bool { return gone(k) })
}
