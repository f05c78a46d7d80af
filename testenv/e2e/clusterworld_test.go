//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

// The internet between real clusters: cloud is a public host, edge is behind a port-restricted
// NAT, and branch, whose own API server is stopped, is elsewhere. All have the same ranges of
// pods and Services. The fleet are gateways without a cluster.
//
//	edge 192.168.7.10 ── 192.168.7.1 nat 198.51.100.20 ── wan ── 198.51.100.10 cloud
//	                                                       ├──── 198.51.100.30 branch
//	                                                       └──── 198.51.100.40 fleet
const (
	cloudNode    = "198.51.100.10"
	branchNode   = "198.51.100.30"
	fleetNode    = "198.51.100.40"
	cloudNATAddr = "198.51.100.20"
	edgeNode     = "192.168.7.10"
	edgeGateway  = "192.168.7.1"

	chartFolder = "../../cmd/postern/deploy/chart"
	// release is the name of the release, gatewayNamespace its namespace.
	release          = "postern"
	gatewayNamespace = "postern"
	// cloudNodePort is the node port of cloud's gateway.
	cloudNodePort = 31820

	posternImage = "localhost/postern:e2e"
	kubectlImage = "localhost/kubectl:e2e"
)

// cluster is a cluster, with the host that is its node.
type cluster struct {
	*kube.Cluster
	t    *testing.T
	name string
	node *netlab.Host
	helm string       // the program
	dns  string       // that of CoreDNS; "" is the test's own
	pods netip.Prefix // the range of pods; the zero value is the default
}

// clusters are all.
type clusters struct {
	edge, cloud, branch *cluster
	nat                 *netlab.NAT
	fleet               *netlab.Host
}

// as returns the same clusters for a subtest. If that fails it shows what their gateways logged.
func (c *clusters) as(t *testing.T) *clusters {
	of := func(one *cluster) *cluster {
		copied := *one
		copied.t = t
		t.Cleanup(copied.showLogOfFailure)
		return &copied
	}
	return &clusters{edge: of(c.edge), cloud: of(c.cloud), branch: of(c.branch), nat: c.nat, fleet: c.fleet}
}

// showLogOfFailure logs the last minutes of the gateway's log, if the test has failed.
func (c *cluster) showLogOfFailure() {
	if !c.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), 10*time.Second)
	defer cancel()
	out, err := c.Kubectl(ctx, "", "logs", "-n", gatewayNamespace, "-l", "app.kubernetes.io/name=postern", "--prefix", "--timestamps", "--since=3m", "--tail=150")
	c.t.Logf("%s: what the gateways logged before the failure (%v):\n%s", c.name, err, out)
}

// newClusters starts all clusters concurrently, with the tests' images. Each API server is only
// for its own cluster: nothing from the wan reaches cloud's, and the NAT hides edge's.
func newClusters(t *testing.T) *clusters {
	t.Helper()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	c := &clusters{nat: lab.NAT("nat", netlab.NATOptions{Kind: netlab.PortRestricted,
		WAN: wan, WANAddr: netip.MustParseAddr(cloudNATAddr), LAN: lan, LANAddr: netip.MustParseAddr(edgeGateway)})}
	edge, cloud, branch := lab.Host("edge"), lab.Host("cloud"), lab.Host("branch")
	edge.Attach("eth0", lan, netip.MustParseAddr(edgeNode))
	edge.DefaultRoute(netip.MustParseAddr(edgeGateway))
	cloud.Attach("eth0", wan, netip.MustParseAddr(cloudNode))
	branch.Attach("eth0", wan, netip.MustParseAddr(branchNode))
	c.fleet = lab.Host("fleet")
	c.fleet.Attach("eth0", wan, netip.MustParseAddr(fleetNode))
	// Traffic to Services takes the default route, where kube-proxy intercepts it.
	cloud.DefaultRoute(netip.MustParseAddr(cloudNATAddr))
	branch.DefaultRoute(netip.MustParseAddr(cloudNATAddr))
	cloud.Drop(`iifname "eth0" tcp dport 6443`)

	ctx := within(t, 10*time.Minute)
	program, err := kube.Helm(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Binaries(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	c.edge = &cluster{t: t, name: "edge", node: edge, helm: program}
	c.cloud = &cluster{t: t, name: "cloud", node: cloud, helm: program}
	c.branch = &cluster{t: t, name: "branch", node: branch, helm: program}
	startClusters(ctx, t, imageArchives(ctx, t), map[string]*cluster{edgeNode: c.edge, cloudNode: c.cloud, branchNode: c.branch})
	return c
}

// startClusters starts clusters concurrently, by the addresses of their nodes, with images.
func startClusters(ctx context.Context, t *testing.T, archives []string, all map[string]*cluster) {
	t.Helper()
	start := time.Now()
	var group sync.WaitGroup
	for addr, one := range all {
		dir := tempDir(t)
		group.Go(func() {
			one.start(ctx, dir, netip.MustParseAddr(addr), archives)
			t.Logf("%s is ready after %v", one.name, time.Since(start).Round(100*time.Millisecond))
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// start starts the cluster and loads the images. It runs outside the test's goroutine, so it
// fails the test without ending it.
func (c *cluster) start(ctx context.Context, dir string, addr netip.Addr, archives []string) {
	var err error
	c.Cluster, err = kube.StartNode(ctx, kube.NodeOptions{Dir: dir, Namespace: c.node.Namespace(), Name: c.name, NodeAddress: addr, CoreDNS: c.dns, PodCIDR: c.pods})
	if err != nil {
		c.t.Error(err)
		return
	}
	c.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			c.t.Error(err)
		}
	})
	if err := c.WaitReady(ctx); err != nil {
		c.t.Error(err)
		return
	}
	for _, archive := range archives {
		if err := c.Load(ctx, archive); err != nil {
			c.t.Error(err)
		}
	}
}

// imageArchives builds the images: the program under test, the test server, and kubectl with the
// tools that a shell script needs.
func imageArchives(ctx context.Context, t *testing.T) []string {
	t.Helper()
	dir := tempDir(t)
	programs, err := kube.Binaries(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	archives := []string{filepath.Join(dir, "postern.tar"), filepath.Join(dir, "kubectl.tar"), filepath.Join(dir, "testserver.tar")}
	tools := map[string]string{"/bin/kubectl": filepath.Join(programs, "kubectl")}
	for _, name := range []string{"sh", "head", "sha256sum", "wget", "sleep", "timeout"} {
		tools["/bin/"+name] = "/bin/busybox"
	}
	_, err = scratch.WriteFile(archives[0], scratch.Image{Name: posternImage, Platforms: []scratch.Platform{
		{Arch: runtime.GOARCH, Programs: map[string]string{"/postern": posternBinary(t)}, Entrypoint: "/postern"}}})
	if err == nil {
		err = image.Write(archives[1], kubectlImage, "/bin/sh", tools)
	}
	if err == nil {
		err = image.TestServer(ctx, archives[2])
	}
	if err != nil {
		t.Fatal(err)
	}
	return archives
}

// kubectl runs kubectl as the cluster's administrator.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.apply("", args...)
}

// apply runs kubectl with a manifest, or other input, on stdin.
func (c *cluster) apply(stdin string, args ...string) string {
	c.t.Helper()
	out, err := c.Kubectl(within(c.t, patience), stdin, args...)
	if err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
	return strings.TrimSpace(out)
}

// restricted creates a namespace that only admits what Pod Security "restricted" permits.
func (c *cluster) restricted(name string) {
	c.t.Helper()
	c.apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, name), "apply", "-f", "-")
	if err := c.WaitNamespace(within(c.t, patience), name); err != nil {
		c.t.Fatal(err)
	}
}

// install installs the chart, and waits until the gateway's pods are ready.
func (c *cluster) install(release, namespace string, values ...string) {
	c.t.Helper()
	c.restricted(namespace)
	c.upgrade(release, namespace, values...)
}

// upgrade installs the chart or changes its values, and waits until the pods are ready.
func (c *cluster) upgrade(release, namespace string, values ...string) {
	c.t.Helper()
	c.helmUpgrade(release, namespace, chartFolder, "--reset-values", values...)
	c.waitRollout(release, namespace)
}

// helmUpgrade runs `helm upgrade` with a chart; how says what happens to earlier values.
func (c *cluster) helmUpgrade(release, namespace, chart, how string, values ...string) {
	c.t.Helper()
	args := []string{"upgrade", "--install", release, chart, "-n", namespace, how}
	values = append([]string{"name=" + c.name, "image.repository=localhost/postern", "image.tag=e2e", "image.pullPolicy=Never"}, values...)
	if _, err := c.Helm(within(c.t, patience), c.helm, append(args, set(values)...)...); err != nil {
		c.t.Fatal(err)
	}
}

// waitRollout waits until the gateway's pods are the wanted ones, and ready.
func (c *cluster) waitRollout(release, namespace string) {
	c.t.Helper()
	ctx := within(c.t, 2*patience) // one pod after the other
	if _, err := c.Kubectl(ctx, "", "rollout", "status", "-n", namespace, "statefulset/"+release, "--timeout="+patience.String()); err != nil {
		pods, _ := c.Kubectl(ctx, "", "describe", "pods", "-n", namespace, "-l", "app.kubernetes.io/name=postern") // only for the message
		logs, _ := c.Kubectl(ctx, "", "logs", "-n", namespace, release+"-0", "--tail=50")
		c.t.Fatalf("%s: the gateway is not ready: %v\n%s\n%s", c.name, err, pods, logs)
	}
}

// postern runs a postern command in a pod of the gateway.
func (c *cluster) postern(args ...string) (string, error) {
	return c.Kubectl(within(c.t, patience), "", append([]string{"exec", "-n", gatewayNamespace, release + "-0", "--", "/postern"}, args...)...)
}

// gatewayStatus returns the gateway's status.
func (c *cluster) gatewayStatus() (s api.Status) {
	c.t.Helper()
	out, err := c.postern("status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		c.t.Fatalf("%s: the gateway's status: %v\n%s", c.name, err, out)
	}
	return s
}

// object reads an object into v.
func (c *cluster) object(v any, args ...string) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.kubectl(append([]string{"get", "-o", "json"}, args...)...)), v); err != nil {
		c.t.Fatal(err)
	}
}
