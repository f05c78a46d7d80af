//go:build linux && e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/tmux"
)

// testScreen shows both gateways on one screen, by contexts of a kubeconfig. Only the clusters'
// API servers can be reached.
func testScreen(t *testing.T, c *clusters) {
	config := filepath.Join(tempDir(t), "config")
	if err := os.WriteFile(config, []byte(contexts(t, c.cloud, c.edge)), 0o600); err != nil {
		t.Fatal(err)
	}
	screen, err := tmux.Open(t.Context(), tmux.Options{
		Width: 120, Height: 40, Env: []string{"KUBECONFIG=" + config},
		Args: []string{posternBinary(t), "tui", "--gateways", "cloud,edge", "-n", gatewayNamespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := screen.Close(); err != nil {
			t.Error(err)
		}
	}()
	await := func(what string, ok func(lines []string) bool) {
		t.Helper()
		if err := screen.Await(within(t, patience), func(s string) bool { return ok(strings.Split(s, "\n")) }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	row := func(of string) func([]string) bool {
		return func(lines []string) bool {
			return slices.ContainsFunc(lines, func(l string) bool {
				words := strings.Fields(strings.TrimPrefix(l, "▸"))
				return len(words) > 4 && words[0] == of && words[2] == "well" && words[3] == "1" && words[4] == "1"
			})
		}
	}
	await("the table of both", func(lines []string) bool {
		return strings.Contains(lines[0], "2 of 2 peers connected") && row("cloud")(lines) && row("edge")(lines)
	})
	shows := func(gateway, peer string) func([]string) bool {
		return func(lines []string) bool {
			return strings.HasPrefix(lines[0], gateway+" · 1 peer: ● 1 connected") &&
				slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "▸ "+peer) })
		}
	}
	for _, step := range []struct {
		key, gateway, peer string
	}{{"Enter", "cloud", "edge"}, {"n", "edge", "cloud"}, {"n", "cloud", "edge"}} {
		if err := screen.Press(within(t, patience), step.key); err != nil {
			t.Fatal(err)
		}
		await(step.gateway, shows(step.gateway, step.peer))
	}
}

// contexts returns a kubeconfig with a context for each cluster, by its name. The API servers are
// reached through listeners here, which lead into their nodes' networks.
func contexts(t *testing.T, all ...*cluster) string {
	t.Helper()
	var clusters, users, contexts strings.Builder
	for _, one := range all {
		user := strings.TrimSuffix(one.Kubeconfig(), ".kubeconfig")
		pair := filepath.Join(filepath.Dir(one.CAFile()), filepath.Base(user))
		fmt.Fprintf(&clusters, "- name: %s\n  cluster: {server: \"https://%s\", certificate-authority: %q, tls-server-name: %s}\n",
			one.name, leadTo(t, one), one.CAFile(), kube.ServerName)
		fmt.Fprintf(&users, "- name: %s\n  user: {client-certificate: %q, client-key: %q}\n", one.name, pair+".crt", pair+".key")
		fmt.Fprintf(&contexts, "- name: %s\n  context: {cluster: %[1]s, user: %[1]s}\n", one.name)
	}
	return "apiVersion: v1\nkind: Config\nclusters:\n" + clusters.String() + "users:\n" + users.String() + "contexts:\n" + contexts.String()
}

// leadTo listens for connections and forwards them to a cluster's API server.
func leadTo(t *testing.T, c *cluster) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(t.Context(), func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := c.node.DialContext(t.Context(), "tcp", c.Server().String())
				if err != nil {
					return // like a refused connection
				}
				defer far.Close()
				go func() {
					defer far.Close()
					_, _ = io.Copy(far, near)
				}()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return l.Addr().String()
}
