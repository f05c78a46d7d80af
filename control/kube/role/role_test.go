package role

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an API server with two pods.
type server struct {
	mu    sync.Mutex
	asked []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s %s %s%s", r.Method, r.URL.Path, r.Header.Get("Content-Type"), body))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name := filepath.Base(r.URL.Path)
	if name != "postern-0" && name != "postern-1" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	meta := map[string]any{"name": name}
	if name == "postern-0" {
		meta["ownerReferences"] = []any{
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "3"},
			map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "postern", "uid": "7", "controller": true, "blockOwnerDeletion": true},
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta})
}

func cluster(t *testing.T) (*kube.Cluster, *server) {
	t.Helper()
	s := &server{}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","namespace":"here"}}]}`, h.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	c, err := kube.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestLabelsAreMergePatches(t *testing.T) {
	c, s := cluster(t)
	p, err := New(c, "postern-0", "7")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		p.Mark(t.Context(), true), p.Mark(t.Context(), false),
		p.Unmark(t.Context(), "postern-1_9"),
		p.Unmark(t.Context(), "postern-2_9"), // gone
		p.Unmark(t.Context(), "postern-0_1"), // an earlier pod with our name
		p.Unmark(t.Context(), ""),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	const path, form = "PATCH /api/v1/namespaces/here/pods/", " application/merge-patch+json"
	want := []string{
		path + "postern-0" + form + `{"metadata":{"labels":{"postern.dev/role":"active"}}}`,
		path + "postern-0" + form + `{"metadata":{"labels":{"postern.dev/role":null}}}`,
		path + "postern-1" + form + `{"metadata":{"labels":{"postern.dev/role":null}}}`,
		path + "postern-2" + form + `{"metadata":{"labels":{"postern.dev/role":null}}}`,
	}
	if !slices.Equal(s.asked, want) {
		t.Errorf("asked:\n%q\nwant:\n%q", s.asked, want)
	}
}

func TestThePodBelongsToItsController(t *testing.T) {
	c, _ := cluster(t)
	for name, want := range map[string]string{"postern-0": "StatefulSet postern 7", "postern-1": "  "} {
		p, err := New(c, name, "")
		if err != nil {
			t.Fatal(err)
		}
		o, err := p.Owner(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %s %s", o.Kind, o.Name, o.UID); got != want || o.BlockOwnerDeletion != nil {
			t.Errorf("%s belongs to %q (%+v), want %q", name, got, o, want)
		}
	}
}

func TestAPodKnowsItselfByItsEnvironment(t *testing.T) {
	c, _ := cluster(t)
	t.Setenv(NameVariable, "")
	if _, err := Self(c); err == nil {
		t.Error("no name, and no error")
	}
	t.Setenv(NameVariable, "postern-0")
	for uid, want := range map[string]string{"": "postern-0", "7": "postern-0_7"} {
		t.Setenv(UIDVariable, uid)
		p, err := Self(c)
		if err != nil {
			t.Fatal(err)
		}
		if p.Identity() != want || p.Name() != "postern-0" {
			t.Errorf("it is %q, %q; want %q", p.Name(), p.Identity(), want)
		}
	}
}
