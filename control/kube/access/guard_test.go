package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

var (
	podAt   = netip.MustParseAddrPort("10.244.0.7:40000")
	otherAt = netip.MustParseAddrPort("10.244.0.8:40000")
)

// cluster is the guard's source of pods by address.
type cluster struct {
	mu    sync.Mutex
	pods  map[netip.Addr][]pod
	err   error
	hang  chan struct{} // answers wait for it; nil = they do not
	asked int
}

func (c *cluster) find(ctx context.Context, ip netip.Addr) ([]pod, error) {
	c.mu.Lock()
	c.asked++
	hang := c.hang
	c.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused := new(denied); c.err != nil && !errors.As(c.err, &refused) {
		return nil, c.err
	}
	return c.pods[ip], c.err
}

func (c *cluster) set(f func(c *cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func guardOf(c *cluster) *Guard {
	return newGuard(c.find, GuardOptions{Logger: slog.New(slog.DiscardHandler)})
}

func allowed(peers ...string) []pod { return []pod{{name: "tenant/x", peers: peers}} }

func TestWhoMayConnect(t *testing.T) {
	for _, c := range []struct {
		name string
		pods []pod
		from netip.AddrPort
		want string // in the reason; empty = admitted
	}{
		{"with the label", allowed("berlin", "cloud"), podAt, ""},
		{"by the address's other form", allowed("cloud"), netip.AddrPortFrom(netip.AddrFrom16(podAt.Addr().As16()), 1), ""},
		{"with another peer's label", allowed("berlin"), podAt, "pod tenant/x has no label postern.dev/peer-cloud: allow"},
		{"without any", allowed(), podAt, "pod tenant/x has no label"},
		{"that ends", []pod{{name: "tenant/x", peers: []string{"cloud"}, ends: true}}, podAt, "pod tenant/x is being deleted"},
		{"one of two with an address", []pod{{name: "a/x", peers: []string{"cloud"}}, {name: "b/y"}}, podAt, "pod b/y has no label"},
		{"no pod", nil, podAt, "10.244.0.7 is the address of no pod"},
		{"our own pod's containers", nil, netip.MustParseAddrPort("127.0.0.1:1"), ""},
		{"our own pod by its address", nil, netip.MustParseAddrPort("10.244.0.1:1"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard((&cluster{pods: map[netip.Addr][]pod{podAt.Addr(): c.pods}}).find,
					GuardOptions{Own: netip.MustParseAddr("10.244.0.1"), Logger: slog.New(slog.DiscardHandler)})
				err := g.Admit("cloud", api.TCP, c.from)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			})
		})
	}
}

// On its node's network the gateway shares the loopback interface with everything there. A program
// that binds to 127.0.0.1 can connect to a listener at the node's address from it.
func TestProgramsOfTheNodeAreNotTheGatewaysPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardOf(&cluster{}) // without an address of its own
		for _, text := range []string{"127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
			from := netip.MustParseAddrPort(text)
			if err := g.Admit("cloud", api.TCP, from); err == nil || g.Known("cloud", from) {
				t.Errorf("%s: admitted with %v, known: %t", from, err, g.Known("cloud", from))
			}
		}
	})
}

func TestAnswersHoldForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
		g := guardOf(c)
		for range 100 {
			if err := g.Admit("cloud", api.TCP, podAt); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.count(); n != 1 {
			t.Errorf("asked %d times for 100 connections, want once", n)
		}
		// The label is removed: that counts after 10 s.
		c.set(func(c *cluster) { c.pods[podAt.Addr()] = allowed() })
		time.Sleep(admittedFor - time.Millisecond)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("before %v: %v", admittedFor, err)
		}
		time.Sleep(time.Millisecond)
		if err := g.Admit("cloud", api.TCP, podAt); err == nil {
			t.Errorf("admitted %v after the label was taken away", admittedFor)
		}
		// It is added again: that counts after 2 s.
		c.set(func(c *cluster) { c.pods[podAt.Addr()] = allowed("cloud") })
		if err := g.Admit("cloud", api.TCP, podAt); err == nil {
			t.Error("asked again at once")
		}
		time.Sleep(refusedFor)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("%v after the label was given: %v", refusedFor, err)
		}
	})
}

// A pod may connect before its kubelet has published its address.
func TestAPodThatIsNotThereYetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{}}
		g := guardOf(c)
		begun := time.Now()
		time.AfterFunc(time.Second, func() {
			c.set(func(c *cluster) { c.pods[podAt.Addr()] = allowed("cloud") })
		})
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		begun = time.Now()
		if err := g.Admit("cloud", api.TCP, otherAt); err == nil || time.Since(begun) > findTimeout {
			t.Errorf("an address of nobody: %v after %v", err, time.Since(begun))
		}
		n := c.count()
		if err := g.Admit("cloud", api.TCP, otherAt); err == nil || c.count() != n {
			t.Errorf("again: %v, asked %d times more", err, c.count()-n)
		}
	})
}

func TestWhatWasKnownHoldsWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
		g := guardOf(c)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		c.set(func(c *cluster) { c.err = errors.New("connection refused") })
		for time.Since(begun) < staleFor-time.Minute {
			time.Sleep(7 * time.Second)
			if err := g.Admit("cloud", api.TCP, podAt); err != nil {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
			if err := g.Admit("berlin", api.TCP, podAt); err == nil {
				t.Fatalf("after %v: admitted for another peer", time.Since(begun))
			}
		}
		if err := g.Admit("cloud", api.TCP, otherAt); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("of an address that was never known: got %v, want the reason", err)
		}
		time.Sleep(2 * time.Minute)
		if err := g.Admit("cloud", api.TCP, podAt); err == nil {
			t.Errorf("admitted %v after anything was known", time.Since(begun))
		}
		if err := g.Admit("cloud", api.TCP, podAt); err == nil {
			t.Error("admitted when the API server had just failed again")
		}
		c.set(func(c *cluster) { c.err = nil })
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	})
}

func TestManyConnectionsAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}, hang: make(chan struct{})}
		g := guardOf(c)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := g.Admit("cloud", api.TCP, podAt); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // until all wait
		close(c.hang)
		wg.Wait()
		if c.count() != 1 {
			t.Errorf("%d questions, want 1", c.count())
		}
	})
}

// Whoever waits for the guard's own limits says nothing about the API server, and its request then
// has as much time as any.
func TestWaitingForATurnIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 2 * findTimeout / 3
		c := &cluster{pods: map[netip.Addr][]pod{}}
		log := &strings.Builder{}
		g := newGuard(func(ctx context.Context, ip netip.Addr) ([]pod, error) {
			select {
			case <-time.After(takes):
				return c.find(ctx, ip)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, GuardOptions{Logger: slog.New(slog.NewTextHandler(log, nil))})
		g.pace = rate.NewLimiter(1e9, 1e9)
		results := make(chan error, 3*maxAsking)
		for i := range cap(results) {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1)
			c.set(func(c *cluster) { c.pods[at.Addr()] = allowed("cloud") })
			go func() { results <- g.Admit("cloud", api.TCP, at) }()
			synctest.Wait()
		}
		busy := 0
		for range cap(results) {
			if err := <-results; errors.Is(err, errBusy) {
				busy++
			} else if err != nil {
				t.Error(err)
			}
		}
		if busy != maxAsking || log.Len() > 0 {
			t.Errorf("%d had no turn in time, want %d; the log has\n%s", busy, maxAsking, log)
		}
	})
}

func TestTheRateOfRequestsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
		g := newGuard(c.find, GuardOptions{Namespaces: []string{"a", "b"}, Logger: slog.New(slog.DiscardHandler)})
		for i := range 1000 {
			go func() {
				_ = g.Admit("cloud", api.TCP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1))
			}()
		}
		synctest.Wait()
		const burst = askBurst - askReserve // the rest is for known pods
		if n := c.count(); n != burst/2 {
			t.Errorf("%d questions of two requests each at once, want %d", n, burst/2)
		}
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if n := c.count(); n != (burst+askRate)/2 {
			t.Errorf("%d questions after 1 s, want %d", n, (burst+askRate)/2)
		}
		time.Sleep(3 * findTimeout)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// Clients that are no pods, and are waited for, must not keep a pod from being found.
func TestAddressesOfNobodyKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
		g := guardOf(c)
		g.pace = rate.NewLimiter(1e9, 1e9)
		var wg sync.WaitGroup
		for i := range 4 * maxAsking {
			wg.Go(func() {
				if g.Admit("cloud", api.TCP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1)) == nil {
					t.Error("an address of nobody is admitted")
				}
			})
		}
		synctest.Wait() // until they wait for their pods to appear
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("a pod is not found meanwhile: %v", err)
		}
		wg.Wait()
	})
}

// Clients that are refused and keep trying are asked about rarely, and starve neither new pods nor
// known ones.
func TestPersistentStrangersKeepNobodyOut(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces, strangers int
		pods                  []pod // of a stranger's address
	}{
		"of no pod":             {1, 400, nil},
		"of no pod, ten places": {10, 40, nil},
		"without the label":     {1, 400, allowed("berlin")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := func(net, i int) netip.AddrPort {
					return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(net), byte(i >> 8), byte(i)}), 1)
				}
				cl := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
				g := newGuard(cl.find, GuardOptions{Namespaces: make([]string, c.namespaces), Logger: slog.New(slog.DiscardHandler)})
				if err := g.Admit("cloud", api.TCP, podAt); err != nil {
					t.Fatal(err)
				}
				var stop atomic.Bool
				begun := time.Now()
				var wg sync.WaitGroup
				for i := range c.strangers {
					cl.pods[from(1, i).Addr()] = c.pods
				}
				for i := range c.strangers {
					wg.Go(func() {
						for ; !stop.Load(); time.Sleep(2 * time.Second) {
							if g.Admit("cloud", api.TCP, from(1, i)) == nil {
								t.Error("a stranger is admitted")
							}
						}
					})
				}
				time.Sleep(10 * time.Second) // until each has been asked about
				refused, waited, most := 0, time.Duration(0), 0
				for i := 0; time.Since(begun) < staleFor+time.Minute; i++ {
					cl.set(func(cl *cluster) { cl.pods[from(2, i).Addr()] = allowed("cloud") })
					for _, at := range []netip.AddrPort{from(2, i), podAt} {
						asked := time.Now()
						if g.Admit("cloud", api.TCP, at) != nil {
							refused++
						}
						waited, most = max(waited, time.Since(asked)), most+1
					}
					time.Sleep(3 * time.Second)
				}
				if refused > 0 || waited > time.Second {
					t.Errorf("%d of %d connections of pods are refused, one waited %v", refused, most, waited)
				}
				stop.Store(true)
				wg.Wait()
			})
		})
	}
}

// A label that is added takes effect within half a minute, however long the pod was refused.
func TestAPersistentClientIsAdmittedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed()}}
		g := guardOf(c)
		try := func(d time.Duration) (admitted bool) {
			for begun := time.Now(); time.Since(begun) < d && !admitted; time.Sleep(100 * time.Millisecond) {
				admitted = g.Admit("cloud", api.TCP, podAt) == nil
			}
			return admitted
		}
		if try(5*time.Minute) || c.count() > 15 {
			t.Errorf("admitted without the label, or asked %d times", c.count())
		}
		c.set(func(c *cluster) { c.pods[podAt.Addr()] = allowed("cloud") })
		if !try(maxRefused + time.Second) {
			t.Errorf("not admitted %v after the label was added", maxRefused)
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{}}
		at := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1)
		}
		g := guardOf(c)
		for i := range maxAddresses + 1 {
			c.pods[at(i).Addr()] = allowed("cloud")
			if err := g.Admit("cloud", api.TCP, at(i)); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if n := len(g.known); n > maxAddresses || n < maxAddresses/2 {
			t.Errorf("%d addresses are remembered, want at most %d, and no fewer than half", n, maxAddresses)
		}
		before := c.count()
		if err := g.Admit("cloud", api.TCP, at(maxAddresses)); err != nil || c.count() != before {
			t.Errorf("the newest was forgotten: %v", err)
		}
	})
}

// A client is known while its last answer, for its labels and peer, is not too old.
func TestWhoWasAdmittedIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
		g := guardOf(c)
		if g.Known("cloud", podAt) {
			t.Error("known before anything was asked")
		}
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Fatal(err)
		}
		before := c.count()
		time.Sleep(staleFor - time.Second)
		if !g.Known("cloud", podAt) || g.Known("edge", podAt) || g.Known("cloud", netip.MustParseAddrPort("10.9.9.9:1")) {
			t.Error("want the pod known for the peer that it may use, and nobody else")
		}
		time.Sleep(time.Second)
		if g.Known("cloud", podAt) || c.count() != before {
			t.Errorf("known by an old answer, or asked %d times", c.count()-before)
		}
	})
}

// Addresses of no pod, which datagrams may claim to come from, displace no pod.
func TestForgedAddressesDisplaceNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")}}
		g := guardOf(c)
		g.pace = rate.NewLimiter(1e9, 1e9)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 3 * maxAddresses {
			wg.Go(func() {
				_ = g.Admit("cloud", api.UDP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1))
			})
			if i%1000 == 0 {
				synctest.Wait()
				time.Sleep(findTimeout)
			}
		}
		wg.Wait()
		if n := len(g.known); n > maxAddresses {
			t.Errorf("%d addresses are remembered, want at most %d", n, maxAddresses)
		}
		c.set(func(c *cluster) { c.err = errors.New("connection refused") })
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("the pod was forgotten: %v", err)
		}
	})
}

// However many datagrams claim to come from addresses of nobody, and from the pod's own before it is
// there, a pod that connects by TCP is admitted at once.
func TestForgedDatagramsKeepOutNoPodThatConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[netip.Addr][]pod{}}
		g := guardOf(c)
		var stop atomic.Bool
		var wg sync.WaitGroup
		flood := func(from netip.AddrPort) {
			wg.Go(func() {
				for ; !stop.Load(); time.Sleep(time.Second) {
					_ = g.Admit("cloud", api.UDP, from)
				}
			})
		}
		flood(podAt)
		time.Sleep(10 * time.Second)
		for i := range maxAddresses {
			flood(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1))
		}
		time.Sleep(10 * time.Second)
		c.set(func(c *cluster) { c.pods[podAt.Addr()] = allowed("cloud") })
		begun := time.Now()
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("a pod that connects is refused: %v", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("a pod that connects waits %v", took)
		}
		stop.Store(true)
		wg.Wait()
	})
}

func TestForgedDatagramsDoNotPrecedeAPodToItsAddress(t *testing.T) {
	for name, earlier := range map[string][]pod{"a pod's that was admitted": allowed("cloud"), "a stranger's": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{pods: map[netip.Addr][]pod{podAt.Addr(): earlier}}
				g := guardOf(c)
				if err := g.Admit("cloud", api.TCP, podAt); (err == nil) != (earlier != nil) {
					t.Fatalf("an earlier client: got %v", err)
				}
				c.set(func(c *cluster) { c.pods = nil })
				before := 0
				for begun := time.Now(); time.Since(begun) < 2*newAfter || c.count() == before; { // and was just asked about
					time.Sleep(time.Second)
					before = c.count()
					_ = g.Admit("cloud", api.UDP, podAt)
				}
				c.set(func(c *cluster) { c.pods = map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")} })
				if err := g.Admit("cloud", api.TCP, podAt); err != nil {
					t.Errorf("the pod that has the address now: %v", err)
				}
			})
		})
	}
}

func TestAnEarlierAnswerReplacesNoLaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		g := guardOf(c)
		var asked sync.WaitGroup
		asked.Go(func() { _ = g.Admit("cloud", api.UDP, podAt) })
		synctest.Wait() // until it waits for the pod to appear
		time.Sleep(appearAfter / 2)
		c.set(func(c *cluster) { c.pods = map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")} })
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Fatal(err)
		}
		c.set(func(c *cluster) { c.err = errors.New("connection refused") })
		asked.Wait()
		if !g.Known("cloud", podAt) {
			t.Error("a pod that was admitted is not known any more")
		}
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Error(err)
		}
	})
}

func TestThatPodsMayNotBeListedIsAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{err: &denied{[]string{"tenant"}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))}}
		var told []string
		g := newGuard(c.find, GuardOptions{Account: "ns:postern", Logger: slog.New(slog.DiscardHandler)})
		g.Notify(func(list []check.OwnProblem) {
			told = append(told, fmt.Sprint(len(list)))
			for _, p := range list {
				_, fix := catalogue.Render(p.Code, p.Params)
				if p.Code != catalogue.ClusterForbidden || !strings.Contains(fix.String(), "-n tenant --verb=list --resource=pods") || !strings.Contains(fix.String(), "--serviceaccount=ns:postern") {
					t.Errorf("got %s, fix %q", p.Code, fix)
				}
			}
		})
		for range 3 {
			if err := g.Admit("cloud", api.TCP, podAt); err == nil || !strings.Contains(err.Error(), "no right") {
				t.Errorf("got %v", err)
			}
		}
		// A pod of another namespace is still found, and the problem stays.
		other := netip.MustParseAddrPort("10.244.7.7:40000")
		c.set(func(c *cluster) { c.pods = map[netip.Addr][]pod{other.Addr(): allowed("cloud")} })
		if err := g.Admit("cloud", api.TCP, other); err != nil {
			t.Error(err)
		}
		c.set(func(c *cluster) { c.err, c.pods = nil, map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")} })
		time.Sleep(maxRefused)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Error(err)
		}
		if strings.Join(told, " ") != "0 1 0" {
			t.Errorf("told of %v problems, want none, one and then none", told)
		}
	})
}

// While some namespaces may not be searched, those whose pod is not found elsewhere are asked about
// no more often than any other, and a new pod elsewhere has as long to appear.
func TestAMissingRightMakesNoMoreRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := &denied{[]string{"tenant"}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))}
		c := &cluster{err: missing}
		g := guardOf(c)
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
			if err := g.Admit("cloud", api.TCP, podAt); err == nil || !strings.Contains(err.Error(), "is not known: ") || !strings.Contains(err.Error(), "no right") {
				t.Fatalf("got %v", err)
			}
		}
		if n := c.count(); n > appearSteps+5 { // at 2, 4, 8, 16 and 30 s
			t.Errorf("%d requests in a minute", n)
		}
		other := netip.MustParseAddrPort("10.244.7.7:40000")
		time.AfterFunc(time.Second, func() { c.set(func(c *cluster) { c.pods = map[netip.Addr][]pod{other.Addr(): allowed("cloud")} }) })
		if err := g.Admit("cloud", api.TCP, other); err != nil {
			t.Errorf("a pod that appears a second later: %v", err)
		}
		c.set(func(c *cluster) { c.err, c.pods = nil, map[netip.Addr][]pod{podAt.Addr(): allowed("cloud")} })
		time.Sleep(maxRefused)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("with the right again: %v", err)
		}
		c.set(func(c *cluster) { c.err, c.pods = missing, nil })
		time.Sleep(2 * admittedFor)
		if err := g.Admit("cloud", api.TCP, podAt); err != nil {
			t.Errorf("a known pod, without the right: %v", err)
		}
	})
}

// The same when nobody had the address before the right was missing.
func TestAMissingRightMakesNoMoreRequestsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		g := guardOf(c)
		if err := g.Admit("cloud", api.UDP, podAt); err == nil {
			t.Fatal("nobody is admitted")
		}
		c.set(func(c *cluster) {
			c.err = &denied{[]string{"tenant"}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))}
		})
		before := c.count()
		const minutes = 4
		for began := time.Now(); time.Since(began) < minutes*time.Minute; time.Sleep(100 * time.Millisecond) {
			if err := g.Admit("cloud", api.TCP, podAt); err == nil {
				t.Fatal("nobody is admitted")
			}
		}
		if n := c.count() - before; n > appearSteps+5+2*minutes {
			t.Errorf("%d requests in %d minutes", n, minutes)
		}
	})
}

func TestOnlyTheLabelsValueAllows(t *testing.T) {
	got := peersOf(map[string]string{
		"postern.dev/peer-cloud": "allow", "postern.dev/peer-berlin": "deny", "postern.dev/peer-": "x", "postern.dev/peer": "allow", "a": "allow", "postern.dev/peer-edge": "allow",
	})
	if strings.Join(got, " ") != "cloud edge" {
		t.Errorf("got %q", got)
	}
}
