//go:build linux && e2e

package kube

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
)

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestClusterServesAndLeavesNothing tests what every user of this package relies on: kubectl
// works, client certificates of another configured authority are accepted, and Close ends the
// processes.
func TestClusterServesAndLeavesNothing(t *testing.T) {
	lab := netlab.New(t)
	n := lab.Network("lan", netip.MustParsePrefix("192.0.2.0/24"))
	node, other := lab.Host("node"), lab.Host("other")
	node.Attach("eth0", n, netip.MustParseAddr("192.0.2.1"))
	other.Attach("eth0", n, netip.MustParseAddr("192.0.2.2"))
	peers, err := pki.NewCA("peers")
	if err != nil {
		t.Fatal(err)
	}

	start := time.Now()
	c, err := Start(deadline(t, 5*time.Minute), Options{
		Dir: t.TempDir(), Namespace: node.Namespace(), Address: netip.MustParseAddr("192.0.2.1"), ClientCAs: peers.CertPEM(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Logf("ready after %v", time.Since(start).Round(time.Millisecond))

	ctx := deadline(t, 2*time.Minute)
	if out, err := c.Kubectl(ctx, "", "get", "--raw", "/readyz"); err != nil || out != "ok" {
		t.Errorf("/readyz: got %q, %v", out, err)
	}
	binding := `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: guest}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: guest}]
`
	if _, err := c.Kubectl(ctx, binding, "apply", "-f", "-"); err != nil {
		t.Error(err)
	}
	for user, want := range map[string]string{"guest": "namespace/default", "stranger": "Forbidden"} {
		pair, err := peers.Client(pkix.Name{CommonName: user})
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := pair.Write(t.TempDir(), user)
		if err != nil {
			t.Fatal(err)
		}
		out, err := other.Run(ctx, c.KubectlPath(), "--kubeconfig", os.DevNull, "--server", c.URL(), "--certificate-authority", c.CAFile(),
			"--client-certificate", cert, "--client-key", key, "get", "namespaces", "-o", "name")
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("%s lists namespaces: got %q, want %q in it", user, out, want)
		}
	}

	var pids []int
	for _, p := range c.components {
		pids = append(pids, p.process.PID())
	}
	if len(pids) != 2 {
		t.Errorf("a control plane has processes %v, want two", pids)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d after Close: %v, want none", pid, err)
		}
	}
}

func TestAPIServerStopsAndStarts(t *testing.T) {
	c, err := Start(deadline(t, 10*time.Minute), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := deadline(t, 2*time.Minute)
	if _, err := c.Kubectl(ctx, "", "create", "namespace", "kept"); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(ctx); err == nil {
		t.Error("an API server that runs was started")
	}
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StopAPIServer(); err == nil {
		t.Error("an API server that was stopped was stopped again")
	}
	if out, err := c.Kubectl(ctx, "", "get", "--raw", "/readyz"); err == nil {
		t.Errorf("the API server was stopped and answers %q", out)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(ctx, "/api/v1/namespaces?fieldSelector=metadata.name%3Dkept", Exists); err != nil {
		t.Errorf("what was stored before is gone: %v", err)
	}
}

func TestWaitForEndsWithTheCluster(t *testing.T) {
	c, err := Start(deadline(t, 10*time.Minute), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := deadline(t, 2*time.Minute)
	if err := c.WaitFor(ctx, "/api/v1/nothing", Exists); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a wait for what the API server doesn't know: got %v, want its 404", err)
	}
	err = c.WaitFor(ctx, "/api/v1/namespaces", func([]byte) bool {
		c.components[0].process.Kill()
		return false
	})
	if err == nil || !strings.Contains(err.Error(), "etcd ended") {
		t.Errorf("etcd was killed during a wait: got %v, want an error that says so", err)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	assets := t.TempDir()
	for name, script := range map[string]string{
		"etcd":           "#!/bin/sh\nexec sleep 600\n",
		"kube-apiserver": "#!/bin/sh\necho the reason >&2\nexit 1\n",
		"kubectl":        "#!/bin/sh\nexit 1\n",
	} {
		if err := os.WriteFile(filepath.Join(assets, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(deadline(t, time.Minute), Options{Dir: t.TempDir(), Assets: assets})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("got %v, want an error that names kube-apiserver and shows its log", err)
	}
}

func TestAssetsOfKubebuilderAreHonoured(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(assetsVariable, dir)
	if _, err := Binaries(t.Context(), os.Stderr); err == nil || !strings.Contains(err.Error(), "no etcd") {
		t.Errorf("an empty folder: got %v, want an error that names etcd", err)
	}
	for _, name := range components {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Binaries(t.Context(), os.Stderr); err != nil || got != dir {
		t.Errorf("got %q, %v; want %q", got, err, dir)
	}
}

func TestUnknownVersionsAreRefused(t *testing.T) {
	_, err := BinariesOf(t.Context(), "v1.2.3", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "v1.2.3") || !strings.Contains(err.Error(), Version) {
		t.Errorf("got %v, want an error that names the version and those that there are", err)
	}
}
