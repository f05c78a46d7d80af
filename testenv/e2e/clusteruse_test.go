//go:build linux && e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// tenant is the namespace in which peers have rights, by the chart's issuer.access.
	tenant = "tenant"
	// clusterWatch is how long a watch through the tunnel must live, and clusterCopy the size of
	// the file that is copied there and back, in bytes.
	clusterWatch      = 125 * time.Second
	clusterWatchEvery = 5 * time.Second
	clusterCopy       = 100 << 20
	// answerTries is how often kubectl may be left without an answer before the fault is not the
	// machine's.
	answerTries = 5
)

// accessToTenant are chart values that let peers edit in namespace tenant.
var accessToTenant = []string{"issuer.access[0].clusterRole=edit", "issuer.access[0].namespace=" + tenant}

// tenantServer is a pod of the test server that peers work with.
const tenantServer = `apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: server
    image: ` + image.TestServerName + `
    imagePullPolicy: Never
    ports: [{containerPort: 8080}]
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`

// clientPod returns a pod with kubectl that mounts a peer's Secret.
func clientPod(name, peer, labels string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {%[3]s}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: kubectl
    image: `+kubectlImage+`
    imagePullPolicy: Never
    command: [/bin/sleep, "100000"]
    env: [{name: HOME, value: /data}, {name: KUBECONFIG, value: /peer/kubeconfig}]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}, {name: peer, mountPath: /peer, readOnly: true}]
  volumes: [{name: data, emptyDir: {}}, {name: peer, secret: {secretName: postern-%[2]s-kubeconfig}}]
`, name, peer, labels)
}

// run creates a pod and waits until it is ready.
func (c *cluster) run(namespace, name, manifest string) {
	c.t.Helper()
	c.apply(manifest, "apply", "-n", namespace, "-f", "-")
	c.kubectl("wait", "-n", namespace, "pod/"+name, "--for=condition=Ready", "--timeout="+patience.String())
}

// inside returns kubectl's arguments to run a program in a pod of the gateway's namespace.
func inside(pod string, args ...string) []string {
	return append([]string{"exec", "-n", gatewayNamespace, pod, "--"}, args...)
}

// away runs kubectl in the client's pod, that is, with the peer's API server.
func (c *cluster) away(ctx context.Context, args ...string) (string, error) {
	return c.Kubectl(ctx, "", inside("client", append([]string{"/bin/kubectl"}, args...)...)...)
}

// noAnswer is what kubectl says if it got none. On a busy machine it gives up a TLS handshake after
// 10 s. And if the output of exec is read slowly, its end is sometimes lost
// (github.com/kubernetes/kubectl/issues/1361), or the API server resets the connection. The
// gateways' records then show that the API server ended the connection early.
var noAnswer = regexp.MustCompile("TLS handshake timeout|connection reset by peer|EOF")

// answered is like away, but asks again if kubectl got no answer.
func (c *cluster) answered(args ...string) (string, error) {
	for try := 1; ; try++ {
		out, err := c.away(within(c.t, patience), args...)
		if err == nil || try == answerTries || !noAnswer.MatchString(err.Error()) {
			return out, err
		}
		c.t.Logf("%s: kubectl %s got no answer: %v%s", c.name, strings.Join(args, " "), err, out)
	}
}

// stays starts kubectl in the client's pod; it runs until the test ends or kills it.
func (c *cluster) stays(args ...string) *netlab.Process {
	c.t.Helper()
	return c.node.Start(netlab.Command{Args: append([]string{c.KubectlPath(), "--kubeconfig", c.Kubeconfig()},
		inside("client", append([]string{"/bin/kubectl"}, args...)...)...)})
}

// testPods creates what the other tests use: a server in each cluster for the peer's users, and a
// client that mounts the peer's Secret.
func testPods(_ *testing.T, c *clusters) {
	for one, other := range c.both() {
		one.run(tenant, "server", tenantServer)
		one.run(gatewayNamespace, "client", clientPod("client", other.name, "postern.dev/peer-"+other.name+": allow"))
	}
}

// testUse has pods of each cluster use the other's API server, with nothing but the Secret that
// they mount.
func testUse(t *testing.T, c *clusters) {
	before, err := c.nat.Traffic(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	for one, other := range c.both() {
		users.Go(func() { one.use(other) })
	}
	users.Wait()
	// Before anyone tries to connect outside the tunnel.
	after, err := c.nat.Traffic(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	if tcp := after.TCPIn.Packets + after.TCPOut.Packets - before.TCPIn.Packets - before.TCPOut.Packets; tcp != 0 {
		t.Errorf("%d packets of TCP crossed the NAT: the API servers were reached beside the tunnel", tcp)
	}
	for one, other := range c.both() {
		one.useBeside(other)
	}
	if udp := after.UDPIn.Bytes + after.UDPOut.Bytes - before.UDPIn.Bytes - before.UDPOut.Bytes; udp < 4*clusterCopy {
		t.Errorf("%d MB of UDP crossed the NAT, less than the files' %d MB", udp>>20, 4*clusterCopy>>20)
	}
}

// use does all that kubectl can with the other cluster. It runs outside the test's goroutine, so
// it fails the test without ending it.
func (c *cluster) use(other *cluster) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.useWatch(other)
	}()
	c.useList()
	c.useStreams()
	c.useCopy(other)
	<-watched
}

// useList lists a permitted resource, and a forbidden one.
func (c *cluster) useList() {
	c.t.Helper()
	if out, err := c.answered("get", "pods", "-n", tenant); err != nil || !strings.Contains(out, "server") {
		c.t.Errorf("%s: list: %v\n%s", c.name, err, out)
	}
	for _, args := range [][]string{
		{"get", "secrets", "-n", gatewayNamespace}, {"get", "pods", "-n", "default"}, {"get", "nodes"}, {"get", "namespaces"},
		{"create", "rolebinding", "up", "-n", tenant, "--clusterrole=cluster-admin", "--serviceaccount=postern-peers:postern-peer-" + c.name},
		{"create", "serviceaccount", "-n", "postern-peers", "another"},
	} {
		if out, err := c.answered(args...); err == nil || !strings.Contains(err.Error(), "orbidden") {
			c.t.Errorf("%s: kubectl %s: got %q, %v; want it forbidden", c.name, strings.Join(args, " "), out, err)
		}
	}
}

// useWatch checks that a watch of two minutes sees all changes.
func (c *cluster) useWatch(other *cluster) {
	p := c.stays("get", "configmaps", "-n", tenant, "--watch", "-o", "name")
	start := time.Now()
	tick := time.NewTicker(clusterWatchEvery)
	defer tick.Stop()
	var slowest time.Duration
	events := 0
	for ; time.Since(start) < clusterWatch; <-tick.C {
		name := fmt.Sprintf("%s-%03d", c.name, events)
		made := time.Now()
		ctx := within(c.t, patience)
		if _, err := other.Kubectl(ctx, "", "create", "configmap", "-n", tenant, name); err != nil {
			c.t.Error(err)
			return
		}
		if _, err := p.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, "configmap/"+name+"\n") }); err != nil {
			c.t.Errorf("%s: the watch did not report %s, %v after it began: %v", c.name, name, time.Since(start).Round(time.Second), err)
			return
		}
		slowest = max(slowest, time.Since(made))
		events++
	}
	c.t.Logf("%s: watch: %d events in %v, the slowest after %v", c.name, events, time.Since(start).Round(time.Second), slowest.Round(time.Millisecond))
}

// useStreams tests exec, logs -f and port-forward.
func (c *cluster) useStreams() {
	ctx := within(c.t, patience)
	logs := c.stays("logs", "-f", "-n", tenant, "server")
	out, err := c.answered("exec", "-n", tenant, "server", "--", "/bin/testserver", "get", "http://127.0.0.1:8080/exec-by-"+c.name)
	if err != nil || !strings.Contains(out, "GET /exec-by-"+c.name+" server") {
		c.t.Errorf("%s: exec: %q, %v", c.name, out, err)
	}
	if _, err := logs.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, "/exec-by-"+c.name) }); err != nil {
		c.t.Errorf("%s: logs -f: %v", c.name, err)
	}
	forward := c.stays("port-forward", "-n", tenant, "server", ":8080")
	out, err = forward.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, "->") })
	if err != nil {
		c.t.Errorf("%s: port-forward: %v", c.name, err)
		return
	}
	address := strings.Fields(out)[2] // Forwarding from 127.0.0.1:40001 -> 8080
	out, err = c.Kubectl(ctx, "", inside("client", "/bin/wget", "-q", "-O", "-", "http://"+address+"/forwarded")...)
	if err != nil || !strings.Contains(out, "GET /forwarded server") {
		c.t.Errorf("%s: through port-forward: %q, %v", c.name, out, err)
	}
	logs.Kill()
	forward.Kill()
}

// useCopy copies a file into a pod of the other cluster and back.
func (c *cluster) useCopy(other *cluster) {
	script := fmt.Sprintf("/bin/head -c %d /dev/urandom >/data/file && /bin/sha256sum </data/file", clusterCopy)
	want, err := c.Kubectl(within(c.t, patience), "", inside("client", "/bin/sh", "-c", script)...)
	if err != nil {
		c.t.Error(err)
		return
	}
	start := time.Now()
	if out, err := c.answered("cp", "/data/file", tenant+"/server:/data/file"); err != nil {
		c.t.Errorf("%s: cp to %s: %v%s", c.name, other.name, err, out)
		return
	}
	there := time.Since(start)
	start = time.Now()
	if out, err := c.answered("cp", tenant+"/server:/data/file", "/data/back"); err != nil {
		c.t.Errorf("%s: cp from %s: %v%s", c.name, other.name, err, out)
		return
	}
	c.t.Logf("%s: %d MB to %s in %v, back in %v", c.name, clusterCopy>>20, other.name, there.Round(100*time.Millisecond), time.Since(start).Round(100*time.Millisecond))
	got, err := c.Kubectl(within(c.t, patience), "", inside("client", "/bin/sh", "-c", "/bin/sha256sum </data/back")...)
	if err != nil || got != want {
		c.t.Errorf("%s: what came back is another file: %v", c.name, err)
	}
}

// besideTimeout is how long to try a connection that must not succeed.
const besideTimeout = 5 * time.Second

// useBeside shows that the tunnel is the only way: the API server's own address and the NAT's
// cannot be reached, neither from pods nor from the node.
func (c *cluster) useBeside(other *cluster) {
	for _, address := range []string{other.Server().String(), net.JoinHostPort(cloudNATAddr, "6443")} {
		ctx, cancel := context.WithTimeout(c.t.Context(), besideTimeout)
		conn, err := c.node.DialContext(ctx, "tcp", address)
		cancel()
		if err == nil {
			conn.Close()
			c.t.Errorf("%s reaches %s's API server at %s beside the tunnel", c.name, other.name, address)
		}
		out, err := c.away(within(c.t, patience), "get", "--raw", "/version", "--server=https://"+address, "--request-timeout="+besideTimeout.String())
		if err == nil {
			c.t.Errorf("a pod of %s reaches %s's API server at %s beside the tunnel:\n%s", c.name, other.name, address, out)
		}
	}
}
