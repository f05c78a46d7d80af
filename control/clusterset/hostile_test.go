package clusterset

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// memoryOfACatalogue bounds the memory of a catalogue with the maximum number of small entries, and
// of the test itself, in bytes.
const memoryOfACatalogue = 4 << 20

// overlay is the tunnel to a gateway, with one peer behind it, in memory.
type overlay struct {
	network
	from peer.PublicKey
}

type overlayConn struct {
	net.Conn
	from netip.Addr
}

func (c overlayConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 50000))
}

func (o overlay) Accept() (net.Conn, error) {
	c, err := o.network.Accept()
	if err != nil {
		return nil, err
	}
	return overlayConn{c, peer.OverlayAddr(o.from)}, nil
}

// entries is a message that is generated while it is read.
type entries struct {
	head, end string
	first, n  int
	text      []byte // what is to be read next
	read      *atomic.Int64
}

// message returns a message with n entries, numbered from first.
func message(base string, more bool, first, n int) entries {
	return entries{head: fmt.Sprintf(`{"version":"1.0","base":%q,"more":%v,"set":[`, base, more), end: "]}", first: first, n: n, read: new(atomic.Int64)}
}

func (e *entries) Read(b []byte) (int, error) {
	for len(e.text) == 0 {
		switch {
		case e.head != "":
			e.text, e.head = []byte(e.head), ""
		case e.n > 0:
			e.text = fmt.Appendf(nil, `{"name":"shop/x-%d","created":"2026-01-02T03:04:05Z","type":"Headless"}`, e.first)
			if e.first, e.n = e.first+1, e.n-1; e.n > 0 {
				e.text = append(e.text, ',')
			}
		case e.end != "":
			e.text, e.end = []byte(e.end), ""
		default:
			return 0, io.EOF
		}
	}
	n := copy(b, e.text)
	e.text = e.text[n:]
	e.read.Add(int64(n))
	return n, nil
}

// trickle delivers a byte per second.
type trickle struct{ from io.Reader }

func (r trickle) Read(b []byte) (int, error) {
	time.Sleep(time.Second)
	return r.from.Read(b[:1])
}

// liveHeap returns the size of the live heap, in bytes.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A peer offers a million entries: in one message, and in as many as they need, at the rate at
// which it may send them. They are refused with a code. None of them is imported, and earlier
// imports stay. They take no more memory than a catalogue may, and occupy no connection for long.
func TestACatalogueOfAMillionEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, post := gatewayOf(t, peer.PrivateKeyFromBytes([32]byte{1}).Public(), netip.Addr{})
		says := func(m entries) (status int, has string) {
			t.Helper()
			for {
				body := m // from its beginning
				status, has, wait, err := post(&body)
				if err != nil {
					t.Fatal(err)
				}
				if status != http.StatusTooManyRequests {
					return status, has
				}
				time.Sleep(wait)
			}
		}
		const good = 3
		says(message("", false, 0, good))
		synctest.Wait()
		state, changed := c.State()
		if len(state.Imports) != good || len(state.Problems) > 0 {
			t.Fatalf("what is good is not imported: %+v", state)
		}

		for _, slow := range []bool{false, true} {
			m, start := message("", false, 0, offered), time.Now()
			body := io.Reader(&m)
			if slow {
				body = trickle{&m}
			}
			status, _, _, err := post(body)
			read, took := m.read.Load(), time.Since(start)
			if err == nil && status != http.StatusRequestEntityTooLarge && status != http.StatusBadRequest || took > 30*time.Second || read > 32*mcs.MaxMessage { // the rest was under way
				t.Errorf("all in one message get %d, %v, after %s and %d bytes", status, err, took, read)
			} else {
				t.Logf("all in one message get %d, %v, after %s and %d bytes", status, err, took, read)
			}
		}
		synctest.Wait()
		select {
		case <-changed:
			t.Error("another state came of a message that was refused")
		default:
		}

		const each = 400
		start, heap, most, base := time.Now(), liveHeap(), int64(0), ""
		messages, refused, states := 0, 0, 0
		for first := 0; first < offered; first += each {
			status, has := says(message(base, true, first, each))
			switch status {
			case http.StatusOK:
				base = has
			case http.StatusBadRequest:
				base, refused = "", refused+1
			default:
				t.Fatalf("a message gets %d", status)
			}
			if messages++; messages%100 == 0 || first+each >= offered {
				most = max(most, liveHeap()-heap)
			}
			synctest.Wait()
			select {
			case <-changed:
				states++
				_, changed = c.State()
			default:
			}
		}
		if want := messages / (mcs.MaxServices/each + 1); refused != want {
			t.Errorf("of %d messages %d are refused, want %d", messages, refused, want)
		}
		if most > memoryOfACatalogue {
			t.Errorf("%d KB more are in use, at most %d may be", most>>10, memoryOfACatalogue>>10)
		}
		state, _ = c.State()
		if want := []mcs.Problem{{Peer: "mallory", Code: catalogue.TooManyServices}}; !slices.Equal(state.Problems, want) || states != 1 {
			t.Errorf("the problems are %+v after %d changes, want %+v after one", state.Problems, states, want)
		}
		if len(state.Imports) != good {
			t.Errorf("%d services are imported, want the %d from before", len(state.Imports), good)
		}
		t.Logf("%d messages in %s, %d of them refused; %d KB more in use", messages, time.Since(start), refused, most>>10)

		if status, _ := says(message("", false, 0, 1)); status != http.StatusOK {
			t.Errorf("when it is honest again it gets %d", status)
		}
		synctest.Wait()
		if state, _ := c.State(); len(state.Imports) != 1 || len(state.Problems) > 0 {
			t.Errorf("when it is honest again, there are %d imports and the problems %+v", len(state.Imports), state.Problems)
		}
	})
}

// A peer whose one service has other backends all the time has them change here, with several
// objects each, no faster than as many services.
func TestBackendsThatAlwaysChangeTakeEffectLater(t *testing.T) {
	from := peer.PrivateKeyFromBytes([32]byte{1}).Public()
	c, _ := gatewayOf(t, from, netip.Addr{})
	behind := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.peers["mallory"].behind
	}
	listeners, round := 0, 0
	for ; round < 20 && (round == 0 || !behind()); round++ {
		if _, err := c.Receive(from, headless(t, round)); err != nil {
			t.Fatal(err)
		}
		c.reconcile()
		listeners += mcs.MaxPlaces
		if state, _ := c.State(); !behind() && (len(state.Imports) != 1 || len(state.Imports[0].Clusters[0].Endpoints) != mcs.MaxPlaces) {
			t.Fatalf("round %d: not imported: %+v", round, state.Problems)
		}
	}
	if !behind() || listeners < changeBurst/4 {
		t.Errorf("%d listeners are opened one after the other; behind: %t", listeners, behind())
	}
}

// A peer that has exceeded the limit with its listeners is imported as it is then, within the 200 s that
// the README gives. The listeners fail: time does not pass while one waits for connections.
func TestAPeerIsHonestAfterManyListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := peer.PrivateKeyFromBytes([32]byte{1}).Public()
		c, _ := gatewayOf(t, from, netip.MustParseAddr("192.0.2.1")) // not on this machine
		behind := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.peers["mallory"].behind
		}
		say := func(body []byte) {
			if _, err := c.Receive(from, body); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for round := 0; round == 0 || round < 20 && !behind(); round++ {
			say(headless(t, round))
		}
		if !behind() {
			t.Fatal("it changes as much as it likes at once")
		}
		good, err := io.ReadAll(new(message("", false, 0, 2)))
		if err != nil {
			t.Fatal(err)
		}
		say(good)
		imported := func() (names []string, problems int) {
			state, _ := c.State()
			for _, i := range state.Imports {
				names = append(names, i.Name.String())
			}
			return names, len(state.Problems)
		}
		start := time.Now()
		for {
			names, problems := imported()
			if slices.Equal(names, []string{"shop/x-0", "shop/x-1"}) && problems == 0 {
				break
			}
			if time.Since(start) > 200*time.Second {
				t.Fatalf("after %s are imported %q, with %d problems", time.Since(start), names, problems)
			}
			time.Sleep(time.Second)
			c.Tick(time.Now())
			synctest.Wait()
		}
		if took := time.Since(start); took < time.Minute {
			t.Errorf("it is imported after %s: it was not behind", took)
		}
	})
}

// Listeners that change for another reason than a message of the peer do not count against it: at our
// start, and when a namespace here comes or goes.
func TestChangesThatAPeerDidNotCauseDoNotCount(t *testing.T) {
	from := peer.PrivateKeyFromBytes([32]byte{1}).Public()
	c, _ := gatewayOf(t, from, netip.Addr{})
	if _, err := c.Receive(from, headless(t, 0)); err != nil {
		t.Fatal(err)
	}
	for i, namespaces := range [][]string{{"shop"}, {}, {"shop"}} {
		c.SetNamespaces(namespaces)
		c.reconcile()
		if state, _ := c.State(); len(state.Imports) != len(namespaces) {
			t.Fatalf("%d imports, the namespaces are %q: %+v", len(state.Imports), namespaces, state.Problems)
		}
		c.mu.Lock()
		left := c.peers["mallory"].changes.Tokens()
		c.mu.Unlock()
		if left != changeBurst {
			t.Errorf("step %d: %v changes are left of %d", i, left, changeBurst)
		}
	}
}

// headless returns a catalogue with one headless service, whose backends are other ones in each round.
func headless(t *testing.T, round int) []byte {
	t.Helper()
	o := mcs.Offer{Name: mcs.Name{Namespace: "shop", Name: "db"}, Created: time.Unix(1_700_000_000, 0), Spread: 1,
		Spec: mcs.Spec{Type: mcs.Headless, Ports: []mcs.Port{{Name: "sql", Protocol: api.TCP, Port: 5432}}}}
	for i := range mcs.MaxPlaces {
		o.Places = append(o.Places, mcs.Place{Hostname: fmt.Sprintf("db-%d-%d", round, i), At: []uint16{mcs.FirstPort}})
	}
	e, err := mcs.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(mcs.Message{Version: "1.0", Set: []json.RawMessage{e.Text}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// gatewayOf returns a gateway that imports the namespace shop from the peer mallory, and a function
// that sends it a message of mallory's catalogue. That returns the HTTP status, the version that
// the gateway has, and how long to wait. Listeners are at host, or at 127.0.0.1.
func gatewayOf(t *testing.T, from peer.PublicKey, host netip.Addr) (*Clusterset, func(body io.Reader) (status int, has string, wait time.Duration, err error)) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	own := peer.PrivateKeyFromBytes([32]byte{2}).Public()
	r, err := roster.Make(own, []config.Peer{{Name: "mallory", PublicKey: from, Import: mcs.Patterns{"shop"}}}, state.Peers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := New(Options{
		Ctx: ctx, Store: store, Peers: &roster.Registry{View: roster.NewView(r, &config.Resolved{Name: "cloud"})},
		Flows: forward.NewFlows(forward.Limits{}), Connected: func(*roster.Member) bool { return true }, Host: host, Logger: log,
	})
	server, err := auth.NewServer(auth.ServerOptions{Name: "cloud", Directory: r, OnServices: c.Receive})
	if err != nil {
		t.Fatal(err)
	}
	tunnel := overlay{make(network), from}
	client := &http.Client{Transport: &http.Transport{DialContext: tunnel.DialContext}}
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	running.Go(func() {
		if err := server.Serve(ctx, tunnel); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		client.CloseIdleConnections()
		cancel()
		running.Wait()
		c.Close()
		c.Wait()
		_ = store.Close()
	})
	c.SetNamespaces([]string{"shop"})
	url := "http://" + netip.AddrPortFrom(peer.OverlayAddr(own), api.PortAuth).String() + "/v1/services"
	return c, func(body io.Reader) (status int, has string, wait time.Duration, err error) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		if err != nil {
			return 0, "", 0, err
		}
		q.Header.Set(auth.VersionHeader, auth.ProtocolVersion)
		a, err := client.Do(q)
		if err != nil {
			return 0, "", 0, err
		}
		defer a.Body.Close()
		var answer struct{ Has string }
		err = json.NewDecoder(a.Body).Decode(&answer)
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		return a.StatusCode, answer.Has, time.Duration(seconds) * time.Second, err
	}
}

// What a peer exports is not reached in another's name: the objects of that are from before the start,
// and the peer chooses names of which the port is the other's.
func TestNobodyTakesAPortThatObjectsExpectOfAnother(t *testing.T) {
	from := peer.PrivateKeyFromBytes([32]byte{1}).Public()
	ports := func(c *Clusterset) map[uint16]string {
		if _, err := c.Receive(from, headless(t, 0)); err != nil {
			t.Fatal(err)
		}
		c.reconcile()
		c.reconciling.Lock()
		defer c.reconciling.Unlock()
		out := map[uint16]string{}
		for l, at := range c.at {
			out[at.Port()] = l.service
		}
		if len(out) != mcs.MaxPlaces {
			t.Fatalf("there are %d listeners", len(out))
		}
		return out
	}
	first, _ := gatewayOf(t, from, netip.Addr{})
	expected := map[uint16]string{}
	for port := range ports(first) {
		expected[port] = "bank"
	}
	first.Close()
	second, _ := gatewayOf(t, from, netip.Addr{})
	second.Reserve(expected)
	for port, service := range ports(second) {
		if expected[port] != "" {
			t.Errorf("clients of bank's service at port %d reach mallory's %s", port, service)
		}
	}
}
