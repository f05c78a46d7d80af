//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

const remoteImage = "localhost/postern:remote"

// remoteManifest has a gateway in a pod that the strictest Pod Security permits, and three users:
// one who may reach it, one who may only look, and one without rights.
const remoteManifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: postern, namespace: gateways}
data:
  gateway.yaml: |
    apiVersion: postern.dev/v1alpha1
    kind: Gateway
    metadata: {name: cloud}
    spec: {stateDir: /state/postern}
---
apiVersion: v1
kind: Pod
metadata:
  name: postern-0
  namespace: gateways
  labels: {app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: postern
    image: ` + remoteImage + `
    imagePullPolicy: Never
    args: [gateway, --config, /etc/postern/gateway.yaml]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts:
    - {name: state, mountPath: /state}
    - {name: run, mountPath: /run/postern}
    - {name: config, mountPath: /etc/postern}
  volumes:
  - {name: state, emptyDir: {}}
  - {name: run, emptyDir: {}}
  - {name: config, configMap: {name: postern}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reach, namespace: gateways}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
- {apiGroups: [""], resources: [pods/exec], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: look, namespace: gateways}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
`

// Every command reaches a gateway in a cluster with kubectl's flags, using only the API server's
// port.
func TestCommandsReachTheGatewayInACluster(t *testing.T) {
	lab := netlab.New(t)
	host := lab.Host("cloud")
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	host.Attach("eth0", wan, netip.MustParseAddr(cloudAddr))
	host.DefaultRoute(netip.MustParseAddr("198.51.100.1"))
	ctx := within(t, 10*time.Minute)
	c, err := kube.StartNode(ctx, kube.NodeOptions{
		Dir: tempDir(t), Namespace: host.Namespace(), Name: "cloud", NodeAddress: netip.MustParseAddr(cloudAddr),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := tempDir(t)
	binary, archive := filepath.Join(dir, "postern"), filepath.Join(dir, "postern.tar")
	if err := scratch.Compile(ctx, scratch.Program{Package: "github.com/postern-dev/postern/cmd/postern"}, runtime.GOARCH, binary); err != nil {
		t.Fatal(err)
	}
	if err := image.Write(archive, remoteImage, "/postern", map[string]string{"/postern": binary}); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(ctx, archive); err != nil {
		t.Fatal(err)
	}
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, stdin, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl("", "create", "namespace", "gateways")
	kubectl("", "label", "namespace", "gateways", "pod-security.kubernetes.io/enforce=restricted")
	if err := c.WaitNamespace(ctx, "gateways"); err != nil {
		t.Fatal(err)
	}
	// postern runs a command where only the API server can be reached.
	postern := func(stdin string, args ...string) (int, string, string) {
		t.Helper()
		p := host.Start(netlab.Command{Stdin: stdin, Args: append([]string{binary}, args...)})
		code, err := p.Wait(within(t, patience))
		if err != nil {
			t.Fatal(err)
		}
		return code, p.Stdout(), p.Stderr()
	}
	wants := func(code int, text, stdin string, args ...string) string {
		t.Helper()
		got, stdout, stderr := postern(stdin, args...)
		if got != code || !strings.Contains(stdout+stderr, text) {
			t.Errorf("postern %v: exit code %d and\n%s%swant %d and %q", args, got, stdout, stderr, code, text)
		}
		return stdout
	}
	in := []string{"--kubeconfig", c.Kubeconfig(), "-n", "gateways"}
	at := func(args ...string) []string { return append(args, in...) }

	wants(3, `there is no gateway of release "postern" in namespace "gateways"`, "", at("status")...)
	kubectl(remoteManifest, "apply", "-f", "-")
	if err := c.WaitFor(ctx, "/api/v1/namespaces/gateways/pods?fieldSelector=metadata.name%3Dpostern-0", kube.HasCondition("Ready")); err != nil {
		t.Fatal(err)
	}
	wants(3, "postern-0: runs and stands by", "", at("status")...)
	kubectl("", "label", "pod", "-n", "gateways", "postern-0", "postern.dev/role=active")
	wants(3, "(choose one with --release)", "", at("status", "--release", "west")...)

	eventually(ctx, t, "the gateway answers", func() (bool, string) {
		code, _, stderr := postern("", at("status")...)
		if strings.Contains(stderr, "it ended") {
			t.Fatal(stderr, kubectl("", "logs", "-n", "gateways", "postern-0"))
		}
		return code == 0, stderr
	})
	start := time.Now()
	var status api.Status
	if err := json.Unmarshal([]byte(wants(0, "", "", at("status", "-o", "json")...)), &status); err != nil {
		t.Fatal(err)
	}
	t.Logf("status through exec: %v", time.Since(start).Round(time.Millisecond))
	if status.Gateway.Name != "cloud" {
		t.Errorf("asked %q, want cloud", status.Gateway.Name)
	}
	ticket := strings.TrimSpace(wants(0, "postern1", "", at("invite", "--name", "edge")...))
	wants(0, "", "", at("peer", "list")...)
	wants(2, "this gateway made the ticket itself", ticket, at("join", "-", "--wait", "1s")...) // a secret on stdin
	wants(0, "", "", at("check")...)
	wants(0, "spec.stateDir", "", at("config", "view")...)

	t.Run("who may", func(t *testing.T) {
		as := func(user string) []string {
			kubectl(fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q,"namespace":"gateways"}}`, user), "apply", "-f", "-")
			token := strings.TrimSpace(kubectl("", "create", "token", user, "-n", "gateways"))
			file := filepath.Join(dir, user)
			for _, args := range [][]string{
				{"config", "set-cluster", "c", "--server", "https://" + c.Server().String(), "--certificate-authority", c.CAFile()},
				{"config", "set-credentials", "u", "--token", token},
				{"config", "set-context", "x", "--cluster", "c", "--user", "u", "--namespace", "gateways"},
				{"config", "use-context", "x"},
			} {
				if out, err := host.Run(ctx, append([]string{c.KubectlPath(), "--kubeconfig", file}, args...)...); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			return []string{"--kubeconfig", file, "--context", "x"}
		}
		bind := func(user, role string) {
			kubectl("", "create", "rolebinding", user, "-n", "gateways", "--role", role, "--serviceaccount", "gateways:"+user)
		}
		nobody, looker, owner := as("nobody"), as("looker"), as("owner")
		bind("looker", "look")
		bind("owner", "reach")
		wants(3, "this user may not list pods", "", append([]string{"status"}, nobody...)...)
		wants(3, "this user may not run a program in a pod", "", append([]string{"status"}, looker...)...)
		wants(0, "cloud", "", append([]string{"status"}, owner...)...)
	})
	t.Run("nothing stays", func(t *testing.T) {
		eventually(within(t, patience), t, "no admin-stdio runs any more", func() (bool, string) {
			out, err := netlab.Run(ctx, "", "", "pgrep", "-fc", "^/postern admin-stdio")
			return strings.TrimSpace(out) == "0", fmt.Sprint(out, err)
		})
	})
}
