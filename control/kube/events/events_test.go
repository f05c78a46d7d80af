package events

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a request that the API server received.
type request struct {
	method, name string
	body         map[string]any
}

// server records the requests, and refuses to create existing objects.
func server(t *testing.T) (*Recorder, <-chan request) {
	t.Helper()
	asked := make(chan request, 100)
	have := map[string]bool{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		q := request{method: r.Method, name: r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]}
		_ = json.Unmarshal(b, &q.body)
		w.Header().Set("Content-Type", "application/json")
		if q.method == http.MethodPost {
			q.name, _ = q.body["metadata"].(map[string]any)["name"].(string)
			if have[q.name] {
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`)
				asked <- q
				return
			}
			have[q.name] = true
		}
		_, _ = io.WriteString(w, `{"kind":"Event","apiVersion":"v1"}`)
		asked <- q
	}))
	t.Cleanup(h.Close)
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Event{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	version := corev1.SchemeGroupVersion
	client, err := rest.RESTClientFor(&rest.Config{Host: h.URL, APIPath: "/api", ContentConfig: rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Client.CloseIdleConnections)
	return New(Options{Client: client, Namespace: "postern", Instance: "edge"}), asked
}

func about(uid string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Peer", Name: "cloud", Namespace: "postern", UID: types.UID(uid)}
}

func TestTheSameEventAgainIsOneWithACount(t *testing.T) {
	r, asked := server(t)
	ctx := t.Context()
	e := entry{about("1"), Event{Warning, "Lost", "silence"}, time.Now()}
	write := func(at time.Duration) {
		t.Helper()
		e.at = e.at.Add(at)
		if err := r.write(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	first := <-asked
	if first.method != http.MethodPost || first.body["count"] != 1.0 || first.body["reason"] != "Lost" || first.body["reportingInstance"] != "edge" {
		t.Errorf("got %+v", first)
	}
	write(time.Second) // too soon to be worth a request
	write(countEvery)
	if again := <-asked; again.method != http.MethodPatch || again.name != first.name || again.body["count"] != 3.0 {
		t.Errorf("got %+v, want a count of 3", again)
	}
	// After a restart the Event exists.
	r.written = map[string]*remembered{}
	write(time.Second)
	if a, b := <-asked, <-asked; a.method != http.MethodPost || b.method != http.MethodPatch {
		t.Errorf("got %+v and %+v", a, b)
	}
	e.event.Message = "silence again"
	write(time.Second)
	if other := <-asked; other.method != http.MethodPost || other.name == first.name {
		t.Errorf("got %+v, want another event", other)
	}
}

func TestOneObjectDoesNotFillTheStoreNorTakeFromOthers(t *testing.T) {
	r, asked := server(t)
	dropped := 0
	for i := range 3 * objectBurst {
		if !r.Record(about("1"), Event{Normal, "Connected", fmt.Sprint(i)}) {
			dropped++
		}
	}
	if dropped != 2*objectBurst || !r.Record(about("2"), Event{Normal, "Connected", "the other"}) {
		t.Errorf("%d events were dropped, or the other object's, want %d", dropped, 2*objectBurst)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	var last request
	for range objectBurst + 1 {
		last = <-asked
	}
	cancel()
	<-done
	if last.body["message"] != "the other" {
		t.Errorf("the last event is %+v", last)
	}
}

func TestAllowanceComesBackWithTime(t *testing.T) {
	r := New(Options{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range objectBurst {
		if !r.admit("1", "Normal Connected", now) {
			t.Fatal("the first are refused")
		}
	}
	if r.admit("1", "Normal Connected", now.Add(objectEvery/2)) || !r.admit("1", "Normal Connected", now.Add(objectEvery+objectEvery/2)) {
		t.Error("want one more each minute")
	}
}

// A new event is written however often another one has occurred.
func TestTheFirstOfItsKindIsNeverTooMuch(t *testing.T) {
	r := New(Options{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 3 * objectBurst {
		r.admit("1", "Normal Connected", now)
	}
	if !r.admit("1", "Warning TLSWrongName", now) {
		t.Error("a fault that has not been told of is refused")
	}
	if r.admit("1", "Warning TLSWrongName", now.Add(time.Second)) || r.admit("1", "Normal Connected", now.Add(time.Second)) {
		t.Error("what was just told is told again at once")
	}
	if !r.admit("1", "Warning TLSWrongName", now.Add(repeatWithin+time.Second)) {
		t.Error("it is not told half an hour later")
	}
}

func TestALongMessageIsCutAtACharacter(t *testing.T) {
	for _, n := range []int{maxMessage - 3, maxMessage - 2, maxMessage - 1, maxMessage, 5000} {
		s := cut(strings.Repeat("x", n) + "äöü€𝄞" + strings.Repeat("y", 50))
		if len(s) > maxMessage || !utf8.ValidString(s) || !strings.HasSuffix(s, "…") {
			t.Errorf("%d: %d bytes, valid %v, ends %q", n, len(s), utf8.ValidString(s), s[len(s)-6:])
		}
	}
	if s := strings.Repeat("x", maxMessage); cut(s) != s {
		t.Error("a message that fits is cut")
	}
}
