package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// keeper keeps a gateway's state in memory, or does not answer.
type keeper struct {
	mu    sync.Mutex
	files map[string][]byte
	hangs atomic.Bool
	// asked is closed when it is first asked to keep something while it is stuck: then nothing
	// but the caller's own end, or released, makes it answer. That the time is over does not.
	stuck           atomic.Bool
	once            sync.Once
	asked, released chan struct{}
}

func (k *keeper) Load(context.Context) (map[string][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.files), nil
}

func (k *keeper) Save(ctx context.Context, name string, data []byte) error {
	if k.stuck.Load() {
		k.once.Do(func() { close(k.asked) })
		if <-ctx.Done(); !errors.Is(ctx.Err(), context.Canceled) {
			<-k.released
		}
		return ctx.Err()
	}
	if k.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files[name] = bytes.Clone(data)
	return nil
}

// keptWorld is a world whose cloud keeps its state outside of its directory.
func keptWorld(t *testing.T) (*world, *keeper, func() uint16) {
	t.Helper()
	k := &keeper{files: map[string][]byte{}, asked: make(chan struct{}), released: make(chan struct{})}
	var bind atomic.Pointer[underlay.Bind]
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site != "cloud" {
			return
		}
		o.State = k
		open := o.NewUnderlay
		o.NewUnderlay = func(u underlay.Options) *underlay.Bind {
			b := open(u)
			bind.Store(b)
			return b
		}
	})
	return w, k, func() uint16 { return bind.Load().Port() }
}

// newDirectory takes away all that a site has on its disk.
func (w *world) newDirectory(s *lab.Site) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(s.File), "state")); err != nil {
		w.t.Fatal(err)
	}
}

func TestAGatewayGoesOnWithAnEmptyDirectory(t *testing.T) {
	w, _, _ := keptWorld(t)
	w.peer()
	key := w.keyOf(w.Cloud)
	open := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	w.awaitPeer(w.Cloud, "edge", pathRecorded(1))
	w.stop(w.Cloud)
	w.newDirectory(w.Cloud)
	w.start(w.Cloud)
	if got := w.keyOf(w.Cloud); got != key {
		t.Errorf("the key is %s, want %s", got, key)
	}
	w.reach(w.Edge, w.Cloud)
	paris := w.addSite("paris", "203.0.113.77")
	w.join(paris, open, api.JoinRequest{Allow: both})
	w.connected(w.Cloud, paris)
}

func TestForwardingGoesOnWhileTheStateCannotBeKept(t *testing.T) {
	w, k, _ := keptWorld(t)
	s := w.streaming()
	k.hangs.Store(true)
	g := w.Cloud.Gateway
	key := newKey(t).Public().String()
	for what, err := range map[string]error{
		"adding a peer":   g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: key}}),
		"making a ticket": errOf(g.Invite(w.ctx, api.InviteRequest{Allow: both})),
	} {
		if err == nil || !strings.Contains(err.Error(), "not kept outside of this pod") {
			t.Errorf("%s: got %v, want an error that says why not", what, err)
		}
	}
	if err := s.echo("still there"); err != nil {
		t.Errorf("the stream: %v", err)
	}
	w.reach(w.Edge, w.Cloud)
	w.refused("taking a grant", g.PeerAllow(w.ctx, "edge", api.PeerAllowRequest{Allow: both}), false, "not stored")
	s.resetWithin(removal)
	shown := func() (code, cause string) {
		report, err := g.Checks(w.ctx)
		if err != nil {
			return "", err.Error()
		}
		for _, c := range report.Checks {
			if c.Name == "state" {
				return c.Code, c.Cause
			}
		}
		return "", "there is no such check"
	}
	w.await("a check of this gateway says so", func() string {
		if code, cause := shown(); code != state.CodeNotKept {
			return code + " " + cause
		}
		return ""
	})
	k.hangs.Store(false)
	w.await("a peer can be added again", func() string {
		if err := g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: key}}); err != nil {
			return err.Error()
		}
		return ""
	})
	w.await("the check is gone", func() string { code, _ := shown(); return code })
	w.stop(w.Cloud)
	w.newDirectory(w.Cloud)
	w.start(w.Cloud)
	if p, there := w.status(w.Cloud, "edge"); !there || !slices.Equal(p.Allow, both) {
		t.Errorf("edge is %+v, want what it was allowed last", p)
	}
	if _, there := w.status(w.Cloud, "new"); !there {
		t.Error("the added peer is gone")
	}
}

// A gateway that lost its role must be silent at once, whatever it is waiting for: here for an
// API server, and not until that has had its time.
func TestAGatewayThatMustEndIsSilentWhateverItWaitsFor(t *testing.T) {
	w, k, port := keptWorld(t)
	w.streaming()
	k.stuck.Store(true)
	g := w.Cloud.Gateway
	var wg sync.WaitGroup
	defer wg.Wait()
	release := sync.OnceFunc(func() { close(k.released) })
	defer release()
	wg.Go(func() { // a command that waits for the API server
		_ = g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "new", PublicKey: newKey(t).Public().String()}})
	})
	select {
	case <-k.asked:
	case <-time.After(patience.Left()):
		t.Fatal("the API server was not asked")
	}
	start := time.Now()
	wg.Go(func() { w.stop(w.Cloud) })
	w.await("the gateway's port is closed", func() string {
		if p := port(); p != 0 {
			return fmt.Sprintf("it is open at %d", p)
		}
		return ""
	})
	t.Logf("silent after %v", time.Since(start).Round(time.Millisecond))
}
