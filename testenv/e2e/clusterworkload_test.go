//go:build linux && e2e && mcs

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	workloadImage, etcdImage = "localhost/workload:1", "localhost/etcd:1"
	// workloadVariable sets how long the workload runs, and workloadTime is the default.
	workloadVariable = "POSTERN_WORKLOAD"
	workloadTime     = 3 * time.Minute
	// faultEvery is how often there is a fault on the path.
	faultEvery = 30 * time.Second
	// workloadLoss is the share of packets lost on the path, in tenths of a percent.
	workloadLoss = 10
	// reconnectedWithin is how long a client may be without an answer.
	reconnectedWithin = 10 * time.Second
	// transferred is how much the HTTP/3 client sends in one request, in bytes.
	transferred = 4 << 20
)

// workload is an etcd of one member, and UDP servers, as restricted pods, with their exports.
const workload = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: etcd}
spec:
  serviceName: etcd
  selector: {matchLabels: {app: etcd}}
  template:
    metadata: {labels: {app: etcd}}
    spec:
      securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: etcd
        image: ` + etcdImage + `
        imagePullPolicy: Never
        command: [/bin/etcd, --data-dir=/data/etcd, --unsafe-no-fsync, "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://etcd-0:2379"]
        ports: [{containerPort: 2379}]
        readinessProbe: {tcpSocket: {port: 2379}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: etcd}
spec: {clusterIP: None, selector: {app: etcd}, ports: [{name: client, port: 2379}]}
---
apiVersion: v1
kind: Service
metadata: {name: udp}
spec: {selector: {app: udp}, ports: [{name: http3, port: 443, targetPort: 8443, protocol: UDP}, {name: dns, port: 53, targetPort: 5353, protocol: UDP}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: etcd}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: udp}
`

// workloadPod returns a pod of the workload's program.
func workloadPod(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: workload
    image: `+workloadImage+`
    imagePullPolicy: Never
    args: [serve]
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`, name)
}

// workloadImages writes the images to archives.
func workloadImages(t *testing.T) []string {
	t.Helper()
	ctx, dir := within(t, 15*time.Minute), tempDir(t)
	program, err := kube.Program{Folder: "workload", Name: "workload", Package: ".", LDFlags: "-s -w"}.Built(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	programs, err := kube.Binaries(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	archives := []string{filepath.Join(dir, "workload.tar"), filepath.Join(dir, "etcd.tar")}
	for i, x := range []struct{ name, at, program string }{{workloadImage, "/bin/workload", program}, {etcdImage, "/bin/etcd", filepath.Join(programs, "etcd")}} {
		if err := image.Write(archives[i], x.name, x.at, map[string]string{x.at: x.program}); err != nil {
			t.Fatal(err)
		}
	}
	return archives
}

// TestWorkload has third-party programs in cloud use services of edge by their clusterset names:
// HTTP/3 and DNS, and then an etcd client while the path loses packets, the NAT changes ports,
// and cloud's gateway is replaced or killed.
func TestWorkload(t *testing.T) {
	during := workloadTime
	if s := os.Getenv(workloadVariable); s != "" {
		var err error
		if during, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	s := newClusterset(t, workloadImages(t)...)
	for _, one := range s.all {
		one.restricted("db")
	}
	s.edge.run("db", "udp", workloadPod("udp"))
	s.edge.apply(workload, "apply", "-n", "db", "-f", "-")
	s.edge.kubectl("rollout", "status", "-n", "db", "statefulset/etcd", "--timeout="+patience.String())
	s.cloud.run("db", "client", workloadPod("client"))
	client := func(args ...string) []string {
		return append([]string{"exec", "-n", "db", "client", "--", "/bin/workload"}, args...)
	}
	for _, want := range []struct {
		answer string
		args   []string
	}{
		{"[192.0.2.53]", client("dns", "udp.db.svc.clusterset.local:53", "somewhere.example")},
		{fmt.Sprintf("HTTP/3.0 workload: %d bytes", transferred), client("http3", "https://udp.db.svc.clusterset.local/", fmt.Sprint(transferred))},
	} {
		begin := time.Now()
		eventually(within(t, patience), t, "an answer by UDP", func() (bool, string) {
			out, err := s.cloud.Kubectl(within(t, patience), "", want.args...)
			return err == nil && strings.Contains(out, want.answer), fmt.Sprint(out, err)
		})
		t.Logf("%s after %v", want.answer, time.Since(begin).Round(10*time.Millisecond))
	}

	const endpoint = "etcd-0.edge.etcd.db.svc.clusterset.local:2379"
	p := s.cloud.node.Start(netlab.Command{Args: append([]string{s.cloud.KubectlPath(), "--kubeconfig", s.cloud.Kubeconfig()}, client("etcd", endpoint, during.String())...)})
	s.cloud.node.DropIncoming("eth0", workloadLoss)
	s.edge.node.DropIncoming("eth0", workloadLoss)
	tick := time.NewTicker(faultEvery)
	defer tick.Stop()
	begin, n := time.Now(), 0
	for end := time.After(during - faultEvery); ; n++ {
		select {
		case <-p.Done():
			t.Fatalf("the client has ended: %s\n%s", p.Stdout(), p.Stderr())
		case <-end:
			code, err := p.Wait(within(t, during+patience))
			t.Logf("it ended with %d, %v, after %d faults in %v; what it says:\n%s%s", code, err, n, time.Since(begin).Round(time.Second), p.Stderr(), p.Stdout())
			judgeWorkload(t, p.Stdout(), during)
			return
		case <-tick.C:
		}
		switch at := time.Now().Format(time.TimeOnly); n % 4 {
		case 0:
			t.Logf("%s: the NAT takes other ports", at)
			first := uint16(20000 + 100*(n%100))
			s.nat.Rebind(first, first+99)
		case 1:
			t.Logf("%s: the pods are replaced, one after the other", at)
			s.cloud.kubectl("rollout", "restart", "-n", gatewayNamespace, "statefulset/"+release)
		case 2:
			t.Logf("%s: the NAT forgets", at)
			s.nat.Restart()
		case 3:
			t.Logf("%s: the active gateway is killed", at)
			s.cloud.killGateway()
		}
	}
}

// judgeWorkload evaluates the client's report.
func judgeWorkload(t *testing.T, out string, during time.Duration) {
	t.Helper()
	var r struct {
		Acknowledged, Failed, Watched int
		Longest                       time.Duration
		Wrong                         []string
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("the report cannot be read: %v", err)
	}
	t.Logf("%v: %d writes were acknowledged and read, %d told of by the watch; %d requests failed and were made again; the longest time without an answer was %v",
		during, r.Acknowledged, r.Watched, r.Failed, r.Longest.Round(10*time.Millisecond))
	for _, w := range r.Wrong {
		t.Error(w)
	}
	if r.Acknowledged == 0 {
		t.Error("nothing was written")
	}
	if r.Longest > slow()*reconnectedWithin {
		t.Errorf("the client was without an answer for %v, want at most %v", r.Longest, slow()*reconnectedWithin)
	}
}
