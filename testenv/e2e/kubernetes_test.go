//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

// Size of the list that must pass through the tunnel: 2,000 ConfigMaps of 50 KB.
const (
	bulkNamespace = "bulk"
	bulkCount     = 2000
	bulkSize      = 50_000

	watchNamespace = "watched"
	watchFor       = 60 * time.Second
	watchEvery     = 5 * time.Second
)

// TestKubectlWorksThroughTheTunnel is the basic acceptance test of a peering, with the inviting
// gateway on either side of the NAT.
func TestKubectlWorksThroughTheTunnel(t *testing.T) {
	t.Parallel()
	t.Run("inviter is public", func(t *testing.T) {
		t.Parallel()
		k := newKubeWorld(t)
		ticket := k.cloud.invite("--name", "edge")
		k.edge.must("join", ticket)
		k.check(t)
		k.checkFixOfForbidden(t)
	})
	t.Run("inviter is behind the NAT", func(t *testing.T) {
		t.Parallel()
		k := newKubeWorld(t)
		ticket := k.edge.invite()
		// Nobody can reach edge, so the join ends by printing a line to be run there.
		r := k.cloud.postern(within(t, patience), "join", ticket, "--name", "edge", "--wait", "5s", "--allow", "auth,apiServer")
		if r.code != 1 {
			t.Errorf("join: exit code %d, want 1\n--- stderr:\n%s", r.code, r.stderr)
		}
		fields := strings.Fields(r.stdout)
		if len(fields) != 3 || fields[0] != "postern" || fields[1] != "accept" || strings.Count(r.stdout, "\n") != 1 {
			t.Fatalf("join printed %q, want one line: postern accept REPLY", r.stdout)
		}
		k.edge.must("accept", fields[2])
		k.check(t)
	})
}

// check does all that a user of edge does with cloud's API server, once they are peers.
func (k *kubeWorld) check(t *testing.T) {
	t.Helper()
	start := time.Now()
	k.edge.waitConnected("cloud")
	p := k.edge.waitPeer("cloud", "with an identity", func(p api.PeerStatus) bool { return p.Identity != nil })
	if p.Path.Kind != api.PathDirect {
		t.Errorf("the path is %+v, want a direct one", p.Path)
	}
	t.Logf("connected, with an identity until %s, after %v", p.Identity.NotAfter.Format(time.RFC3339), time.Since(start).Round(time.Millisecond))
	k.waitReachable(t)

	kubeconfig := filepath.Join(tempDir(t), "cloud.kubeconfig")
	k.edge.must("kubeconfig", "cloud", "-f", kubeconfig)
	k.checkNamespaces(t, kubeconfig)
	k.checkForbidden(t, kubeconfig)
	watched := k.watch(t, kubeconfig)
	k.checkBulk(t, kubeconfig)
	<-watched
	k.checkOnlyUDPCrossed(t)
	k.checkNothingListens(t)
}

// waitReachable waits for the verdicts about cloud in the status.
func (k *kubeWorld) waitReachable(t *testing.T) {
	t.Helper()
	k.edge.waitPeer("cloud", "reachable", func(p api.PeerStatus) bool {
		out := p.Reachability.Outbound
		return out.Auth.Verdict == api.OK && out.APIServer.Verdict == api.OK && out.Gateway.Verdict == api.OK
	})
}

// kubectl returns a command line that runs kubectl with a kubeconfig of postern's, as a user of
// edge does.
func (k *kubeWorld) kubectl(kubeconfig string, args ...string) netlab.Command {
	return netlab.Command{
		Namespace: k.world.edge.Namespace(),
		Args:      append([]string{k.cluster.KubectlPath(), "--kubeconfig", kubeconfig}, args...),
		// The exec plugin is found as on users' machines: in the PATH.
		Env: []string{"PATH=" + filepath.Dir(k.edge.bin) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Dir(kubeconfig), "KUBECONFIG="},
	}
}

// run runs kubectl and returns its output.
func (k *kubeWorld) run(ctx context.Context, t *testing.T, c netlab.Command) (string, error) {
	t.Helper()
	p, err := netlab.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	code, err := p.Wait(ctx)
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("%s: exit code %d: %s", strings.Join(c.Args, " "), code, p.Stderr())
	}
	return p.Stdout(), nil
}

func (k *kubeWorld) checkNamespaces(t *testing.T, kubeconfig string) {
	t.Helper()
	out, err := k.run(within(t, patience), t, k.kubectl(kubeconfig, "get", "ns"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"default", "kube-system", bulkNamespace, watchNamespace} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl get ns shows no %s:\n%s", want, out)
		}
	}
}

// checkForbidden shows that the identity is edge's own and has no further rights.
func (k *kubeWorld) checkForbidden(t *testing.T, kubeconfig string) {
	t.Helper()
	out, err := k.run(within(t, patience), t, k.kubectl(kubeconfig, "get", "secrets", "-A"))
	if err == nil || !containsAll(err.Error(), "Forbidden", `"postern:peer:edge"`) {
		t.Errorf("reading Secrets: got %q, %v; want Forbidden for user postern:peer:edge", out, err)
	}
}

// checkFixOfForbidden removes all default rights of users, and does what the fix says.
func (k *kubeWorld) checkFixOfForbidden(t *testing.T) {
	t.Helper()
	admin := func(args ...string) {
		t.Helper()
		if out, err := k.cluster.Kubectl(within(t, patience), "", args...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	checked := func(code string) (fix string) {
		t.Helper()
		eventually(within(t, patience), t, fmt.Sprintf("the API server of cloud is found with %q", code), func() (bool, string) {
			out := k.edge.postern(within(t, patience), "check", "cloud").stdout
			p, _ := k.edge.peer("cloud")
			fix = p.Reachability.Outbound.APIServer.Fix
			return p.Reachability.Outbound.APIServer.Code == code, out
		})
		return fix
	}
	admin("delete", "clusterrolebinding", "system:discovery", "system:public-info-viewer", "system:basic-user")
	fix := checked("PST0306")
	_, command, _ := strings.Cut(fix, "`kubectl ")
	command, _, _ = strings.Cut(command, "`")
	if !strings.Contains(command, "--user=postern:peer:edge") {
		t.Fatalf("the fix is %q, want a command for the user of edge", fix)
	}
	admin(strings.Fields(command)...)
	checked("")
}

// watch starts a watch through the tunnel that runs for a minute while ConfigMaps are created;
// each must be reported. The channel is closed at the end.
func (k *kubeWorld) watch(t *testing.T, kubeconfig string) <-chan struct{} {
	t.Helper()
	c := k.kubectl(kubeconfig, "get", "configmaps", "-n", watchNamespace, "--watch", "-o", "name")
	p := k.edge.host.Start(netlab.Command{Args: c.Args, Env: c.Env})
	done := make(chan struct{})
	go func() {
		defer close(done)
		start := time.Now()
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		var slowest time.Duration
		events := 0
		for time.Since(start) < watchFor {
			name := fmt.Sprintf("event-%03d", events)
			made := time.Now()
			if _, err := k.createConfigMap(within(t, patience), watchNamespace, name, 100); err != nil {
				t.Error(err)
				return
			}
			if _, err := p.WaitStdout(within(t, patience), func(s string) bool { return strings.Contains(s, "configmap/"+name+"\n") }); err != nil {
				t.Errorf("the watch did not report %s, %v after it began: %v", name, time.Since(start), err)
				return
			}
			slowest = max(slowest, time.Since(made))
			events++
			<-tick.C
		}
		t.Logf("watch: %d events in %v, the slowest after %v", events, time.Since(start).Round(time.Second), slowest.Round(time.Millisecond))
	}()
	return done
}

// checkBulk lists 100 MB in one answer, and again in pages, as kubectl does.
func (k *kubeWorld) checkBulk(t *testing.T, kubeconfig string) {
	t.Helper()
	file := filepath.Join(tempDir(t), "list.json")
	c := k.kubectl(kubeconfig, "get", "--raw", "/api/v1/namespaces/"+bulkNamespace+"/configmaps")
	// 100 MB are better stored in a file than in a string.
	c.Args = append([]string{"sh", "-c", `exec "$@" >` + file, "sh"}, c.Args...)
	start := time.Now()
	if _, err := k.run(within(t, 3*time.Minute), t, c); err != nil {
		t.Errorf("list of %d ConfigMaps: %v", bulkCount, err)
		return
	}
	took := time.Since(start)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Data     struct{ Content string }
		}
	}
	if err := json.NewDecoder(f).Decode(&list); err != nil {
		t.Fatalf("the list: %v", err)
	}
	intact := 0
	for _, item := range list.Items {
		if k.sums[item.Metadata.Name] == contentHash(item.Data.Content) {
			intact++
		}
	}
	if len(list.Items) != bulkCount || intact != bulkCount {
		t.Errorf("the list has %d ConfigMaps, %d of them intact; want %d", len(list.Items), intact, bulkCount)
	}
	t.Logf("list: %d MB in %v", info.Size()>>20, took.Round(time.Millisecond))

	out, err := k.run(within(t, 3*time.Minute), t, k.kubectl(kubeconfig, "get", "configmaps", "-n", bulkNamespace, "-o", "name"))
	if err != nil {
		t.Error(err)
	}
	if got := strings.Count(out, "configmap/bulk-"); got != bulkCount {
		t.Errorf("kubectl get configmaps prints %d names, want %d", got, bulkCount)
	}
}

// checkOnlyUDPCrossed reads the NAT's counters at the end.
func (k *kubeWorld) checkOnlyUDPCrossed(t *testing.T) {
	t.Helper()
	traffic, err := k.nat.Traffic(within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("across the NAT: %+v", traffic)
	if traffic.TCPIn.Packets+traffic.TCPOut.Packets != 0 {
		t.Errorf("TCP crossed the NAT: %+v", traffic)
	}
	// Enrolment's own port is closed at its end. The inviter's WireGuard may try it for another
	// 90 s, every 5 s (whitepaper §6.4), and edge's kernel answers by ICMP. There is no other
	// reason for anything but UDP.
	const enrolmentErrors = 90/5 + 5
	if traffic.OtherIn.Packets != 0 || traffic.OtherOut.Packets > enrolmentErrors {
		t.Errorf("more than UDP crossed the NAT: %+v", traffic)
	}
	// The content is base64, which kubectl and the server compress to three quarters.
	if least := uint64(2 * bulkCount * bulkSize * 3 / 4); traffic.UDPIn.Bytes < least {
		t.Errorf("%d bytes of UDP crossed the NAT, less than the lists' %d: what carried them?", traffic.UDPIn.Bytes, least)
	}
}

// checkNothingListens checks that cloud has no sockets that the underlay could reach.
func (k *kubeWorld) checkNothingListens(t *testing.T) {
	t.Helper()
	pid := k.cloud.proc.PID()
	local := 0
	for _, table := range []string{"tcp", "tcp6"} {
		for _, a := range sockets(t, pid, table, "0A") {
			if !a.Addr().IsLoopback() {
				t.Errorf("cloud listens on TCP %s", a)
			} else {
				local++
			}
		}
	}
	if local == 0 {
		t.Error("cloud listens on no TCP port at all, not even for metrics: the search found nothing")
	}
	ports := map[uint16]bool{}
	for _, table := range []string{"udp", "udp6"} {
		for _, a := range sockets(t, pid, table, "07") {
			ports[a.Port()] = true
		}
	}
	if len(ports) != 1 || !ports[gatewayPort] {
		t.Errorf("cloud has UDP ports %v open, want %d alone", ports, gatewayPort)
	}
}
