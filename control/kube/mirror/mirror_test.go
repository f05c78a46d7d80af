package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/testenv/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an API server with Peers. Watches are refused, or stay open until they are ended.
type server struct {
	mu     sync.Mutex
	names  []string
	listed int // how often
	refuse bool
	events chan string // lines of the watch
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	switch {
	case query.Get("watch") == "" || query.Get("watch") == "false":
		s.mu.Lock()
		s.listed++
		list := v1alpha1.PeerList{TypeMeta: metav1.TypeMeta{APIVersion: "postern.dev/v1alpha1", Kind: "PeerList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, n := range s.names {
			list.Items = append(list.Items, object(n))
		}
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(list)
	case query.Get("sendInitialEvents") == "true":
		failure(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid) // like servers that do not support such lists
	case refuse:
		failure(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	default:
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-s.events:
				_, _ = io.WriteString(w, line+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

func failure(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: string(reason)})
}

func object(name string) v1alpha1.Peer {
	return v1alpha1.Peer{
		TypeMeta:   metav1.TypeMeta{APIVersion: "postern.dev/v1alpha1", Kind: "Peer"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "postern", ResourceVersion: "2"},
	}
}

func event(t *testing.T, kind, name string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"type": kind, "object": object(name)})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// watched is a running mirror.
type watched struct {
	*Mirror[*v1alpha1.Peer]
	t       *testing.T
	changed chan struct{}
	log     *lines
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func follow(t *testing.T, s *server) *watched {
	t.Helper()
	h := httptest.NewServer(s)
	version := v1alpha1.GroupVersion()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &v1alpha1.Peer{}, &v1alpha1.PeerList{})
	metav1.AddToGroupVersion(scheme, version)
	client, err := rest.RESTClientFor(&rest.Config{Host: h.URL, APIPath: "/apis", ContentConfig: rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, changed: make(chan struct{}, 1), log: &lines{}}
	w.Mirror = New(Options[*v1alpha1.Peer]{
		Client: client, Resource: v1alpha1.PeerResource, Namespace: "postern", List: &v1alpha1.PeerList{},
		Changed: func() {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		},
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Client.CloseIdleConnections()
		h.Close()
	})
	return w
}

// until waits until the mirror is as wanted.
func (w *watched) until(what string, holds func(names string, synced bool, err error) bool) {
	w.t.Helper()
	deadline := time.After(patience.Left())
	for {
		list, synced := w.Objects()
		var names []string
		for _, o := range list {
			names = append(names, o.Name)
		}
		err := w.Err()
		if holds(strings.Join(names, " "), synced, err) {
			return
		}
		select {
		case <-w.changed:
		case <-deadline:
			w.t.Fatalf("%s: it has %v, synced %v, %v", what, names, synced, err)
		}
	}
}

func TestAMirrorFollowsWhatComesChangesAndGoes(t *testing.T) {
	s := &server{names: []string{"b", "a"}, events: make(chan string)}
	w := follow(t, s)
	w.until("the list", func(names string, synced bool, err error) bool { return names == "a b" && synced && err == nil })
	s.events <- event(t, "ADDED", "c")
	w.until("one more", func(names string, _ bool, _ error) bool { return names == "a b c" })
	s.events <- event(t, "DELETED", "a")
	w.until("one less", func(names string, _ bool, _ error) bool { return names == "b c" })
	if x, synced := w.Get("b"); x == nil || x.Name != "b" || !synced {
		t.Errorf("of the name b it gives %v, synced %v", x, synced)
	}
	if x, synced := w.Get("a"); x != nil || !synced {
		t.Errorf("of a name that is gone it gives %v, synced %v", x, synced)
	}
}

// While watches fail, successful lists do not clear the error.
func TestAMirrorThatMayNotWatchSaysSoAllTheTime(t *testing.T) {
	s := &server{names: []string{"a"}, events: make(chan string), refuse: true}
	w := follow(t, s)
	w.until("it was refused", func(names string, synced bool, err error) bool {
		return names == "a" && synced && apierrors.IsForbidden(err)
	})
	deadline := time.After(patience.Left())
	for again := false; !again; {
		s.mu.Lock()
		again = s.listed >= 3
		s.mu.Unlock()
		if err := w.Err(); !apierrors.IsForbidden(err) {
			t.Fatalf("between two refusals it says %v", err)
		}
		select {
		case <-w.changed:
		case <-deadline:
			t.Fatal("it does not list again")
		}
	}
	s.mu.Lock()
	s.refuse = false
	s.mu.Unlock()
	if log := w.log.String(); strings.Contains(log, "Failed to watch") || strings.Contains(log, "orbidden") {
		t.Errorf("the log has what its owner says better:\n%s", log)
	}
	w.until("it is well", func(names string, _ bool, err error) bool { return names == "a" && err == nil })
}

// Whether the reflector reports a list that was cancelled because the reflector ends is chance.
// Such a report helps nobody.
func TestTheEndIsNoFailure(t *testing.T) {
	log, ended := &lines{}, false
	told := slog.New(quiet{Handler: slog.NewTextHandler(log, nil), ended: func() bool { return ended }})
	told.Error("Failed to watch", "err", context.DeadlineExceeded)
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("a failure is not logged: %q", log)
	}
	before := log.String()
	ended = true
	told.With("reflector", "peers").Error("Failed to watch", "err", context.Canceled)
	if log.String() != before {
		t.Errorf("the end is logged as a failure:\n%s", log)
	}
}

// A version that the API server has no more is no refusal: the reflector lists again.
func TestAnExpiredVersionIsNoFailure(t *testing.T) {
	status, reason := http.StatusGone, metav1.StatusReasonExpired
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		failure(w, status, reason)
	}))
	defer h.Close()
	version := v1alpha1.GroupVersion()
	client, err := rest.RESTClientFor(&rest.Config{Host: h.URL, APIPath: "/apis", ContentConfig: rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(), ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Client.CloseIdleConnections()
	m := New(Options[*v1alpha1.Peer]{Client: client, Resource: v1alpha1.PeerResource, Namespace: "postern", Changed: func() {}})
	if _, err := m.watch(t.Context(), metav1.ListOptions{}); err == nil || m.Err() != nil {
		t.Errorf("the watch gave %v, of which %v is noted, want an error and none noted", err, m.Err())
	}
	status, reason = http.StatusForbidden, metav1.StatusReasonForbidden
	if _, err := m.watch(t.Context(), metav1.ListOptions{}); err == nil || m.Err() == nil {
		t.Errorf("the watch gave %v, of which %v is noted, want one that is", err, m.Err())
	}
}

// An outage says nothing about rights. Only an open watch shows that they suffice.
func TestARefusalOutlastsAnOutage(t *testing.T) {
	changes := 0
	m := New(Options[*v1alpha1.Peer]{Changed: func() { changes++ }})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: v1alpha1.PeerResource}, "", nil)
	for i, step := range []struct {
		err    error
		denied bool
	}{{io.EOF, false}, {forbidden, true}, {io.EOF, true}, {nil, false}, {io.EOF, false}} {
		m.note(step.err)
		if m.Denied() != step.denied || !errors.Is(m.Err(), step.err) || changes != i+1 {
			t.Errorf("after %v: denied %v (want %v), Err %v, %d changes (want %d)", step.err, m.Denied(), step.denied, m.Err(), changes, i+1)
		}
	}
}

// A starting API server briefly refuses what it granted before. A right that was never granted
// counts as refused at once.
func TestARefusalIsBelievedWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		m := New(Options[*v1alpha1.Peer]{Changed: func() { changes++ }})
		if err := m.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: v1alpha1.PeerResource}, "", nil)
		for _, step := range []struct {
			after   time.Duration
			err     error
			denied  bool
			changes int
		}{{0, forbidden, false, 2}, {sure - 1, io.EOF, false, 3}, {0, nil, false, 4}, {0, forbidden, false, 5}, {sure - 1, forbidden, false, 5}, {1, forbidden, true, 6}, {0, nil, false, 7}} {
			time.Sleep(step.after)
			m.note(step.err)
			if m.Denied() != step.denied || changes != step.changes {
				t.Errorf("after %v: denied %v (want %v), %d changes (want %d)", step.err, m.Denied(), step.denied, changes, step.changes)
			}
		}
	})
}

// Fields that are not read are not kept, whichever way an object arrives.
func TestAMirrorKeepsObjectsSlim(t *testing.T) {
	fat := func(name string) *v1alpha1.Peer {
		x := object(name)
		x.Labels = map[string]string{"a": "b"}
		return &x
	}
	m := New(Options[*v1alpha1.Peer]{Changed: func() {}, Slim: func(x *v1alpha1.Peer) *v1alpha1.Peer {
		return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: x.Name}}
	}})
	if err := errors.Join(m.Replace([]any{fat("a")}, ""), m.Add(fat("b")), m.Update(fat("c"))); err != nil {
		t.Fatal(err)
	}
	list, _ := m.Objects()
	if len(list) != 3 {
		t.Fatalf("got %d objects, want 3", len(list))
	}
	for _, x := range list {
		if len(x.Labels) != 0 {
			t.Errorf("%s is kept with its labels", x.Name)
		}
	}
	if x, err := m.Transformer()(fat("d")); err != nil || len(x.(*v1alpha1.Peer).Labels) != 0 {
		t.Errorf("got %v, %v of an object that arrives", x, err)
	}
}

// Objects with the same name in two namespaces are distinct.
func TestAMirrorOfAllNamespacesTellsThemApart(t *testing.T) {
	in := func(namespace string) *v1alpha1.Peer {
		x := object("a")
		x.Namespace = namespace
		return &x
	}
	m := New(Options[*v1alpha1.Peer]{Changed: func() {}})
	if err := errors.Join(m.Replace([]any{in("one"), in("two")}, ""), m.Add(in("three")), m.Delete(in("two"))); err != nil {
		t.Fatal(err)
	}
	var got []string
	list, _ := m.Objects()
	for _, x := range list {
		got = append(got, x.Namespace)
	}
	if strings.Join(got, " ") != "one three" {
		t.Errorf("got those of %v, want one and three", got)
	}
	if x, _ := m.Get("three/a"); x == nil || x.Namespace != "three" {
		t.Errorf("by its namespace and name it gives %v", x)
	}
}
