package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// onePod is an API server with the pod of an active gateway.
func onePod(t *testing.T) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"postern-1","namespace":"gateways",`+
			`"labels":{"app.kubernetes.io/name":"postern","app.kubernetes.io/instance":"postern","postern.dev/role":"active"}},`+
			`"spec":{"containers":[{"name":"postern"}]},"status":{"phase":"Running","containerStatuses":[{"name":"postern","state":{"running":{}}}]}}]}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: here, clusters: [{name: c, cluster: {server: %q}}],
users: [{name: u, user: {}}], contexts: [{name: here, context: {cluster: c, user: u, namespace: gateways}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The listener of a gateway in a cluster is in its pod: the kubeconfig leads to a port that
// kubectl forwards there, and its plugin asks the same gateway wherever it is used.
func TestKubeconfigOfAGatewayInACluster(t *testing.T) {
	file := onePod(t)
	for _, c := range []struct {
		name      string
		given     api.Kubeconfig
		server    string
		forwarded string
	}{
		{"a loopback listener", api.Kubeconfig{Server: "https://127.0.0.1:40123"}, "https://127.0.0.1:40123", "port-forward pod/postern-1 40123:40123"},
		{"a wildcard listener", api.Kubeconfig{Server: "https://[::]:6443"}, "https://127.0.0.1:7443", "port-forward pod/postern-1 7443:6443"},
		{"a Service", api.Kubeconfig{Server: "https://postern-cloud.gateways.svc:6443"}, "https://127.0.0.1:7443", "port-forward service/postern-cloud 7443:6443"},
		{"outside the tunnel", api.Kubeconfig{Server: "https://203.0.113.7:6443", Direct: true}, "https://203.0.113.7:6443", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stderr bytes.Buffer
			a := newApp(nil, nil, &stderr, func(string) string { return "" })
			a.cluster.chosen.File, a.cluster.chosen.AuthInfo.Impersonate = file, "jane"
			defer a.close()
			plugin := execPlugin{Args: []string{"credential", "cloud"}}
			k := c.given
			if err := a.forwarded(t.Context(), &k, &plugin); err != nil {
				t.Fatal(err)
			}
			if k.Server != c.server {
				t.Errorf("the server is %s, want %s", k.Server, c.server)
			}
			if want := []string{"credential", "cloud", "--context", "here", "--namespace", "gateways", "--as", "jane"}; !slices.Equal(plugin.Args, want) {
				t.Errorf("the plugin is asked %q, want %q", plugin.Args, want)
			}
			if len(plugin.Env) != 1 || plugin.Env[0] != (execVariable{"KUBECONFIG", file}) {
				t.Errorf("the plugin's environment is %v", plugin.Env)
			}
			told := stderr.String()
			if c.forwarded == "" && told != "" || !strings.Contains(told, c.forwarded) ||
				c.forwarded != "" && !strings.Contains(told, "kubectl --kubeconfig "+file+" --context here --as jane -n gateways port-forward") {
				t.Errorf("told %q, want %q", told, c.forwarded)
			}
		})
	}
}

// Whoever wrote a kubeconfig does not write the command that is to be pasted.
func TestACommandWithTheNameOfAContextIsQuoted(t *testing.T) {
	file := onePod(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("here"), []byte(`"x;id\e[2J"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	a := newApp(nil, nil, &stderr, func(string) string { return "" })
	a.cluster.chosen.File = file
	defer a.close()
	if err := a.forwarded(t.Context(), &api.Kubeconfig{Server: "https://127.0.0.1:40123"}, &execPlugin{}); err != nil {
		t.Fatal(err)
	}
	if told := stderr.String(); !strings.Contains(told, "--context 'x;id\uFFFD[2J' -n gateways") || strings.ContainsRune(told, '\x1b') {
		t.Errorf("told %q", told)
	}
}
