package clusterset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/netstack"
)

// network connects to one peer without sockets, so that time can be virtual.
type network chan net.Conn

// serve makes a peer answer as the handler does, until the test ends.
func serve(t *testing.T, h http.HandlerFunc) network {
	n, ended := make(network), make(chan struct{})
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(ended)
		_ = srv.Serve(n)
	}()
	t.Cleanup(func() { srv.Close(); <-ended })
	return n
}

func (n network) DialContext(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	n <- there
	return here, nil
}

func (network) DialTCP(context.Context, netip.AddrPort) (*netstack.Conn, error) {
	return nil, errors.New("not used")
}

func (n network) Accept() (net.Conn, error) {
	c, open := <-n
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (n network) Close() error { close(n); return nil }
func (network) Addr() net.Addr { return &net.TCPAddr{} }

func all(string) bool { return true }

// web returns an entry of that name and about that size in bytes.
func web(t *testing.T, name string, size int) *mcs.Entry {
	t.Helper()
	e, err := mcs.Encode(mcs.Offer{
		Name: mcs.Name{Namespace: "shop", Name: name}, Created: time.Unix(1_700_000_000, 0), Spread: 1,
		Spec: mcs.Spec{Type: mcs.ClusterSetIP, Ports: []mcs.Port{{Name: "http", Protocol: api.TCP, Port: 80}},
			Annotations: map[string]string{"a": strings.Repeat("x", size)}},
		Places: []mcs.Place{{At: []uint16{mcs.FirstPort}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// texts returns n entries, web-0 and so on, of about that size in bytes. Encoding them is most of the
// work of a test that sends them again and again.
func texts(t *testing.T, n, size int) []json.RawMessage {
	t.Helper()
	out := make([]json.RawMessage, n)
	for i := range out {
		out[i] = web(t, fmt.Sprint("web-", i), size).Text
	}
	return out
}

// A message that the peer refuses is not repeated: the peer is asked for its version.
func TestAMessageThatIsRefusedIsNotRepeated(t *testing.T) {
	to := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(auth.VersionHeader, auth.ProtocolVersion)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"version":"1.0","code":"bad_request","message":"m"}`))
	})
	s := newSite(all)
	s.member = &roster.Member{}
	s.writer.Set("shop/web", web(t, "web", 0))
	s.writer.Next()
	s.writer.Answered("")
	c := &Clusterset{o: Options{Stack: to}, shared: shared{peers: map[string]*site{"edge": s}}}
	if m := s.writer.Next(); len(m.Set) != 1 {
		t.Fatalf("it is told %+v", m)
	}
	if err := c.send(t.Context(), s.member.Key, struct{}{}); !errors.Is(err, auth.ErrRequest) {
		t.Fatal(err)
	}
	if m := s.writer.Next(); !s.writer.Due() || len(m.Set) > 0 || m.Base == "" {
		t.Errorf("after the refusal it is told %+v", m)
	}
}

// A peer that loses its state, and says so before its answer to the last message arrives, gets
// everything again.
func TestAPeerThatForgetsBeforeItsAnswerIsToldAnew(t *testing.T) {
	s, r, c := newSite(all), mcs.NewReader(all), &Clusterset{}
	tell := func() (has string) {
		if _, err := r.Take(s.writer.Next(), nil); err != nil {
			t.Fatal(err)
		}
		return r.Has()
	}
	s.writer.Set("shop/web", web(t, "web", 0))
	for s.writer.Due() {
		c.answered(s, tell())
	}
	s.writer.Set("shop/api", web(t, "api", 0))
	on := tell() // the answer is on its way
	r = mcs.NewReader(all)
	if s.compare(r.Has()) {
		t.Error("it is asked while it is being told")
	}
	c.answered(s, on)
	for s.writer.Due() {
		c.answered(s, tell())
	}
	if len(r.Names()) != 2 || !s.writer.Synced(r.Has()) {
		t.Errorf("it has %v", r.Names())
	}
}

// Two peers that send to each other at the same time, each before the other's answer arrives,
// finish.
func TestMessagesThatCrossComeToAnEnd(t *testing.T) {
	var c Clusterset
	a, b := newSite(all), newSite(all)
	a.writer.Set("shop/web", web(t, "web", 0))
	for i := 0; a.writer.Due() || b.writer.Due(); i++ {
		if i == 8 {
			t.Fatal("they ask each other without an end")
		}
		type exchange struct {
			from, to *site
			m        mcs.Message
			has      string
		}
		var under []*exchange
		for _, x := range []*exchange{{from: a, to: b}, {from: b, to: a}} {
			if x.from.writer.Due() {
				x.m = x.from.writer.Next()
				x.m.Has = x.from.reader.Has()
				under = append(under, x)
			}
		}
		for _, x := range under {
			if _, err := x.to.reader.Take(x.m, nil); err != nil {
				t.Fatal(err)
			}
			x.to.compare(x.m.Has)
			x.has = x.to.reader.Has()
		}
		for _, x := range under {
			c.answered(x.from, x.has)
		}
	}
	if len(b.reader.Names()) != 1 || !a.reader.Complete() {
		t.Errorf("one has %v, the other heard %t", b.reader.Names(), a.reader.Complete())
	}
}

// Peers that all have more than their part, and try again whenever they lost it, do not displace
// each other without end. One that has become smaller is heard later.
func TestLargeCataloguesDoNotDisplaceEachOther(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(keptFraction * leastKept))
	synctest.Test(t, func(t *testing.T) {
		const large, small = 450, 30
		set := texts(t, large, 8000)
		c := &Clusterset{wake: make(chan struct{}, 1), shared: shared{peers: map[string]*site{}, due: due{names: map[mcs.Name]bool{}}}}
		var sites []*site
		for i := range 3 {
			sites = append(sites, newSite(all))
			c.peers[fmt.Sprint("peer-", i)] = sites[i]
		}
		tell := func(s *site, entries int) (heard bool) {
			for j := 0; j < entries; j += 3 {
				m := mcs.Message{Base: s.reader.Has(), More: j+3 < entries, Set: set[j : j+3]}
				if j == 0 {
					m.Base = ""
				}
				if _, err := s.reader.Take(m, func(bytes int) bool { return c.roomLocked(s, bytes) }); err != nil {
					return false
				}
			}
			return true
		}
		told := 0
		for range 6 {
			for _, s := range sites {
				if len(s.reader.Names()) == 0 && tell(s, large) {
					told++
				}
			}
		}
		if told > 3 {
			t.Errorf("catalogues are taken over %d times", told)
		}
		time.Sleep(lostFor)
		for _, s := range sites {
			if len(s.reader.Names()) == 0 && !tell(s, small) {
				t.Error("a peer that has become smaller is not heard")
			}
		}
	})
}

// However much the first peers announce, the catalogues kept are bounded, one always fits, and peers
// that follow get their part.
func TestCataloguesOfAllPeersAreBounded(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(keptFraction * leastKept))
	const peers, many, few = 3, 510, 60
	set := texts(t, many, 8000)
	c := &Clusterset{wake: make(chan struct{}, 1), shared: shared{peers: map[string]*site{}, due: due{names: map[mcs.Name]bool{}}}}
	var sites []*site
	kept := func() (all int) {
		for _, s := range sites {
			all += s.reader.Kept()
		}
		return all
	}
	tells := func(s *site, entries int) {
		t.Helper()
		for j := 0; j < entries; j += 3 {
			m := mcs.Message{Base: s.reader.Has(), Set: set[j : j+3]}
			_, err := s.reader.Take(m, func(bytes int) bool { return c.roomLocked(s, bytes) })
			if errors.Is(err, mcs.ErrTooMany) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range peers {
		sites = append(sites, newSite(all))
		c.peers[fmt.Sprint("peer-", i)] = sites[i]
		if tells(sites[i], many); i == 0 && kept() < mcs.MaxCatalogue*9/10 {
			t.Errorf("of the only peer %d bytes are kept", kept())
		}
		if kept() > leastKept {
			t.Errorf("%d bytes are kept, at most %d may be", kept(), leastKept)
		}
	}
	clear(c.due.names)
	for i := range peers { // the first ones announce most
		c.peers[fmt.Sprint("peer-", peers+i)] = newSite(all)
		sites = append(sites, c.peers[fmt.Sprint("peer-", peers+i)])
		tells(sites[peers+i], few)
		if n := len(sites[peers+i].reader.Names()); n != few {
			t.Errorf("of a peer with %d services %d are kept", few, n)
		}
	}
	if kept() > leastKept {
		t.Errorf("%d bytes are kept, at most %d may be", kept(), leastKept)
	}
	dropped := 0
	for _, s := range sites {
		if s.reader.TooMany() && s.reader.Kept() == 0 {
			dropped++
		}
	}
	if dropped == 0 || len(c.due.names) == 0 {
		t.Errorf("%d peers are reported to have too many services, and %d services are looked at again", dropped, len(c.due.names))
	}
}

// A peer of which nothing is kept takes no room from the others, however much it sends.
func TestWhatIsNotKeptTakesNoRoom(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(keptFraction * leastKept))
	c := &Clusterset{wake: make(chan struct{}, 1), shared: shared{peers: map[string]*site{}, due: due{names: map[mcs.Name]bool{}}}}
	take := func(s *site, m mcs.Message) {
		t.Helper()
		if _, err := s.reader.Take(m, func(bytes int) bool { return c.roomLocked(s, bytes) }); err != nil {
			t.Fatal(err)
		}
	}
	const entry = 8000
	set := texts(t, mcs.MaxCatalogue/len(web(t, "web-100", entry).Text), entry)
	for _, peer := range []string{"cloud", "edge"} { // together they fill it
		c.peers[peer] = newSite(all)
		for i := range set {
			take(c.peers[peer], mcs.Message{Base: c.peers[peer].reader.Has(), Set: set[i : i+1]})
		}
	}
	other := newSite(func(namespace string) bool { return namespace == "bank" })
	c.peers["other"] = other
	take(other, mcs.Message{Set: []json.RawMessage{}})
	send := func(base, old, new string) {
		t.Helper()
		m := mcs.Message{Base: base}
		for _, text := range set[:5] { // more than is left
			m.Set = append(m.Set, bytes.Replace(text, []byte(old), []byte(new), 1))
		}
		take(other, m)
	}
	send(other.reader.Has(), "", "")                 // nobody wants it
	send(other.reader.Has(), "shop/web", "bank/Web") // it is invalid
	send("another", "shop", "bank")
	for _, peer := range []string{"cloud", "edge"} {
		if n := len(c.peers[peer].reader.Names()); n != len(set) {
			t.Errorf("of %s %d services are kept, want %d", peer, n, len(set))
		}
	}
}

// A catalogue that takes many messages leaves a peer capacity for other requests.
func TestALargeCatalogueIsToldInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mcs.NewReader(all)
		messages := 0
		to := serve(t, func(w http.ResponseWriter, q *http.Request) {
			messages++
			body, err := io.ReadAll(q.Body)
			m, wrong := mcs.ParseMessage(body)
			if _, refused := r.Take(m, nil); err != nil || wrong != nil || refused != nil {
				t.Error(err, wrong, refused)
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set(auth.VersionHeader, auth.ProtocolVersion)
			_, _ = fmt.Fprintf(w, `{"version":"1.0","has":%q}`, r.Has())
		})
		s := newSite(all)
		s.member = &roster.Member{}
		for i := range 500 {
			if e := web(t, fmt.Sprintf("web-%d", i), 8000); !s.writer.Set(e.Name, e) {
				t.Fatal("there is no room")
			}
		}
		c := &Clusterset{o: Options{Stack: to}, shared: shared{peers: map[string]*site{"edge": s}}}
		hand := func() {
			if err := c.send(t.Context(), s.member.Key, struct{}{}); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		if hand(); messages != tellBurst || !s.writer.Due() || r.Complete() {
			t.Errorf("%d messages come in a row, want %d", messages, tellBurst)
		}
		for s.writer.Due() {
			time.Sleep(time.Second)
			hand()
		}
		if most := tellBurst + int(time.Since(begin).Seconds()*float64(tellRate)); len(r.Names()) != 500 || messages > most {
			t.Errorf("%d of 500 are there, after %d messages of %d", len(r.Names()), messages, most)
		}
	})
}

// The maximum of exports from one namespace does not prevent services of others from being
// announced, nor removes one that is announced and changes.
func TestNoNamespaceTakesAllThatAPeerIsTold(t *testing.T) {
	entry := func(namespace, name string, size int) *mcs.Entry {
		e, err := mcs.Encode(mcs.Offer{
			Name: mcs.Name{Namespace: namespace, Name: name}, Created: time.Unix(1_700_000_000, 0), Spread: 1,
			Spec: mcs.Spec{Type: mcs.ClusterSetIP, Ports: []mcs.Port{{Name: "http", Protocol: api.TCP, Port: 80}},
				Annotations: map[string]string{"a": strings.Repeat("x", size)}},
			Places: []mcs.Place{{At: []uint16{mcs.FirstPort}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	m := &roster.Member{Name: "edge", Grants: roster.Grants{Export: mcs.Patterns{"*"}}}
	r := roster.Of(m)
	c := &Clusterset{exporter: newExporter(nil), shared: shared{peers: map[string]*site{}, exports: []mcs.Export{}}}
	s := newSite(all)
	s.member, s.retry = m, time.Now().Add(time.Hour)
	c.peers[m.Name] = s
	exports := func(list ...*mcs.Entry) {
		var changed []string
		for _, e := range list {
			c.exported[e.Name] = &export{entry: e, granted: true}
			changed = append(changed, e.Name)
		}
		c.notify(r, changed)
	}
	told := func(name string) {
		t.Helper()
		if !s.writer.Contains(name) || s.unsent[name] {
			t.Errorf("%s is not told", name)
		}
	}
	exports(entry("shop", "web", 1))
	for i := range 600 { // 8 KB each: more than 4 MB
		exports(entry("a", fmt.Sprint("w-", i), 8000))
	}
	if len(s.unsent) == 0 {
		t.Fatal("all is told")
	}
	told("shop/web")
	exports(entry("shop", "web", 2000))
	told("shop/web")
	exports(entry("bank", "web", 2000))
	told("bank/web")
	for name := range c.exported { // there is room again
		if strings.HasPrefix(name, "a/") {
			delete(c.exported, name)
			c.notify(r, []string{name})
		}
	}
	if len(s.unsent) != 0 || len(s.writer.Names()) != 2 {
		t.Errorf("told are %v, and not %v", s.writer.Names(), s.unsent)
	}
}
