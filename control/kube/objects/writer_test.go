package objects

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// What belongs to a missing object is deleted. So a missing kind, whose error is text instead of
// a Status, must not look like a missing object.
func TestAnObjectOfAKindThatIsMissingIsNotGone(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body   string
		code         int
		gone, failed bool
	}{
		"there": {kind: "application/json", body: `{"kind":"Peer","apiVersion":"postern.dev/v1alpha1"}`, code: http.StatusOK},
		"it waits for a finalizer": {kind: "application/json", code: http.StatusOK, gone: true,
			body: `{"kind":"Peer","apiVersion":"postern.dev/v1alpha1","metadata":{"name":"cloud","deletionTimestamp":"2026-03-01T12:00:00Z","finalizers":["a.example/b"]}}`},
		"gone": {kind: "application/json", code: http.StatusNotFound, gone: true,
			body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"cloud","group":"postern.dev","kind":"peers"}}`},
		"the kind is missing":   {kind: "text/plain; charset=utf-8", body: "404 page not found\n", code: http.StatusNotFound, failed: true},
		"the server is a proxy": {kind: "text/html", body: "<h1>Not Found</h1>", code: http.StatusNotFound, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer h.Close()
			version, scheme := v1alpha1.GroupVersion(), runtime.NewScheme()
			scheme.AddKnownTypes(version, &v1alpha1.Peer{})
			metav1.AddToGroupVersion(scheme, version)
			client, err := rest.RESTClientFor(&rest.Config{Host: h.URL, APIPath: "/apis", QPS: -1, ContentConfig: rest.ContentConfig{
				GroupVersion: &version, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), ContentType: runtime.ContentTypeJSON}})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Client.CloseIdleConnections()
			gone, err := NewWriter(client, "postern", "peers", "Peer").Gone(t.Context(), "cloud")
			if gone != c.gone || (err != nil) != c.failed {
				t.Errorf("got %v, %v; want %v, and an error: %v", gone, err, c.gone, c.failed)
			}
			if err != nil && Vanished(err) {
				t.Errorf("%v passes for an object that has vanished", err)
			}
		})
	}
}

// A condition's time is that of its last status change, and others' conditions are kept.
func TestAConditionKeepsItsTimeWhileItsStatusStays(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	was := []metav1.Condition{
		{Type: "Theirs", Status: metav1.ConditionTrue, LastTransitionTime: before},
		{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: before},
		{Type: "Timeless", Status: metav1.ConditionTrue},
	}
	for _, c := range []struct {
		name   string
		kind   string
		status metav1.ConditionStatus
		want   metav1.Time
	}{
		{"the same status", "Ready", metav1.ConditionTrue, before},
		{"another status", "Ready", metav1.ConditionFalse, now},
		{"a new condition", "New", metav1.ConditionTrue, now},
		{"one without a time", "Timeless", metav1.ConditionTrue, now},
	} {
		got := Since(was, metav1.Condition{Type: c.kind, Status: c.status, Reason: "Because", LastTransitionTime: now})
		if got.Type != c.kind || got.Status != c.status || got.Reason != "Because" || !got.LastTransitionTime.Equal(&c.want) {
			t.Errorf("%s: got %+v, want it since %v", c.name, got, c.want)
		}
	}
}
