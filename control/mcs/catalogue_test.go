package mcs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

var since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// web returns an offer of that name.
func web(name string, change ...func(*Offer)) Offer {
	o := Offer{
		Name: Name{"shop", name}, Created: since, Spread: 1,
		Spec:   Spec{Type: ClusterSetIP, Ports: []Port{{"http", api.TCP, 80, "http"}, {"dns", api.UDP, 53, ""}, {"s", SCTP, 7, ""}}},
		Places: []Place{{At: []uint16{10007, 10008, 0}}},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

func entry(t *testing.T, o Offer) *Entry {
	t.Helper()
	e, err := Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// exchange passes messages from a writer to a reader until nothing is due, and returns their number
// and the bytes of entries in them.
func exchange(t *testing.T, w *Writer, r *Reader) (messages, size int) {
	t.Helper()
	for w.Due() {
		if messages++; messages > 2000 {
			t.Fatal("they never agree")
		}
		n := hand(t, w, r)
		size += n
	}
	return messages, size
}

func hand(t *testing.T, w *Writer, r *Reader) (size int) {
	t.Helper()
	m := parsed(t, w.Next())
	if _, err := r.Take(m, nil); err != nil {
		t.Fatal(err)
	}
	w.Answered(r.Has())
	for _, e := range m.Set {
		size += len(e)
	}
	return size
}

// reader returns one that keeps everything.
func reader() *Reader { return NewReader(func(string) bool { return true }) }

// parsed returns a message as it arrives.
func parsed(t *testing.T, m Message) Message {
	t.Helper()
	m.Version, m.Has = "1.0", strings.Repeat("f", 32)
	body, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = ParseMessage(body); err != nil {
		t.Fatalf("a message of %d bytes: %v", len(body), err)
	}
	return m
}

func names(r *Reader) []string {
	var out []string
	for _, n := range r.Names() {
		out = append(out, n.String())
	}
	slices.Sort(out)
	return out
}

func TestACatalogueIsToldByDifference(t *testing.T) {
	w, r := NewWriter(), reader()
	for i := range MaxServices {
		if o := web(fmt.Sprintf("web-%d", i)); !w.Set(o.Name.String(), entry(t, o)) {
			t.Fatalf("there is no room for the service %d", i)
		}
	}
	if w.Set("shop/more", entry(t, web("more"))) {
		t.Errorf("there is room for more than %d", MaxServices)
	}
	messages, _ := exchange(t, w, r)
	if n := len(names(r)); n != MaxServices || !slices.Equal(names(r), w.Names()) {
		t.Fatalf("%d of %d arrived", n, MaxServices)
	}
	if messages < 10 || messages > 40 {
		t.Errorf("it took %d messages", messages)
	}
	// A change costs as much as it contains.
	w.Set("shop/web-7", nil)
	w.Set("shop/web-8", entry(t, web("web-8", func(o *Offer) { o.Places[0].At[0] = 10100 })))
	if messages, size := exchange(t, w, r); messages != 1 || size > 500 {
		t.Errorf("a change took %d messages with %d bytes of entries", messages, size)
	}
	if r.Offer(Name{"shop", "web-7"}) != nil || r.Offer(Name{"shop", "web-8"}).Places[0].At[0] != 10100 {
		t.Error("the change did not arrive")
	}
	// A restarted writer asks first, and sends nothing that is known.
	again := NewWriter()
	for name, e := range w.want {
		again.Set(name, e)
	}
	again.Set("shop/new", entry(t, web("new")))
	again.Next()
	if again.Answered(r.Has()) != true {
		t.Error("a reader that lacks one is left alone for a while")
	}
	exchange(t, again, r)
	if !slices.Equal(names(r), again.Names()) {
		t.Error("they differ after the writer has started again")
	}
	third := NewWriter()
	for name, e := range again.want {
		third.Set(name, e)
	}
	if messages, size := exchange(t, third, r); messages != 1 || size != 0 {
		t.Errorf("a writer that starts again with nothing new takes %d messages, %d bytes", messages, size)
	}
	// So does a reader that has lost everything.
	r = reader()
	third.Recheck()
	exchange(t, third, r)
	if !slices.Equal(names(r), third.Names()) || !third.Synced(r.Has()) {
		t.Error("they differ after the reader has started again")
	}
}

// Whatever is lost, changes at the same time, or restarts, they agree in the end.
func TestTheyAgreeWhateverHappens(t *testing.T) {
	var entries []*Entry
	for i := range 3000 { // with names of maximum length, so that their number alone fills messages
		entries = append(entries, entry(t, web(fmt.Sprintf("w-%061d", i))))
	}
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		w, r := NewWriter(), reader()
		for range 60 {
			switch random.IntN(10) {
			case 0:
				w.Recheck()
			case 1:
				r = reader()
			case 2: // the writer restarts
				next := NewWriter()
				for name, e := range w.want {
					next.Set(name, e)
				}
				w = next
			case 3, 4, 5: // many, so that several messages are needed
				for range random.IntN(300) {
					w.Set(entries[random.IntN(len(entries))].Name, nil)
					e := entries[random.IntN(len(entries))]
					w.Set(e.Name, e)
				}
			case 6: // the maximum, some of which the reader never had
				for _, e := range entries[:random.IntN(len(entries)+1)] {
					w.Set(e.Name, e)
				}
				for _, e := range entries[random.IntN(len(entries)):] {
					w.Set(e.Name, nil)
				}
			default:
				if !w.Due() {
					break
				}
				m := w.Next()
				if random.IntN(4) == 0 {
					break // it is lost
				}
				if _, err := r.Take(parsed(t, m), nil); err != nil {
					t.Fatal(err)
				}
				if random.IntN(4) != 0 { // its answer is lost
					w.Answered(r.Has())
				}
			}
		}
		if !w.Synced(r.Has()) {
			w.Recheck() // as the reader's next message causes
		}
		exchange(t, w, r)
		if got, want := names(r), w.Names(); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d are there, want %d", seed, len(got), len(want))
		}
	}
}

// After Recheck a reader is asked again, whatever it answers to a message that was on its way.
func TestAnAnswerFromBeforeADoubtDoesNotCount(t *testing.T) {
	w, r := NewWriter(), reader()
	exchange(t, w, r)
	w.Set("shop/web", entry(t, web("web")))
	if _, err := r.Take(parsed(t, w.Next()), nil); err != nil {
		t.Fatal(err)
	}
	w.Recheck()
	if !w.Answered(r.Has()) || !w.Due() || w.Delivered("shop/web") {
		t.Error("it is believed")
	}
	if messages, size := exchange(t, w, r); messages != 1 || size != 0 || !w.Delivered("shop/web") {
		t.Errorf("then it takes %d messages, %d bytes", messages, size)
	}
}

// A new catalogue takes effect when it is complete.
func TestHalfACatalogueIsNone(t *testing.T) {
	w, r := NewWriter(), reader()
	for i := range 500 {
		o := web(fmt.Sprintf("web-%d", i))
		w.Set(o.Name.String(), entry(t, o))
	}
	for w.Due() {
		hand(t, w, r)
		if n := len(names(r)); n != 0 && n != 500 {
			t.Fatalf("%d of 500 count", n)
		}
	}
	w.Recheck()
	w.Next()
	w.Answered("") // not what it has: everything is sent again
	for range 3 {
		hand(t, w, r)
		if n := len(names(r)); n != 500 {
			t.Fatalf("%d of 500 count while they come again", n)
		}
	}
}

func TestForgedEntriesAreRefused(t *testing.T) {
	many := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	good := func(field, value string) string {
		fields := map[string]string{
			"name": `"shop/web"`, "created": `"2026-01-02T03:04:05Z"`, "type": `"ClusterSetIP"`,
			"ports": `[{"name":"http","protocol":"TCP","port":80}]`, "places": `[{"at":[10000]}]`,
		}
		fields[field] = value
		var out []string
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			out = append(out, fmt.Sprintf("%q:%s", k, fields[k]))
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	for _, entry := range []string{good("spread", "1"), good("labels", `{"a":"","Example_1":"b.C-d","k8s.example.com/a":"1"}`), good("created", `"2020-01-01T00:00:00Z"`)} {
		if _, err := decode([]byte(entry)); err != nil {
			t.Fatalf("%s: %v", entry, err)
		}
	}
	for name, entry := range map[string]string{
		"no namespace":             good("name", `"web"`),
		"a name with a slash more": good("name", `"shop/web/x"`),
		"control characters":       good("name", `"shop/we\u0007b"`),
		"a path":                   good("name", `"../web"`),
		"upper case":               good("name", `"Shop/web"`),
		"no age":                   good("created", `null`),
		"ExternalName":             good("type", `"ExternalName"`),
		"no type":                  good("type", `""`),
		"no port":                  good("ports", `[]`),
		"port 0":                   good("ports", `[{"name":"a","protocol":"TCP","port":0}]`),
		"a port beyond":            good("ports", `[{"name":"a","protocol":"TCP","port":70000}]`),
		"a protocol of its own":    good("ports", `[{"name":"a","protocol":"ICMP","port":1}]`),
		"a port's name":            good("ports", `[{"name":"a b","protocol":"TCP","port":1}]`),
		"a port twice":             good("ports", `[{"name":"a","protocol":"TCP","port":1},{"name":"a","protocol":"TCP","port":2}]`),
		"ports without end":        good("ports", many(65, `{"protocol":"TCP","port":1}`)),
		"the auth port":            good("places", `[{"at":[80]}]`),
		"the API server's port":    good("places", `[{"at":[6443]}]`),
		"a range beyond":           `{"name":"shop/web","created":"2026-01-02T03:04:05Z","type":"ClusterSetIP","spread":64,"ports":[{"name":"a","protocol":"TCP","port":1}],"places":[{"at":[15990]}]}`,
		"a spread without end":     good("spread", "65"),
		"another number of places": good("places", `[{"at":[10000,10001]}]`),
		"a hostname":               good("places", `[{"hostname":"a","at":[10000]}]`),
		"two places":               good("places", `[{"at":[10000]},{"at":[10001]}]`),
		"places without end":       good("places", many(257, `{"at":[10000]}`)),
		"an address":               good("places", `[{"at":["169.254.169.254"]}]`),
		"an age before all":        good("created", `"1970-01-01T00:00:00Z"`),
		"an age before exports":    good("created", `"2019-12-31T23:59:59Z"`),
		"a label's end":            good("labels", `{"a.":"b"}`),
		"a label's beginning":      good("labels", `{"example.com/-a":"b"}`),
		"a label's prefix":         good("labels", `{"example..com/a":"b"}`),
		"a prefix's end":           good("labels", `{"example.com-/a":"b"}`),
		"a label without a name":   good("labels", `{"example.com/":"b"}`),
		"the end of a value":       good("labels", `{"a":"b-"}`),
		"the beginning of a value": good("labels", `{"a":".b"}`),
		"a protocol's end":         good("ports", `[{"name":"a","protocol":"TCP","port":1,"appProtocol":"http/"}]`),
		"a label's value":          good("labels", `{"a":"b c"}`),
		"an annotation's value":    good("annotations", `{"a":"\u001b[2J"}`),
		"annotations without end":  good("annotations", `{"a":"`+strings.Repeat("x", 8193)+`"}`),
		"a policy":                 good("internalTrafficPolicy", `"../x"`),
		"an affinity without end":  good("affinity", "86401"),
		"a name twice":             strings.Replace(good("type", `"Headless"`), `"name"`, `"NAME":"shop/other","name"`, 1),
	} {
		r := reader()
		var called struct{ Name string }
		_ = json.Unmarshal([]byte(entry), &called)
		m := Message{Set: []json.RawMessage{json.RawMessage(entry), json.RawMessage(good("name", `"shop/good"`))}}
		body, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if m, err = ParseMessage(body); err != nil {
			continue // it is not used
		}
		if _, err := r.Take(m, nil); err != nil {
			t.Errorf("%s: nothing of the rest counts: %v", name, err)
			continue
		}
		if got := names(r); !slices.Equal(got, []string{"shop/good"}) {
			t.Errorf("%s: %v count", name, got)
		}
		if p := r.Refused("cloud"); len(p) != 1 || p[0].Code != catalogue.ServiceRefused || p[0].Peer != "cloud" || p[0].Detail == "" {
			t.Errorf("%s: the problem is %+v", name, p)
		}
	}
}

func TestMoreServicesThanMayBeAreRefused(t *testing.T) {
	r := reader()
	base := ""
	for i := 0; ; i++ {
		m := Message{Base: base}
		for j := range 100 {
			m.Set = append(m.Set, entry(t, web(fmt.Sprintf("w-%d-%d", i, j))).Text)
		}
		_, err := r.Take(m, nil)
		if i < MaxServices/100 {
			if err != nil {
				t.Fatalf("after %d: %v", i*100, err)
			}
			base = r.Has()
			continue
		}
		if !errors.Is(err, ErrTooMany) {
			t.Errorf("%d services: %v", (i+1)*100, err)
		}
		break
	}
	if n := len(r.Names()); n != MaxServices {
		t.Errorf("%d count", n)
	}
}

// What a peer can make this gateway keep is bounded in bytes too.
func TestCataloguesAreBoundedInBytes(t *testing.T) {
	w, r := NewWriter(), reader()
	large := func(i int) *Entry {
		return entry(t, web(fmt.Sprintf("w-%d", i), func(o *Offer) { o.Spec.Annotations = map[string]string{"a": strings.Repeat("x", 8000)} }))
	}
	n := 0
	for ; w.Set(large(n).Name, large(n)); n++ {
	}
	exchange(t, w, r)
	if len(r.Names()) != n || n < 400 || n > 600 {
		t.Errorf("of %d services %d arrived", n, len(r.Names()))
	}
	m := Message{Base: r.Has(), Set: []json.RawMessage{large(n).Text}}
	if _, err := r.Take(m, nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more is taken: %v", err)
	}
	has := r.Has()
	for what, m := range map[string]Message{ // nothing of it counts
		"a catalogue that is not there": {Base: strings.Repeat("0", 31) + "1"}, "a part of another": {Set: []json.RawMessage{large(0).Text}, More: true},
	} {
		if _, err := r.Take(m, nil); err != nil || !r.TooMany() {
			t.Errorf("after %s: %v, and too many is %v", what, err, r.TooMany())
		}
	}
	m = Message{Base: has, Set: []json.RawMessage{large(0).Text}} // in the place of itself
	if _, err := r.Take(m, nil); err != nil || r.TooMany() {
		t.Errorf("after what counts: %v, and too many is %v", err, r.TooMany())
	}
	w.Set(large(1).Name, nil)
	if e := large(n); !w.Set(e.Name, e) {
		t.Error("what is gone takes room")
	}
}

// A catalogue that is full, in number or in bytes, can still be changed: removals make room for
// additions, in whatever order they happened.
func TestAFullCatalogueCanBeChanged(t *testing.T) {
	w, r := NewWriter(), reader()
	named := func(i int) Offer { return web(fmt.Sprintf("w-%061d", i)) }
	for i := range MaxServices {
		w.Set(named(i).Name.String(), entry(t, named(i)))
	}
	exchange(t, w, r)
	for i := range MaxServices {
		w.Set(named(i).Name.String(), nil)
		if o := named(MaxServices + i); !w.Set(o.Name.String(), entry(t, o)) {
			t.Fatal("there is no room for one in the place of another")
		}
	}
	exchange(t, w, r)
	if !slices.Equal(names(r), w.Names()) {
		t.Error("they differ after all were exchanged")
	}
	m := Message{Base: r.Has(), Gone: []string{w.Names()[0]}, Set: []json.RawMessage{entry(t, web("new")).Text}}
	if _, err := r.Take(m, nil); err != nil || len(names(r)) != MaxServices {
		t.Errorf("one in the place of another is not taken: %v", err)
	}
	// One half is large, then the other half.
	w, r = NewWriter(), reader()
	sized := func(i int, large bool) *Entry {
		return entry(t, web(fmt.Sprintf("w-%d", i), func(o *Offer) {
			if large {
				o.Spec.Annotations = map[string]string{"a": strings.Repeat("x", 8000)}
			}
		}))
	}
	const n = 940
	for _, odd := range []int{0, 1} {
		for pass := range 2 { // shrink first, so that the writer has room
			for i := range n {
				if large := i%2 == odd; large == (pass == 1) && !w.Set(sized(i, large).Name, sized(i, large)) {
					t.Fatalf("there is no room for the service %d", i)
				}
			}
		}
		exchange(t, w, r)
	}
	if !slices.Equal(names(r), w.Names()) || r.Offer(Name{"shop", "w-1"}).Spec.Annotations == nil {
		t.Error("they differ after they changed in size")
	}
}

// An entry that is repeated in a message counts each time: it is refused.
func TestAnEntryIsOnceInAMessage(t *testing.T) {
	r := reader()
	text := entry(t, web("web")).Text
	if _, err := r.Take(Message{Set: []json.RawMessage{text}}, nil); err != nil {
		t.Fatal(err)
	}
	has := r.Has()
	if _, err := r.Take(Message{Base: has, Set: []json.RawMessage{text, text}}, nil); err == nil {
		t.Error("it is taken twice")
	}
	if r.Has() != has {
		t.Error("what is refused changed something")
	}
}

// Only the digests of unwanted entries are kept. When they become wanted, everything is sent again,
// and until then the catalogue counts as not received.
func TestOnlyWhatIsImportedIsKept(t *testing.T) {
	w, r := NewWriter(), NewReader(func(namespace string) bool { return namespace == "shop" })
	vault := web("vault", func(o *Offer) { o.Name.Namespace = "bank" })
	for _, o := range []Offer{web("web"), vault} {
		w.Set(o.Name.String(), entry(t, o))
	}
	exchange(t, w, r)
	one := len(entry(t, web("web")).Text)
	if r.Offer(vault.Name) != nil || r.Offer(web("web").Name) == nil || len(names(r)) != 2 || r.Kept() != one || !w.Synced(r.Has()) || !r.Complete() {
		t.Fatalf("%d bytes of %v are kept", r.Kept(), names(r))
	}
	all := func(string) bool { return true }
	if !r.Want(all) || r.Complete() || r.Has() != "" {
		t.Fatalf("nothing is asked for: it has %q", r.Has())
	}
	if r.Offer(web("web").Name) == nil {
		t.Error("what was imported is withdrawn")
	}
	// A change in the meantime starts over as well.
	w.Set("shop/api", entry(t, web("api")))
	exchange(t, w, r)
	if !r.Complete() || r.Offer(vault.Name) == nil || r.Offer(web("api").Name) == nil || r.Kept() < 2*one {
		t.Errorf("%d bytes of %v are kept", r.Kept(), names(r))
	}
	if r.Want(func(string) bool { return false }) || r.Kept() != 0 || r.Offer(vault.Name) != nil || !w.Synced(r.Has()) {
		t.Errorf("%d bytes are kept of what nobody wants", r.Kept())
	}
	// Refused entries are not kept either.
	r = NewReader(all)
	m := Message{Set: []json.RawMessage{entry(t, web("web")).Text, entry(t, web("api")).Text}}
	both := len(m.Set[0]) + len(m.Set[1])
	if _, err := r.Take(m, func(bytes int) bool { return bytes < both }); !errors.Is(err, ErrTooMany) || r.Complete() {
		t.Errorf("more is taken than there is room for: %v", err)
	}
	m.More = true
	for range 2 { // the second replaces the first
		if _, err := r.Take(m, func(bytes int) bool { return r.Kept()+bytes == both }); err != nil {
			t.Error(err)
		}
	}
	// No room is asked for what is not kept.
	none := func(bytes int) bool { t.Errorf("room for %d bytes is asked", bytes); return false }
	for what, set := range map[string]json.RawMessage{
		"it is there": m.Set[0], "it is invalid": json.RawMessage(`{"name":"shop/web"}`), "nobody wants it": entry(t, vault).Text,
	} {
		r = NewReader(func(namespace string) bool { return namespace == "shop" })
		if _, err := r.Take(Message{Set: m.Set}, nil); err != nil {
			t.Fatal(err)
		}
		for _, base := range []string{r.Has(), Nothing} {
			if _, err := r.Take(Message{Base: base, Set: []json.RawMessage{set}}, none); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

func FuzzCatalogue(f *testing.F) {
	o := web("web")
	e, err := Encode(o)
	if err != nil {
		f.Fatal(err)
	}
	body, err := json.Marshal(Message{Set: []json.RawMessage{e.Text}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"base":"","set":[{"name":"a/b"}],"gone":["a/c"],"more":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseMessage(body)
		if err != nil {
			return
		}
		r := reader()
		m.Base, m.More = "", false
		if _, err := r.Take(m, nil); err != nil {
			return
		}
		for _, n := range r.Names() {
			o := r.Offer(n)
			if o == nil || o.Name != n || o.check() != nil {
				t.Fatalf("%s is used, and is no offer: %+v", n, o)
			}
			again, err := Encode(*o)
			if err != nil {
				t.Fatalf("%s cannot be told again: %v", n, err)
			}
			if p, err := decode(again.Text); err != nil || !p.Spec.equal(o.Spec) {
				t.Fatalf("%s is another when it is told again: %+v, %v", n, p, err)
			}
		}
		if strings.ContainsFunc(fmt.Sprint(r.Refused("cloud")), func(c rune) bool { return c < ' ' }) {
			t.Fatal("a refusal has control characters")
		}
	})
}

// A peer's labels and annotations do not make an import look like a tool's own object.
func TestMarksOfToolsAreNotCopied(t *testing.T) {
	r := reader()
	marks := `{"tier":"front","example.com/team":"a","notkubernetes.io/x":"1",` +
		`"app.kubernetes.io/instance":"shop","argocd.argoproj.io/instance":"shop","argocd.argoproj.io/tracking-id":"shop","kustomize.toolkit.fluxcd.io/name":"shop",` +
		`"helm.toolkit.fluxcd.io/name":"shop","meta.helm.sh/release-name":"shop","helm.sh/chart":"shop-1","kubectl.kubernetes.io/last-applied-configuration":"x",` +
		`"applyset.kubernetes.io/part-of":"x","olm.owner":"x","operators.coreos.com/x":"","kapp.k14s.io/app":"1","multicluster.kubernetes.io/derived-service":"x",` +
		`"endpointslice.kubernetes.io/managed-by":"x","service.kubernetes.io/topology-mode":"x","kubernetes.io/x":"1","k8s.io/x":"1","postern.dev/peer":"x"}`
	text := `{"name":"shop/web","created":"2026-01-02T03:04:05Z","type":"Headless","labels":` + marks + `,"annotations":` + marks + `}`
	m, err := ParseMessage([]byte(`{"version":"1.0","set":[` + text + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Take(m, nil); err != nil {
		t.Fatal(err)
	}
	o := r.Offer(Name{"shop", "web"})
	want := map[string]string{"tier": "front", "example.com/team": "a", "notkubernetes.io/x": "1"}
	if o == nil || !maps.Equal(o.Spec.Labels, want) || !maps.Equal(o.Spec.Annotations, want) {
		t.Errorf("it is imported as %+v", o)
	}
}
