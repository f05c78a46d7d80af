package portmap_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/portmap/faketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const port = 51820

var (
	routerAddr = netip.MustParseAddr("192.168.7.1")
	clientAddr = netip.MustParseAddr("192.168.7.2")
	external   = netip.MustParseAddr("203.0.113.20")
	mapped     = netip.AddrPortFrom(external, port)
)

// world is a router and a mapper that uses it, in virtual time.
type world struct {
	t       *testing.T
	router  *faketest.Router
	mapper  *portmap.Mapper
	options portmap.Options
	cancel  context.CancelFunc
	running sync.WaitGroup
	began   time.Time

	mu   sync.Mutex
	at   netip.Addr // the router of the default route
	port uint16
}

func inWorld(t *testing.T, o faketest.Options, lies faketest.Lies, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Addr, o.Client = routerAddr, clientAddr
		if !o.External.IsValid() {
			o.External = external
		}
		w := &world{t: t, router: faketest.New(o), at: routerAddr, port: port, began: time.Now()}
		w.options = portmap.Options{
			Secret: []byte("secret"), Dial: w.router.Dial, ListenPacket: w.router.ListenPacket,
			FindRouter: func() (netip.Addr, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if !w.at.IsValid() {
					return netip.Addr{}, errors.New("no default route")
				}
				return w.at, nil
			},
			Port: func() uint16 {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.port
			},
		}
		w.router.Lie(lies)
		w.start()
		f(w)
		w.stop()
		w.router.Close()
	})
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.mapper, err = portmap.New(w.options); err != nil {
		w.t.Fatal(err)
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(w.t.Context())
	m := w.mapper
	w.running.Go(func() {
		if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
			w.t.Errorf("Run: got %v, want context.Canceled", err)
		}
	})
}

func (w *world) stop() {
	w.cancel()
	w.running.Wait()
}

// after lets time pass and returns the status.
func (w *world) after(d time.Duration) portmap.Status {
	time.Sleep(d) // virtual
	synctest.Wait()
	return w.mapper.Status()
}

func (w *world) want(s portmap.Status, state portmap.State, p portmap.Protocol, err string) {
	w.t.Helper()
	if s.State != state || s.Protocol != p || !strings.Contains(s.Err, err) || err == "" && s.Err != "" {
		w.t.Errorf("got %s by %q (%s), want %s by %q (%s)", s.State, s.Protocol, s.Err, state, p, err)
	}
}
