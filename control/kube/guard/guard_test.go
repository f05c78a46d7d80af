package guard

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
)

// answers is an API server that refuses a request with the returned message, and admits it if
// that is empty.
type answers func(resource string, harmless bool) string

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	resource := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/postern/"), "/")[0]
	bad := bytes.Contains(body, []byte("service-account-token")) || bytes.Contains(body, []byte("192.0.2.1")) || bytes.Contains(body, []byte("guard-probe\":\"\""))
	w.Header().Set("Content-Type", "application/json")
	switch message := a(resource, !bad); {
	case r.URL.Query().Get("dryRun") != "All":
		w.WriteHeader(http.StatusTeapot)
	case message != "":
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`, message)
	default:
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}
}

// Only the refusal of a forbidden request shows that the account is bounded.
func TestARefusalOfWhatIsHarmlessShowsNothing(t *testing.T) {
	const quota = "exceeded quota: all, requested: count=1, used: count=9, limited: count=9"
	for what, c := range map[string]struct {
		answers  answers
		admitted int // -1: unknown
	}{
		"nobody refuses": {func(string, bool) string { return "" }, 3},
		"a policy": {func(_ string, harmless bool) string {
			if harmless {
				return ""
			}
			return "a policy denied the request"
		}, 0},
		"no role": {func(resource string, _ bool) string {
			return fmt.Sprintf(`%s is forbidden: User "system:serviceaccount:postern:postern" cannot create resource %q`, resource, resource)
		}, 0},
		"a quota and nothing else": {func(resource string, _ bool) string {
			if resource == "pods" {
				return ""
			}
			return quota
		}, 1},
		"a policy and a quota": {func(resource string, harmless bool) string {
			if resource == "pods" && harmless {
				return ""
			}
			return quota
		}, -1},
		"a webhook that refuses everything": {func(string, bool) string { return `admission webhook "x" denied the request: User "it" cannot do so` }, -1},
	} {
		t.Run(what, func(t *testing.T) {
			s := httptest.NewServer(c.answers)
			defer s.Close()
			file := filepath.Join(t.TempDir(), "kubeconfig")
			config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
				contexts: [{name: c, context: {cluster: c, user: c, namespace: postern}}], users: [{name: c, user: {token: t}}]}`, s.URL)
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			cluster, err := kube.ConnectContext(kubeconfig.Flags{File: file}, "postern-test")
			if err != nil {
				t.Fatal(err)
			}
			g, err := New(Options{Cluster: cluster, Release: "postern", Pod: "postern-0"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := g.Admitted(t.Context())
			if err != nil != (c.admitted < 0) || len(got) != max(c.admitted, 0) {
				t.Errorf("admitted: %q, %v; want %s", got, err, cmp.Or(map[int]string{-1: "an error", 0: "none"}[c.admitted], fmt.Sprint(c.admitted)))
			}
		})
	}
}
