package peers

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// vault is an API server with Secrets of all names except the missing ones.
type vault struct {
	reads atomic.Int64
	down  atomic.Bool
	value atomic.Value
	meta  atomic.Value // [2]string: type and labels (JSON) of the Secrets; for Peers by default
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.reads.Add(1)
	w.Header().Set("Content-Type", "application/json")
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case v.down.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`)
	case strings.HasPrefix(name, "missing"):
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"secret not found","details":{"name":%q}}`, name)
	default:
		value, _ := v.value.Load().(string)
		kind, labels := "Opaque", `{"postern.dev/use":"peer"}`
		if told, ok := v.meta.Load().([2]string); ok {
			kind, labels = told[0], told[1]
		}
		_, _ = fmt.Fprintf(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":"postern","labels":%s},"type":%q,"data":{"key":%q}}`, name, labels, kind, base64.StdEncoding.EncodeToString([]byte(value)))
	}
}

// newVault returns a vault, and a secrets with a stopped clock.
func newVault(t *testing.T) (*vault, *secrets, *time.Time) {
	t.Helper()
	v := &vault{}
	v.value.Store("first")
	h := httptest.NewServer(v)
	scheme := runtime.NewScheme()
	version := corev1.SchemeGroupVersion
	scheme.AddKnownTypes(version, &corev1.Secret{})
	metav1.AddToGroupVersion(scheme, version)
	client, err := rest.RESTClientFor(&rest.Config{Host: h.URL, APIPath: "/api", QPS: -1, ContentConfig: rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Client.CloseIdleConnections(); h.Close() })
	s := newSecrets(client, "postern")
	now := noon
	s.now = func() time.Time { return now }
	return v, s, &now
}

func key(name string) v1alpha1.SecretKey { return v1alpha1.SecretKey{Name: name, Key: "key"} }

func TestAHundredSecretsAreReadAgainOneAfterTheOther(t *testing.T) {
	v, s, now := newVault(t)
	round := func() {
		s.begin()
		for i := range 100 {
			if _, err := s.get(t.Context(), key(fmt.Sprint("s", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	first := v.reads.Load()
	for range 600 { // ten minutes with a turn each second
		*now = now.Add(time.Second)
		s.refresh(t.Context())
		round()
	}
	if rate := float64(v.reads.Load()-first) / 600; first != 100 || rate > 0.21 || rate < 0.1 {
		t.Errorf("%d reads at first, %.2f a second then; want 100, and at most 0.2", first, rate)
	}
	// Unreferenced Secrets are dropped.
	s.begin()
	s.refresh(t.Context())
	if len(s.read) != 0 {
		t.Errorf("%d Secrets are remembered", len(s.read))
	}
}

func TestASecretThatChangesIsSeenAndOneThatCannotBeReadStays(t *testing.T) {
	v, s, now := newVault(t)
	value := func() string {
		s.begin()
		b, err := s.get(t.Context(), key("psk"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	value()
	v.value.Store("second")
	if got := value(); got != "first" {
		t.Errorf("it is read all the time: %q", got)
	}
	v.down.Store(true)
	*now = now.Add(secretFresh)
	s.refresh(t.Context())
	if got := value(); got != "first" {
		t.Errorf("while the API server is away it is %q", got)
	}
	v.down.Store(false)
	*now = now.Add(secretFresh)
	s.refresh(t.Context())
	if got := value(); got != "second" {
		t.Errorf("after a minute it is %q", got)
	}
	v.value.Store("third")
	ref := key("psk")
	s.forget(&ref, nil)
	if got := value(); got != "third" {
		t.Errorf("when its object is changed it is %q", got)
	}
}

func TestASecretThatIsMissingIsAskedForAgainSoon(t *testing.T) {
	v, s, now := newVault(t)
	ref := key("missing")
	for range 5 {
		s.begin()
		if _, err := s.get(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Fatalf("got %v", err)
		}
	}
	if n := v.reads.Load(); n != 1 {
		t.Errorf("it was asked for %d times at once", n)
	}
	if wait := s.refresh(t.Context()); wait != secretRetry {
		t.Errorf("it is asked for again in %v, want %v", wait, secretRetry)
	}
	*now = now.Add(secretRetry)
	s.refresh(t.Context())
	if n := v.reads.Load(); n != 2 {
		t.Errorf("it was asked for %d times, want 2", n)
	}
	if _, err := s.get(t.Context(), v1alpha1.SecretKey{Name: "there", Key: "other"}); err == nil || !strings.Contains(err.Error(), "[key]") {
		t.Errorf("got %v, want what keys there are", err)
	}
}

// The author of a Peer chooses which Secret is sent where: only those meant for that may be used.
func TestAPeerCannotNameASecretThatIsNotMeantForIt(t *testing.T) {
	v, s, now := newVault(t)
	for name, c := range map[string]struct{ kind, labels, want string }{
		"said by nobody": {"Opaque", `{}`, "kubectl label secret psk -n postern postern.dev/use=peer"},
		"the state":      {"Opaque", `{"postern.dev/use":"peer","app.kubernetes.io/managed-by":"postern"}`, "the gateway's own"},
		"of a server":    {"kubernetes.io/tls", `{"postern.dev/use":"peer"}`, "kubernetes.io/tls"},
	} {
		v.meta.Store([2]string{c.kind, c.labels})
		s.forget(&v1alpha1.SecretKey{Name: "psk"})
		s.begin()
		if b, err := s.get(t.Context(), key("psk")); err == nil || !strings.Contains(err.Error(), c.want) || len(b) > 0 {
			t.Errorf("%s: got %q, %v; want an error with %q", name, b, err, c.want)
		}
		if held := s.read["psk"].data; held != nil {
			t.Errorf("%s: %v is remembered", name, held)
		}
	}
	// Adding and removing the label is noticed soon.
	for i, labels := range []string{`{"postern.dev/use":""}`, `{}`} {
		works := i == 0
		v.meta.Store([2]string{"Opaque", labels})
		*now = now.Add(secretFresh)
		s.refresh(t.Context())
		if _, err := s.get(t.Context(), key("psk")); (err == nil) != works {
			t.Errorf("with labels %s: got %v", labels, err)
		}
	}
}
