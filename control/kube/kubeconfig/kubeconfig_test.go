package kubeconfig

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// write writes a kubeconfig and sets KUBECONFIG. The user of context two has a token file.
func write(t *testing.T, server string) (file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "config")
	text := `apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "` + server + `", insecure-skip-tls-verify: true}}, {name: other, cluster: {server: "https://192.0.2.2:6443"}}]
users: [{name: u, user: {token: secret}}, {name: v, user: {tokenFile: token}}]
contexts:
- {name: one, context: {cluster: c, user: u, namespace: first}}
- {name: two, context: {cluster: c, user: v}}
`
	for name, content := range map[string]string{file: text, filepath.Join(dir, "token"): "filed"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBECONFIG", file)
	return file
}

// parse parses a command line.
func parse(t *testing.T, line string) *Flags {
	t.Helper()
	var f Flags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.AddTo(set)
	if err := set.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestKubeconfigIsReadAsKubectlDoes(t *testing.T) {
	file := write(t, "https://192.0.2.1:6443")
	for _, c := range []struct {
		line, context, namespace, server string
		problem                          string
	}{
		{"", "one", "first", "https://192.0.2.1:6443", ""},
		{"--context two", "two", "default", "https://192.0.2.1:6443", ""},
		{"--context one -n third", "one", "third", "https://192.0.2.1:6443", ""},
		{"--namespace ns/third", "one", "third", "https://192.0.2.1:6443", ""},
		{"--kubeconfig " + file, "one", "first", "https://192.0.2.1:6443", ""},
		{"--cluster other", "one", "first", "https://192.0.2.2:6443", ""},
		{"--context three", "", "", "", `no context "three" (kubectl config get-contexts lists them)`},
		{"--cluster d", "", "", "", `no cluster "d" (kubectl config get-clusters lists them)`},
		{"--user w", "", "", "", `no user "w" (kubectl config get-users lists them)`},
		{"--kubeconfig " + file + ".absent", "", "", "", "no such file"},
		{"--request-timeout soon", "", "", "", `"soon"`},
		{"--request-timeout -1s", "", "", "", `"-1s" is no duration`},
		{"--as-group admins", "", "", "", "--as"},
	} {
		t.Run(c.line, func(t *testing.T) {
			got, err := parse(t, c.line).Load()
			if c.problem != "" {
				if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("got %v, want %q", err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Context != c.context || got.Namespace != c.namespace || got.Config.Host != c.server || !slices.Equal(got.Files, []string{file}) {
				t.Errorf("got context %q, namespace %q, server %s, files %v", got.Context, got.Namespace, got.Config.Host, got.Files)
			}
		})
	}
	t.Setenv("KUBECONFIG", file+".absent")
	if _, err := parse(t, "").Load(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("without any: got %v", err)
	}
}

// The requests contain the flags' user.
func TestFlagsSayWhoAsks(t *testing.T) {
	var got http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	write(t, server.URL)
	for _, c := range []struct {
		line, token, user string
		groups            []string
	}{
		{"", "secret", "", nil},
		{"--user v", "filed", "", nil},
		{"--token given", "given", "", nil},
		{"--context two --token given", "given", "", nil},
		{"--as jane --as-group a --as-group b", "secret", "jane", []string{"a", "b"}},
	} {
		chosen, err := parse(t, c.line).Load()
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		client, err := rest.HTTPClientFor(chosen.Config)
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		r, err := client.Get(server.URL) //nolint:noctx // it answers at once
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		_ = r.Body.Close()
		client.CloseIdleConnections()
		if got.Get("Authorization") != "Bearer "+c.token || got.Get("Impersonate-User") != c.user || !slices.Equal(got["Impersonate-Group"], c.groups) {
			t.Errorf("%s: %q as %q of %q, want %q as %q of %q", c.line, got.Get("Authorization"),
				got.Get("Impersonate-User"), got["Impersonate-Group"], c.token, c.user, c.groups)
		}
	}
}

func TestRequestTimeout(t *testing.T) {
	write(t, "https://192.0.2.1:6443")
	for line, want := range map[string]time.Duration{"": 0, "--request-timeout 0": 0, "--request-timeout 5": 5 * time.Second, "--request-timeout 1m30s": 90 * time.Second} {
		if got, err := parse(t, line).Load(); err != nil || got.Config.Timeout != want {
			t.Errorf("%q: got %v, %v, want %v", line, got, err, want)
		}
	}
}

// The arguments for another program contain what the context does not, and no secret.
func TestWhoIsGivenAgain(t *testing.T) {
	got := parse(t, "--context two -n third --cluster other --user u --as jane --as-group a --as-group b --token given").Who()
	if want := strings.Fields("--cluster other --user u --as jane --as-group a --as-group b"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parse(t, "--context two").Who(); len(got) != 0 {
		t.Errorf("a context alone: got %q", got)
	}
}

// In a pod there is no kubeconfig, and clientcmd ignores most flags.
func TestFlagsCountInAPodToo(t *testing.T) {
	config := &rest.Config{BearerTokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}
	config.Host = "https://10.96.0.1:443"
	parse(t, "--as jane --as-group a --token given").override(config, 5*time.Second)
	if config.Impersonate.UserName != "jane" || len(config.Impersonate.Groups) != 1 || config.Timeout != 5*time.Second ||
		config.BearerToken != "given" || config.BearerTokenFile != "" {
		t.Errorf("got %+v", config)
	}
}

// Without TLS anyone could read the token.
func TestATokenIsNotSentWithoutTLS(t *testing.T) {
	write(t, "http://192.0.2.1:8080")
	if got, err := parse(t, "--token given").Load(); err != nil || got.Config.BearerToken != "" {
		t.Errorf("got token %q, %v", got.Config.BearerToken, err)
	}
}
