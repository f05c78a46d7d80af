package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// What a peer may do with its catalogue (control/auth/README.md, control/mcs/README.md,
// control/clusterset/README.md, control/logtail/README.md).
const (
	servicesPerSecond, servicesAtOnce = 5, 64
	toldPerSecond, toldAtOnce         = 4, 48
	listenersOfAPeer                  = 2000
	recordsInASecond                  = 18
	// Entries of the catalogue that counts and of the one that is on its way take three times their
	// JSON, and a listener 8 KB; the rest is for what the test itself keeps.
	memoryOfAPeer = 3*2*mcs.MaxCatalogue + listenersOfAPeer<<13 + 16<<20
)

// liar is a peer of cloud that holds a valid key and whose catalogue is a lie.
type liar struct {
	*stranger
	w        *world
	client   *http.Client
	accepted atomic.Int64 // messages, by cloud
	asked    atomic.Int64 // messages of cloud, which it contradicts

	mu sync.Mutex
	at map[string]uint16 // of the services that it was told of, a port inside the tunnel
}

// Caller implements auth.Directory: whoever asks is cloud.
func (l *liar) Caller(netip.Addr) (auth.Caller, bool) {
	return auth.Caller{Name: "cloud", PublicKey: siteKey(l.w.Cloud)}, true
}

// newLiar makes mallory one, which cloud exchanges services of the namespace shop with.
func newLiar(w *world) *liar {
	w.t.Helper()
	l := &liar{stranger: mallory(w), w: w, at: map[string]uint16{}}
	l.client = &http.Client{Transport: &http.Transport{DialContext: l.stack.DialContext}}
	server, err := auth.NewServer(auth.ServerOptions{Name: "mallory", Directory: l, OnServices: func(_ peer.PublicKey, body []byte) (string, error) {
		l.hear(body)
		return fmt.Sprintf("%032x", l.asked.Add(1)), nil
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	ln, err := l.stack.Listen(netip.AddrPortFrom(peer.OverlayAddr(l.key.Public()), api.PortAuth))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(ctx, ln); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() { l.client.CloseIdleConnections(); cancel(); served.Wait() })
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Peers = append(g.Peers, api.Peer{Name: "mallory", Services: &api.PeerServices{Export: []string{"shop"}, Import: []string{"shop"}}})
	})
	return l
}

// hear takes in where the services of a message are.
func (l *liar) hear(body []byte) {
	var m struct {
		Set []struct {
			Name   string
			Places []struct{ At []uint16 }
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		l.w.t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range m.Set {
		if len(x.Places) > 0 && len(x.Places[0].At) > 0 {
			l.at[x.Name] = x.Places[0].At[0]
		}
	}
}

// uses connects to a port of cloud's inside the tunnel, and says who answers.
func (l *liar) uses(port uint16) (who string, err error) {
	c, err := l.stack.DialContext(l.w.ctx, "tcp", netip.AddrPortFrom(peer.OverlayAddr(siteKey(l.w.Cloud)), port).String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience.Left()))
	_, err = fmt.Fscanln(c, &who)
	return who, err
}

// A peer that knows where services are, but is not granted them, or not any more, is refused there, with a
// code in the audit log, and what is granted is not the worse for it.
func TestAHostileImporter(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "bank")
	l := newLiar(w)
	grant := func(patterns ...string) {
		w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
			for i := range g.Peers {
				if g.Peers[i].Name == "mallory" {
					g.Peers[i].Services.Export = patterns
				}
			}
		})
	}
	grant("shop", "bank")
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, w.newPod("web")), export("bank", "vault", true, w.newPod("vault"))})
	var shop, bank uint16
	w.await("mallory knows where both are", func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if shop, bank = l.at["shop/web"], l.at["bank/vault"]; shop == 0 || bank == 0 {
			return fmt.Sprint(l.at)
		}
		return ""
	})
	if who, err := l.uses(bank); who != "vault" {
		t.Errorf("while it is granted: %q, %v", who, err)
	}
	grant("shop")
	for what, port := range map[string]uint16{"another peer's service": bank, "none": mcs.LastPort, "SSH": 22} {
		if who, err := l.uses(port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %q, %v, want that it is refused", what, who, err)
		}
	}
	if who, err := l.uses(shop); who != "web" {
		t.Errorf("what it is granted: %q, %v", who, err)
	}
	w.audited(w.Cloud, "refuse", map[string]string{"peer": "mallory", "code": string(catalogue.NotGranted)})
	if n := w.metric(w.Cloud, "postern_forward_refused_connections_total", `direction="inbound",reason="not_granted"`); n == 0 {
		t.Error("what was refused is not counted")
	}
}

// post sends a body as a part of its catalogue, and gives the answer.
func (l *liar) post(ctx context.Context, body io.Reader) (status int, answer []byte, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+netip.AddrPortFrom(peer.OverlayAddr(siteKey(l.w.Cloud)), api.PortAuth).String()+"/v1/services", body)
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set(auth.VersionHeader, auth.ProtocolVersion)
	r, err := l.client.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	if answer, err = io.ReadAll(r.Body); r.StatusCode == http.StatusOK {
		l.accepted.Add(1)
	}
	return r.StatusCode, answer, err
}

// says sends a body, at the pace at which it may, and gives the status.
func (l *liar) says(body string) (status int, has string) {
	l.w.t.Helper()
	for {
		status, answer, err := l.post(l.w.ctx, strings.NewReader(body))
		if err != nil {
			l.w.t.Fatal(err)
		}
		if status != http.StatusTooManyRequests {
			var a struct{ Has string }
			_ = json.Unmarshal(answer, &a)
			return status, a.Has
		}
		select {
		case <-time.After(time.Second / servicesPerSecond): // nothing tells when it may
		case <-l.w.ctx.Done():
			l.w.t.Fatal(l.w.ctx.Err())
		}
	}
}

// part is a message.
func part(base string, more bool, set ...string) string {
	return fmt.Sprintf(`{"version":"1.0","base":%q,"more":%v,"set":[%s]}`, base, more, strings.Join(set, ","))
}

// entry is one with so many ports, from a number on, and these fields besides.
func entry(name string, ports, first int, fields ...string) string {
	var list, at []string
	for i := range ports {
		list = append(list, fmt.Sprintf(`{"name":"p%d","protocol":"TCP","port":%d}`, i, first+i))
		at = append(at, strconv.Itoa(mcs.FirstPort+i))
	}
	called, _ := json.Marshal(name) // of a text never fails
	fields = append([]string{fmt.Sprintf(`"name":%s,"created":"2026-01-02T03:04:05Z","type":"ClusterSetIP"`, called),
		fmt.Sprintf(`"ports":[%s],"places":[{"at":[%s]}]`, strings.Join(list, ","), strings.Join(at, ","))}, fields...)
	return "{" + strings.Join(fields, ",") + "}"
}

// from counts what is imported from a peer: services and listeners.
func from(st mcs.State, peer string) (services []string, listeners int) {
	for _, i := range st.Imports {
		for _, c := range i.Clusters {
			if c.ID != peer {
				continue
			}
			services = append(services, i.Name.String())
			for _, e := range c.Endpoints {
				listeners += len(e.Ports)
			}
		}
	}
	return services, listeners
}

// honest has edge export something else, and waits until cloud has it and it answers.
type honest struct {
	w     *world
	pod   pod
	round int
}

func (h *honest) served() {
	h.w.t.Helper()
	h.round++
	name := fmt.Sprintf("api-%d", h.round)
	h.w.Edge.Gateway.Services().SetExports([]mcs.Export{export("shop", name, true, h.pod)})
	if who := h.w.answers(h.w.imported(h.w.Cloud, "edge", "shop/"+name)); who != h.pod.name {
		h.w.t.Errorf("%s answers", who)
	}
}

// liveHeap is what is in use.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // of what finalizers let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A peer that holds a valid key sends cloud whatever it likes for a catalogue. What it costs is
// bounded, others are served meanwhile, and the peer as well once it is honest. The test is alone,
// since it measures the process.
func TestAHostileCatalogue(t *testing.T) {
	w := newWorldAlone(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, w.newPod("web"))})
	w.Cloud.Gateway.Services().SetNamespaces([]string{"shop", "bank", "postern", "kube-system"})
	edge := &honest{w: w, pod: w.newPod("api")}
	edge.served()
	l := newLiar(w)
	w.await("mallory is told of a service", func() string {
		if l.asked.Load() == 0 {
			return "it is not"
		}
		return ""
	})
	states := w.countStates(w.Cloud)
	start, heap, goroutines, asked, rounds := time.Now(), liveHeap(), runtime.NumGoroutine(), l.asked.Load(), edge.round

	t.Log("bodies without an end, in all turns that a peer has")
	release := l.hold(8)
	edge.served()
	release()

	t.Log("forged entries")
	good := entry("shop/good", 1, 80)
	status, version := l.says(part("", false, slices.Concat([]string{good}, forged())...))
	if status != http.StatusOK {
		t.Fatalf("they get %d", status)
	}
	w.awaitState(w.Cloud, "what is good of mallory's is imported", func(st mcs.State) string {
		if services, listeners := from(st, "mallory"); !slices.Equal(services, []string{"shop/good"}) || listeners != 1 {
			return fmt.Sprint(services, listeners)
		}
		return ""
	})
	codes := map[catalogue.Code]int{}
	st, _ := w.Cloud.Gateway.Services().State()
	for _, p := range st.Problems {
		if p.Peer == "mallory" {
			codes[p.Code]++
		}
	}
	if n := codes[catalogue.ServiceRefused] + codes[catalogue.ServiceNotWanted]; n != len(forged()) || codes[catalogue.ServiceNotWanted] != 3 {
		t.Errorf("of %d forged entries is said %v", len(forged()), codes)
	}
	edge.served()

	t.Log("malformed and oversized messages")
	for _, body := range malformed() {
		if status, _ := l.says(body); status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge {
			t.Errorf("%.60q gets %d", body, status)
		}
	}
	for what, body := range map[string]io.Reader{"10 MB": bytes.NewReader(make([]byte, 10<<20)), "without an end": endless{}} {
		// It is refused while the rest is still being sent: the reset may overtake the 413.
		if status, _, err := l.post(w.ctx, body); err == nil && status < 400 || w.ctx.Err() != nil {
			t.Errorf("%s gets %d", what, status)
		}
	}

	t.Log("contradictory, reordered and replayed messages")
	first, second := part("", true, good, entry("shop/a", 1, 80)), ""
	_, half := l.says(first)
	second = part(half, true, entry("shop/b", 1, 80))
	for range 3 { // the second twice, and then from the beginning: it never comes to an end
		for _, body := range []string{second, second, first} {
			if status, _ := l.says(body); status != http.StatusOK {
				t.Errorf("it gets %d", status)
			}
		}
	}
	if status, has := l.says(part(strings.Repeat("ab", 16), false, entry("shop/c", 1, 80))); status != http.StatusOK || has != half {
		t.Errorf("what leads on from nothing that is there gets %d, and %s is there instead of %s", status, has, half)
	}
	for range servicesPerSecond { // it says that it has something else of cloud's each time
		l.says(fmt.Sprintf(`{"version":"1.0","base":%q,"has":"%032x"}`, version, time.Now().UnixNano()))
	}
	edge.served()
	if services, _ := from(w.stateOf(w.Cloud), "mallory"); !slices.Equal(services, []string{"shop/good"}) {
		t.Errorf("of what never came to an end is imported %v", services)
	}

	t.Log("a catalogue without an end")
	refused := false
	base := ""
	for i := 0; !refused && i < 8; i++ {
		var set []string
		for n := range 500 {
			set = append(set, fmt.Sprintf(`{"name":"shop/x-%d-%d"}`, i, n))
		}
		var status int
		status, base = l.says(part(base, true, set...))
		refused = status == http.StatusBadRequest
	}
	w.awaitState(w.Cloud, "it is refused", func(st mcs.State) string {
		if !slices.Contains(st.Problems, mcs.Problem{Peer: "mallory", Code: catalogue.TooManyServices}) {
			return fmt.Sprintf("the message was refused: %v; the problems are %.200v", refused, st.Problems)
		}
		return ""
	})

	t.Log("as many listeners as can be, whose ports change with each message")
	const services, ports = 40, 64
	version = ""
	for i := 0; i < services; i += 8 {
		var set []string
		for n := range 8 {
			set = append(set, entry(fmt.Sprintf("shop/many-%d", i+n), ports, 1000))
		}
		_, version = l.says(part(version, i+8 < services, set...))
	}
	w.awaitState(w.Cloud, "so many are opened as may be", func(st mcs.State) string {
		_, n := from(st, "mallory")
		if full := slices.ContainsFunc(st.Problems, func(p mcs.Problem) bool { return p.Code == catalogue.ImportsFull && p.Peer == "mallory" }); n != listenersOfAPeer || !full {
			return fmt.Sprintf("%d are, and that there are too many is said: %v", n, full)
		}
		return ""
	})
	for i := range servicesPerSecond {
		_, version = l.says(part(version, false, entry("shop/many-0", ports, 2000+ports*(i%2))))
	}
	if _, n := from(w.stateOf(w.Cloud), "mallory"); n > listenersOfAPeer {
		t.Errorf("%d listeners are open", n)
	}
	edge.served()

	t.Log("a flood")
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for range 16 {
				_, _, _ = l.post(w.ctx, strings.NewReader(part(version, false, good)))
			}
		})
	}
	edge.served()
	flood.Wait()
	if _, err := l.stranger.client(w.Cloud).Hello(w.ctx); err != nil {
		t.Errorf("mallory's other requests: %v", err)
	}

	took := time.Since(start)
	if n, most := l.accepted.Load(), int64(servicesAtOnce+servicesPerSecond*(took.Seconds()+1)); n > most {
		t.Errorf("%d messages were taken in %s, at most %d may be", n, took, most)
	}
	if n, most := l.asked.Load()-asked, int64(toldAtOnce+toldPerSecond*(took.Seconds()+1)); n > most {
		t.Errorf("mallory was asked %d times in %s, at most %d may be", n, took, most)
	}
	// Objects are written when the state changes: by what mallory said that was taken, and by edge's
	// exports, of which each comes and has one gone.
	if n, most := states(), l.accepted.Load()+int64(4*(edge.round-rounds)); n > most {
		t.Errorf("%d states came of it, at most %d may", n, most)
	}
	if grown := liveHeap() - heap; grown > memoryOfAPeer {
		t.Errorf("%d MB more are in use, at most %d may be", grown>>20, memoryOfAPeer>>20)
	} else {
		t.Logf("in %s %d messages were taken, mallory was asked %d times, and %d MB more are in use", took.Round(time.Second), l.accepted.Load(), l.asked.Load()-asked, grown>>20)
	}
	if most, all := w.log.busiest("cloud", start, "mallory"); most > recordsInASecond {
		t.Errorf("%d records of mallory were logged in a second, and %d in all", most, all)
	}

	// Two services at once: after that many listeners a further change would have to wait for the limit of
	// changes, which takes minutes (package clusterset tests it in virtual time).
	t.Log("it is honest again")
	if status, _ := l.says(part("", false, good, entry("shop/other", 2, 80))); status != http.StatusOK {
		t.Fatalf("it gets %d", status)
	}
	w.awaitState(w.Cloud, "what mallory exports is imported", func(st mcs.State) string {
		services, _ := from(st, "mallory")
		if problem := slices.ContainsFunc(st.Problems, func(p mcs.Problem) bool { return p.Peer == "mallory" }); len(services) != 2 || problem {
			return fmt.Sprintf("%v, problems: %v", services, problem)
		}
		return ""
	})
	edge.served()
	w.await("the listeners are closed", func() string {
		if n := runtime.NumGoroutine(); n > goroutines+listenersOfAPeer/8 {
			return fmt.Sprintf("%d goroutines, %d before", n, goroutines)
		}
		return ""
	})
}

// stateOf is a site's present state.
func (w *world) stateOf(s *lab.Site) mcs.State {
	st, _ := s.Gateway.Services().State()
	return st
}

// countStates counts the states that a site has from now on.
func (w *world) countStates(s *lab.Site) (count func() int64) {
	var n atomic.Int64
	ctx, cancel := context.WithCancel(w.ctx)
	var watched sync.WaitGroup
	_, changed := s.Gateway.Services().State()
	services := s.Gateway.Services()
	watched.Go(func() {
		for {
			select {
			case <-changed:
				n.Add(1)
				_, changed = services.State()
			case <-ctx.Done():
				return
			}
		}
	})
	w.t.Cleanup(func() { cancel(); watched.Wait() })
	return n.Load
}

// endless is a body of blanks.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// hold begins requests whose bodies do not go on, and gives what ends them.
func (l *liar) hold(n int) (release func()) {
	var bodies []*io.PipeWriter
	var held sync.WaitGroup
	for range n {
		r, w := io.Pipe()
		bodies = append(bodies, w)
		held.Go(func() {
			if status, _, err := l.post(l.w.ctx, r); err == nil && status == http.StatusOK {
				l.w.t.Error("half a message is taken")
			}
			_ = r.Close()
		})
		_, _ = io.WriteString(w, `{"version":"1.0",`) // the header is sent by then, or it is refused
	}
	return func() {
		for _, b := range bodies {
			b.CloseWithError(errors.New("that was all"))
		}
		held.Wait()
	}
}

// malformed are messages that cannot be one.
func malformed() []string {
	return []string{
		"", "hello", "{", "null x", "[]", `{"version":"9.0"}`, `{"version":"1.0","set":1}`, `{"version":"1.0","set":[1]}`, `{"version":"1.0","base":"","set":[{}]}`,
		`{"version":"1.0","base":"","base":"a"}`, "{\"version\":\"\xff\"}", `{"version":"1.0"}{}`, `{"version":"1.0","has":"` + strings.Repeat("x", 65) + `"}`,
		`{"version":"1.0","x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, `{"version":"1.0","x":[` + strings.Repeat("0,", 9000) + `0]}`,
		`{"version":"1.0","x":"` + strings.Repeat("x", mcs.MaxMessage) + `"}`,
		part("", false, entry("shop/twice", 1, 80), entry("shop/twice", 1, 81)), part("", false, entry("shop/ports", 1, 80, `"Ports":[]`)),
		part("", false, `{"name":"`+strings.Repeat("x", 200)+`"}`),
	}
}

// forged are entries that nobody may use, each of another name; three are of namespaces that are not
// imported.
func forged() []string {
	return []string{
		entry("kube-system/kube-dns", 1, 53), entry("postern/postern", 1, 80), entry("bank/vault", 1, 80),
		entry("web", 1, 80), entry("shop/Web", 1, 80), entry("shop/../web", 1, 80), entry("shop/a\u001b[2J", 1, 80), entry("/x", 1, 80),
		`{"name":"shop/f0","Name ":"shop/f1"}`,
		entry("shop/f2", 0, 80), entry("shop/f3", 65, 1000), entry("shop/f4", 1, 0),
		entry("shop/f5", 1, 80, `"spread":6001`), entry("shop/f6", 1, 80, `"labels":{"example.com/":"edge"}`),
		entry("shop/f7", 1, 80, `"annotations":{"a":"\u001b[2J"}`), entry("shop/f8", 1, 80, `"affinity":-1`),
		entry("shop/f9", 1, 80, `"internalTrafficPolicy":"../"`),
		strings.Replace(entry("shop/f10", 1, 80), "2026", "1970", 1), strings.Replace(entry("shop/f11", 1, 80), "ClusterSetIP", "ExternalName", 1),
		strings.Replace(entry("shop/f12", 1, 80), "10000", "22", 1), strings.Replace(entry("shop/f13", 1, 80), "10000", "10000,10001", 1),
		strings.Replace(entry("shop/f14", 1, 80), "TCP", "ICMP", 1), strings.Replace(entry("shop/f15", 1, 80), `"at"`, `"hostname":"db-0","at"`, 1),
	}
}

// Whoever may write EndpointSlices must not have a peer led to the gateway itself, by any of its
// addresses: a pod of a dual-stack cluster has one of each family.
func TestNoBackendIsTheGatewayItself(t *testing.T) {
	own := netip.MustParseAddr(hostAddress(t))
	w := newWorld(t, func(site string, o *gateway.Options) {
		clusters(site, o)
		if site == "cloud" {
			o.OwnAddrs = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.7"), own}, nil }
		}
	})
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, w.newPod("web"))})
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	c, err := dial(w.ctx, w.imported(w.Edge, "cloud", "shop/web").String())
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience.Left()))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a peer is answered from the gateway's own address")
		}
	}
	ready := w.service(w.Cloud, "shop/web", func(s api.ClusterService) bool { return s.Peer == "edge" && s.ReadyBackends != nil }).ReadyBackends
	if *ready != 0 {
		t.Errorf("%d backends are ready", *ready)
	}
}

// The same if the gateway gets the address after the export.
func TestNoBackendBecomesTheGatewayItself(t *testing.T) {
	var mu sync.Mutex
	var own []netip.Addr
	w := newWorld(t, func(site string, o *gateway.Options) {
		clusters(site, o)
		o.OwnAddrs = func() ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			return own, nil
		}
	})
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	list := []mcs.Export{export("shop", "web", true, w.newPod("web"))}
	ready := func(n int) {
		t.Helper()
		w.Cloud.Gateway.Services().SetExports(list)
		w.service(w.Cloud, "shop/web", func(s api.ClusterService) bool { return s.ReadyBackends != nil && *s.ReadyBackends == n })
	}
	ready(1)
	mu.Lock()
	own = []netip.Addr{netip.MustParseAddr(hostAddress(t))}
	mu.Unlock()
	ready(0)
}
