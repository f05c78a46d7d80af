//go:build linux && e2e

package kube

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

// Addresses of the two clusters' internet.
const (
	cloudAddress = "198.51.100.10"
	natAddress   = "198.51.100.2"
	edgeAddress  = "192.168.7.10"
	edgeRouter   = "192.168.7.1"
)

// twoClusters starts cloud on the internet and edge behind a port-restricted NAT, concurrently,
// and waits until both are ready.
func twoClusters(t *testing.T) (edge, cloud *Cluster) {
	t.Helper()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	lab.NAT("nat", netlab.NATOptions{Kind: netlab.PortRestricted,
		WAN: wan, WANAddr: netip.MustParseAddr(natAddress), LAN: lan, LANAddr: netip.MustParseAddr(edgeRouter)})
	edgeHost, cloudHost := lab.Host("edge"), lab.Host("cloud")
	edgeHost.Attach("eth0", lan, netip.MustParseAddr(edgeAddress))
	edgeHost.DefaultRoute(netip.MustParseAddr(edgeRouter))
	cloudHost.Attach("eth0", wan, netip.MustParseAddr(cloudAddress))
	// kube-proxy intercepts traffic to Services, but there must be a route.
	cloudHost.DefaultRoute(netip.MustParseAddr(natAddress))

	ctx := deadline(t, 10*time.Minute)
	if _, err := Binaries(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	clusters := make([]*Cluster, 2)
	errs := make([]error, 2)
	var group sync.WaitGroup
	for i, o := range []NodeOptions{
		{Dir: t.TempDir(), Namespace: edgeHost.Namespace(), Name: "edge", NodeAddress: netip.MustParseAddr(edgeAddress),
			Hosts: map[string]netip.Addr{"cloud.example": netip.MustParseAddr(cloudAddress)}},
		{Dir: t.TempDir(), Namespace: cloudHost.Namespace(), Name: "cloud", NodeAddress: netip.MustParseAddr(cloudAddress)},
	} {
		group.Go(func() {
			if clusters[i], errs[i] = StartNode(ctx, o); errs[i] == nil {
				errs[i] = clusters[i].WaitReady(ctx)
			}
			t.Logf("%s is ready after %v", o.Name, time.Since(start).Round(100*time.Millisecond))
		})
	}
	group.Wait()
	for i, c := range clusters {
		if c != nil {
			t.Cleanup(func() { c.Close() })
		}
		if errs[i] != nil {
			t.Error(errs[i])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return clusters[0], clusters[1]
}

// podManifest returns a pod of the test server that the strictest Pod Security permits.
func podManifest(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: server
    image: %s
    imagePullPolicy: Never
    ports: [{containerPort: 8080}, {containerPort: 9000, protocol: UDP}]
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`, name, name, image.TestServerName)
}

const serviceManifest = `apiVersion: v1
kind: Service
metadata: {name: server}
spec:
  type: NodePort
  selector: {app: server}
  ports:
  - {name: echo, protocol: UDP, port: 9000, nodePort: 30900}
  - {name: http, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}
`

// runPod creates a namespace that only admits restricted pods, with a test server.
func runPod(ctx context.Context, t *testing.T, c *Cluster, archive, name, more string) {
	t.Helper()
	if err := c.Load(ctx, archive); err != nil {
		t.Fatal(err)
	}
	namespace := `apiVersion: v1
kind: Namespace
metadata: {name: lab, labels: {pod-security.kubernetes.io/enforce: restricted}}
`
	if _, err := c.Kubectl(ctx, namespace, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitNamespace(ctx, "lab"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(ctx, podManifest(name)+"---\n"+more, "apply", "-n", "lab", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(ctx, "/api/v1/namespaces/lab/pods?fieldSelector=metadata.name%3D"+name, HasCondition("Ready")); err != nil {
		t.Fatal(c.explain("kubelet", err))
	}
}

// assertCopies copies a file into a pod and back.
func assertCopies(ctx context.Context, t *testing.T, c *Cluster, pod string) {
	t.Helper()
	dir := t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	content := make([]byte, 1<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(there, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{there, pod + ":/data/file"}, {pod + ":/data/file", back}} {
		if _, err := c.Kubectl(ctx, "", append([]string{"-n", "lab", "cp"}, args...)...); err != nil {
			t.Error(err)
		}
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, content) {
		t.Errorf("what came back from the pod is %d bytes (%v), want the %d that were sent", len(got), err, len(content))
	}
}

// assertForwards sends a request to a pod by `kubectl port-forward`.
func assertForwards(ctx context.Context, t *testing.T, c *Cluster, pod string) {
	t.Helper()
	p, err := netlab.Start(netlab.Command{Namespace: c.options.Namespace, Args: []string{
		c.KubectlPath(), "--kubeconfig", c.Kubeconfig(), "-n", "lab", "port-forward", pod, ":8080"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	out, err := p.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, "->") })
	if err != nil {
		t.Fatal(err)
	}
	address := strings.Fields(out)[2] // Forwarding from 127.0.0.1:40001 -> 8080
	got, err := netlab.Run(ctx, c.options.Namespace, "", "curl", "-sS", "http://"+address+"/forwarded")
	if err != nil || !strings.Contains(got, "GET /forwarded "+pod) {
		t.Errorf("through port-forward at %s: got %q, %v", address, got, err)
	}
}

// assertHostPort runs a pod with a host port, which "restricted" does not admit.
func assertHostPort(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	pod := strings.Replace(podManifest("host"), "{containerPort: 8080}", "{containerPort: 8080, hostPort: 8099}", 1)
	if out, err := c.Kubectl(ctx, pod, "apply", "-n", "lab", "-f", "-"); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a hostPort in a restricted namespace: got %q, %v; want it refused", out, err)
	}
	if _, err := c.Kubectl(ctx, pod, "apply", "-n", "default", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(ctx, "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Dhost", HasCondition("Ready")); err != nil {
		t.Fatal(c.explain("kubelet", err))
	}
}

// TestFailedNodeLeavesNothing starts a cluster whose kubelet fails.
func TestFailedNodeLeavesNothing(t *testing.T) {
	before := machine(t)
	ctx := deadline(t, 10*time.Minute)
	programs, err := Binaries(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	assets := t.TempDir()
	for _, name := range allComponents() {
		if name != "kubelet" {
			err = os.Symlink(filepath.Join(programs, name), filepath.Join(assets, name))
		} else {
			err = os.WriteFile(filepath.Join(assets, name), []byte("#!/bin/sh\necho the reason >&2\nexit 1\n"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lab := netlab.New(t)
	host := lab.Host("node")
	addr := netip.MustParseAddr("192.0.2.1")
	host.Attach("eth0", lab.Network("lan", netip.MustParsePrefix("192.0.2.0/24")), addr)
	host.DefaultRoute(addr.Next())
	c, err := StartNode(ctx, NodeOptions{Dir: t.TempDir(), Assets: assets, Namespace: host.Namespace(), Name: "node", NodeAddress: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.WaitReady(ctx)
	if err == nil || !strings.Contains(err.Error(), "kubelet ended") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("got %v, want an error that names the kubelet and shows its log", err)
	}
	running, cgroups := descendants(t), cgroupsOf(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	assertEnded(t, running, 5)
	assertGone(t, cgroups)
	assertUnchanged(t, before, machine(t))
}

// TestTwoClusters tests what postern's tests in Kubernetes rely on: two clusters at a time, pods
// from our own images under Pod Security "restricted", Services, tokens, exec and logs, a NAT
// between the two, and nothing left after Close.
func TestTwoClusters(t *testing.T) {
	before := machine(t)
	edge, cloud := twoClusters(t)
	ctx := deadline(t, 5*time.Minute)
	archive := filepath.Join(t.TempDir(), "testserver.tar")
	if err := image.TestServer(ctx, archive); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	runPod(ctx, t, cloud, archive, "server", serviceManifest)
	runPod(ctx, t, edge, archive, "client", "")
	t.Logf("both pods are ready after %v more", time.Since(start).Round(100*time.Millisecond))
	logMemory(t)

	expect := func(c *Cluster, want string, args ...string) {
		t.Helper()
		if got, err := c.Kubectl(ctx, "", append([]string{"-n", "lab"}, args...)...); err != nil || !strings.Contains(got, want) {
			t.Errorf("kubectl %s: got %q, %v; want %q in it", strings.Join(args, " "), got, err, want)
		}
	}
	exec := func(pod string, args ...string) []string {
		return append([]string{"exec", pod, "--", "/bin/testserver"}, args...)
	}
	expect(edge, "knock knock", exec("client", "udp", cloudAddress+":30900", "knock knock")...)
	for c, pod := range map[*Cluster]string{edge: "client", cloud: "server"} {
		expect(c, "APIVersions", exec(pod, "api", "/api")...)
	}
	expect(cloud, "GET /hairpin server", exec("server", "get", "http://server.lab/hairpin")...)
	expect(cloud, "GET /named server", exec("server", "get", "http://server.lab.svc.cluster.local/named")...)
	expect(cloud, "GET /hairpin", "logs", "server")
	assertCopies(ctx, t, edge, "client")
	assertForwards(ctx, t, cloud, "server")
	assertHostPort(ctx, t, cloud)
	expect(edge, "GET /hostport host", exec("client", "get", "http://cloud.example:8099/hostport")...)
	expect(cloud, `"workingSetBytes"`, "get", "--raw", "/api/v1/nodes/cloud/proxy/stats/summary")
	expect(edge, "GET /outside server", exec("client", "get", "http://cloud.example:30080/outside")...)

	running, cgroups := descendants(t), cgroupsOf(t, edge, cloud)
	for _, c := range []*Cluster{edge, cloud} {
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		t.Logf("closed in %v", time.Since(start).Round(time.Millisecond))
	}
	assertEnded(t, running, 20)
	assertGone(t, cgroups)
	assertUnchanged(t, before, machine(t))
}
