//go:build linux && e2e

// Package kubetest runs control planes in tests. Errors fail the test.
package kubetest

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube"
)

const (
	// startup limits a start, which may build the programs first; patience limits everything
	// else.
	startup  = 15 * time.Minute
	patience = 90 * time.Second
)

// Cluster is a real API server that ends with the test.
type Cluster struct{ *kube.Cluster }

// Start starts a cluster.
func Start(t *testing.T) Cluster {
	t.Helper()
	return With(t, kube.Options{Dir: t.TempDir()})
}

// With starts a cluster with options.
func With(t *testing.T, o kube.Options) Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startup)
	defer cancel()
	c, err := kube.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return Cluster{c}
}

// Run runs kubectl as the administrator. It also works during the test's cleanup.
func (c Cluster) Run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	out, err := c.Kubectl(ctx, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// Gateway creates a namespace with a gateway's account, which has no rights yet, and returns a
// token for it.
func (c Cluster) Gateway(t *testing.T, namespace string) (token string) {
	t.Helper()
	c.Run(t, "", "create", "namespace", namespace)
	c.Run(t, "", "create", "serviceaccount", "-n", namespace, "postern")
	return c.Run(t, "", "create", "token", "-n", namespace, "postern", "--duration", "2h")
}

// Administrator creates an administrator with a token, as in a pod: client-go would watch
// certificate files for ever.
func (c Cluster) Administrator(t *testing.T) (token string) {
	t.Helper()
	c.Run(t, "", "create", "serviceaccount", "administrator", "-n", "default")
	c.Run(t, "", "create", "clusterrolebinding", "administrator", "--clusterrole=cluster-admin", "--serviceaccount=default:administrator")
	return c.Run(t, "", "create", "token", "administrator", "-n", "default")
}

// Define installs the chart's definitions of Peer and Ticket, and returns the API server's
// output.
func (c Cluster) Define(t *testing.T) (said string) {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("this file is nowhere")
	}
	folder := filepath.Join(filepath.Dir(file), "..", "..", "..", "cmd", "postern", "deploy", "chart", "definitions")
	said = c.Run(t, "", "apply", "--server-side", "-f", folder)
	c.Run(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/peers.postern.dev", "crd/tickets.postern.dev")
	return said
}

// Bearer writes a kubeconfig with a token.
func (c Cluster) Bearer(t *testing.T, namespace, token string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.WriteTokenKubeconfig(file, namespace, token); err != nil {
		t.Fatal(err)
	}
	return file
}
