package gateway_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
)

// Pods of two namespaces come, go, fail readiness and take each other's addresses, as the cluster tells,
// during 250 connections, or POSTERN_CHURN: each is answered by a pod of its own service of which the
// gateway had not been told, when the connection began, that it is not ready; and nothing is left of it.
func TestPodsThatComeAndGo(t *testing.T) {
	const workers, keep = 16, 8
	connections := 250
	if text := os.Getenv("POSTERN_CHURN"); text != "" {
		var err error
		if connections, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorldAlone(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, namespaces...)
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Limits.ConnectionsPerSecond = 1000 })
	c := &churn{w: w, slots: make([]*churned, 6), until: map[string]int{}}
	for _, ns := range namespaces {
		c.stay = append(c.stay, c.start(ns, net.JoinHostPort(hostAddress(t), "0"), true))
	}
	c.tell()
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces(namespaces)
	at := map[string]netip.AddrPort{}
	for _, ns := range namespaces {
		at[ns] = w.imported(w.Edge, "cloud", ns+"/web")
		w.answers(at[ns])
	}
	w.await("nothing is open", w.open0)
	before := holding()

	steps, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range steps {
			c.step()
		}
	}()
	var begun, cut atomic.Int64
	var clients sync.WaitGroup
	for range workers {
		clients.Go(func() {
			var open []net.Conn
			defer func() {
				for _, conn := range open {
					conn.Close()
				}
			}()
			for n := begun.Add(1); n <= int64(connections); n = begun.Add(1) {
				if n%4 == 0 {
					steps <- struct{}{}
				}
				ns := namespaces[n%2]
				conn, err := c.connect(ns, at[ns])
				if err != nil { // the pod went, with who waited for it
					cut.Add(1)
					continue
				}
				if open = append(open, conn); len(open) > keep {
					open[0].Close()
					open = open[1:]
				}
			}
		})
	}
	clients.Wait()
	close(steps)
	<-ended
	t.Logf("%d connections during %d changes, in which %d pods came; %d were cut off with their pod", connections, c.clock, c.pods, cut.Load())
	if n := int(cut.Load()); n > c.pods {
		t.Errorf("%d connections were cut off, of %d pods", n, c.pods)
	}
	c.stop()
	w.await("nothing is left", func() string {
		if missing := w.open0(); missing != "" {
			return missing
		}
		return holding().beyond(before)
	})
}

var namespaces = []string{"shop", "bank"}

// open0 says what connections to the services are open.
func (w *world) open0() string {
	for site, labels := range map[*lab.Site]string{w.Cloud: `direction="inbound",peer="edge",`, w.Edge: `direction="outbound",peer="cloud",`} {
		for _, ns := range namespaces {
			if n := w.metric(site, "postern_service_open_connections", labels+fmt.Sprintf("service=%q", ns+"/web")); n != 0 {
				return fmt.Sprintf("%s has %v connections to %s/web", site.Name, n, ns)
			}
		}
	}
	return ""
}

// A thousand clients keep their pods while others come and go, and when either gateway starts again: then
// whoever moves has the pod that came since, which nobody knows any more. It takes half a minute, so
// `make test-churn` alone has it.
func TestClientsKeepTheirPods(t *testing.T) {
	if os.Getenv("POSTERN_CHURN") == "" {
		t.Skip("POSTERN_CHURN is not set")
	}
	const clients = 1000
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Limits.ConnectionsPerSecond = 1000 })
	var pods []pod
	for i := range 5 {
		pods = append(pods, w.newPod(fmt.Sprint("web-", i)))
	}
	tell := func(pods ...pod) {
		x := export("shop", "web", true, pods...)
		x.Spec.Affinity = mcs.Affinity{ClientIP: true, Timeout: time.Hour}
		w.Cloud.Gateway.Services().SetExports([]mcs.Export{x})
	}
	importing := func() netip.AddrPort {
		w.Edge.Gateway.Services().SetExports(nil)
		w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
		at := w.imported(w.Edge, "cloud", "shop/web")
		w.answers(at)
		return at
	}
	tell(pods[:4]...)
	at := importing()
	ask := func() []string {
		who := make([]string, clients)
		var next atomic.Int64
		var asking sync.WaitGroup
		for range 16 {
			asking.Go(func() {
				for n := next.Add(1) - 1; n < int64(clients); n = next.Add(1) - 1 {
					from := &net.TCPAddr{IP: net.IPv4(127, 244, byte(n>>8), byte(n))}
					c, err := (&net.Dialer{LocalAddr: from}).DialContext(t.Context(), "tcp", at.String())
					if err != nil {
						t.Error(err)
						return
					}
					_ = c.SetDeadline(time.Now().Add(patience.Left()))
					if _, err := fmt.Fscanln(c, &who[n]); err != nil {
						t.Error(err)
					}
					c.Close()
				}
			})
		}
		asking.Wait()
		return who
	}
	was := ask()
	// moved are those that have another pod than before, by that.
	moved := func(what string) map[string]int {
		now, out := ask(), map[string]int{}
		for n := range now {
			if now[n] != was[n] {
				out[was[n]+" to "+now[n]]++
			}
		}
		was = now
		t.Logf("%s: there moved %v", what, out)
		return out
	}
	tell(pods...)
	if m := moved("a pod comes"); len(m) > 0 {
		t.Errorf("a pod comes, and clients move: %v", m)
	}
	gone := was[0]
	var left []pod
	for _, p := range pods {
		if p.name != gone {
			left = append(left, p)
		}
	}
	tell(left...)
	for move := range moved("a pod goes") {
		if !strings.HasPrefix(move, gone) {
			t.Errorf("%s goes, and clients move from %s", gone, move)
		}
	}
	w.stop(w.Edge)
	w.start(w.Edge)
	at = importing()
	if m := moved("the importing gateway starts again"); len(m) > 0 {
		t.Errorf("the importing gateway starts again, and clients move: %v", m)
	}
	w.stop(w.Cloud)
	w.start(w.Cloud)
	tell(left...)
	at = importing()
	for move := range moved("the exporting gateway starts again") {
		if !strings.HasSuffix(move, pods[4].name) {
			t.Errorf("the exporting gateway starts again, and clients move from %s", move)
		}
	}
}

// held is what this process holds.
type held struct {
	goroutines, files int
	heap              int64
}

func holding() held {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // there are none elsewhere
	return held{runtime.NumGoroutine(), len(files), int64(m.HeapAlloc)}
}

// beyond says that it is more than before, but for what gateways do besides and what pools keep.
func (h held) beyond(before held) string {
	if h.goroutines > before.goroutines+16 || h.files > before.files+8 || h.heap > before.heap+8<<20 {
		return fmt.Sprintf("held are %+v, before %+v", h, before)
	}
	return ""
}

// churn is a cluster whose pods come and go. Only connect is safe for concurrent use.
type churn struct {
	w     *world
	stay  []*churned // one of each namespace
	slots []*churned // nil: none is there
	pods  int

	mu    sync.Mutex
	clock int            // how often the gateway was told
	until map[string]int // of pods by name, the time from which on the gateway knew that it is not ready
}

// always is later than all.
const always = 1 << 30

// churned is a pod. Its address may be another one's after it.
type churned struct {
	pod
	namespace string
	ready     bool
	ln        net.Listener
}

// start has a pod at an address, or elsewhere if that is taken.
func (c *churn) start(namespace, address string, ready bool) *churned {
	ln, err := new(net.ListenConfig).Listen(c.w.ctx, "tcp", address)
	if err != nil {
		ln, err = new(net.ListenConfig).Listen(c.w.ctx, "tcp", net.JoinHostPort(hostAddress(c.w.t), "0"))
	}
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.t.Cleanup(func() { ln.Close() })
	c.pods++
	p := &churned{pod{fmt.Sprintf("%s/%d", namespace, c.pods), ln.Addr().(*net.TCPAddr).AddrPort()}, namespace, ready, ln}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // It ends what it has begun.
				defer conn.Close()
				_, _ = io.WriteString(conn, p.name+"\n")
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return p
}

// step changes one pod.
func (c *churn) step() {
	slot := &c.slots[rand.IntN(len(c.slots))]
	was := *slot
	namespace, ready := namespaces[rand.IntN(len(namespaces))], rand.IntN(2) == 0
	if was != nil && was.namespace == namespace {
		was.ready = ready
		c.tell()
		return
	}
	address := net.JoinHostPort(hostAddress(c.w.t), "0")
	if *slot = nil; was != nil {
		address = was.address.String()
		if rand.IntN(2) == 0 { // it has crashed
			was.ln.Close()
		}
		c.tell()
		was.ln.Close()
	}
	if rand.IntN(4) > 0 {
		*slot = c.start(namespace, address, ready)
		c.tell()
	}
}

// tell tells the gateway what there is.
func (c *churn) tell() {
	var list []mcs.Export
	isReady := map[string]bool{}
	for _, ns := range namespaces {
		x := export(ns, "web", true)
		for _, p := range append(c.stay[:len(c.stay):len(c.stay)], c.slots...) {
			if p != nil && p.namespace == ns {
				x.Backends = append(x.Backends, export(ns, "web", p.ready, p.pod).Backends...)
				isReady[p.name] = p.ready
			}
		}
		list = append(list, x)
	}
	c.mu.Lock()
	for name, ready := range isReady {
		if ready {
			c.until[name] = always
		}
	}
	c.mu.Unlock()
	c.w.Cloud.Gateway.Services().SetExports(list)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	for name, until := range c.until {
		if until == always && !isReady[name] {
			c.until[name] = c.clock
		}
	}
}

// connect connects to a service of a namespace, and checks who answers.
func (c *churn) connect(namespace string, at netip.AddrPort) (net.Conn, error) {
	c.mu.Lock()
	began := c.clock
	c.mu.Unlock()
	conn, err := dial(c.w.t.Context(), at.String())
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience.Left()))
	var who string
	if _, err := fmt.Fscanln(conn, &who); err != nil {
		conn.Close()
		return nil, err
	}
	c.mu.Lock()
	until, known := c.until[who]
	c.mu.Unlock()
	if !strings.HasPrefix(who, namespace+"/") {
		c.w.t.Errorf("of %s %s answers", namespace, who)
	}
	if !known || until <= began {
		c.w.t.Errorf("%s answers, which is not ready since %d; it was dialled at %d", who, until, began)
	}
	return conn, nil
}

// stop ends all pods but those that stay.
func (c *churn) stop() {
	for i, p := range c.slots {
		if p != nil {
			p.ln.Close()
		}
		c.slots[i] = nil
	}
	c.tell()
}
