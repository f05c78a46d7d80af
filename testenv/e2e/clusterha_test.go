//go:build linux && e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// replacedWithin is how long the other side may get no answer after the active pod is gone.
	replacedWithin = 10 * time.Second
	// outage is how long a cluster's own API server is away.
	outage = 3 * time.Minute
	// catchUp is how long the status of Peers may lag after that.
	catchUp = time.Minute
	// outageGap is how long nothing may pass through the tunnel during the outage: far less than
	// if the gateway had stopped, and more than on a busy machine.
	outageGap = 10 * time.Second
)

// activePod returns the active pod, "" if there is none.
func (c *cluster) activePod() string {
	c.t.Helper()
	return c.kubectl("get", "pods", "-n", gatewayNamespace, "-l", "postern.dev/role=active",
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}")
}

// accountUIDs returns the UIDs of peers' accounts. A peer that enrols again has another key, and
// so another account.
func (c *cluster) accountUIDs() string {
	c.t.Helper()
	return c.kubectl("get", "serviceaccounts", "-n", "postern-peers", "-l", "postern.dev/peer", "-o", "jsonpath={range .items[*]}{.metadata.name}={.metadata.uid} {end}")
}

// pulse requests the peer's API server repeatedly through the tunnel, each time on a new
// connection, from the pod client. It returns after the first answer; stop returns the longest
// time without an answer since then.
func (c *cluster) pulse() (stop func() time.Duration) {
	c.t.Helper()
	script := `while :; do if /bin/kubectl get --raw /readyz --request-timeout=2s >/dev/null 2>&1; then echo pulse; fi; /bin/sleep 0.1; done`
	p := c.node.Start(netlab.Command{Args: append([]string{c.KubectlPath(), "--kubeconfig", c.Kubeconfig()}, inside("client", "/bin/sh", "-c", script)...)})
	if _, err := p.WaitStdout(within(c.t, patience), func(s string) bool { return s != "" }); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		last, gap, seen := time.Now(), time.Duration(0), 1
		for {
			_, err := p.WaitStdout(ctx, func(s string) bool { return strings.Count(s, "\n") > seen })
			gap = max(gap, time.Since(last))
			if err != nil {
				longest <- gap
				return
			}
			last, seen = time.Now(), strings.Count(p.Stdout(), "\n")
		}
	}()
	return func() time.Duration {
		cancel()
		p.Kill()
		return <-longest
	}
}

// testActivePodDeleted runs two replicas at cloud and deletes the active one, during a watch and
// a transfer of edge.
func testActivePodDeleted(t *testing.T, c *clusters) {
	cloud, edge := c.cloud, c.edge
	cloud.upgrade(release, gatewayNamespace, append(c.cloudValues(), "replicas=2")...)
	edge.waitPeer("cloud", "connected", peerObject.usable)
	key := edge.peer("cloud").Spec.PublicKey
	accounts := cloud.accountUIDs()
	onTime(t, func(late lateness) {
		watch := edge.stays("get", "configmaps", "-n", tenant, "--watch", "-o", "name")
		if _, err := watch.WaitStdout(within(t, patience), func(s string) bool { return s != "" }); err != nil {
			t.Fatal(err)
		}
		transfer := edge.stays("cp", "/data/file", tenant+"/server:/data/again")

		stop := edge.pulse()
		was := cloud.activePod()
		start := time.Now()
		cloud.kubectl("delete", "pod", "-n", gatewayNamespace, was, "--wait=false")
		next := ""
		eventually(within(t, patience), t, "the other replica is active", func() (bool, string) {
			next = cloud.activePod()
			return next != "" && next != was, next
		})
		t.Logf("%s is active %v after %s was deleted", next, time.Since(start).Round(100*time.Millisecond), was)
		eventually(within(t, patience), t, "the other replica answers", func() (bool, string) {
			out, err := edge.away(within(t, patience), "get", "--raw", "/readyz")
			return err == nil, fmt.Sprint(out, err)
		})
		gap := stop() // it counts the time without an answer, but not this
		t.Logf("the longest time without an answer was %v", gap.Round(100*time.Millisecond))
		late("the other side was without an answer", gap, replacedWithin)
		watch.Kill()
		transfer.Kill()
		cloud.waitRollout(release, gatewayNamespace)
	})
	// The interrupted transfer is repeated by its user, and nobody enrolled again.
	edge.useCopy(cloud)
	if got := edge.peer("cloud").Spec.PublicKey; got != key {
		t.Errorf("cloud's key is %s, was %s", got, key)
	}
	if got := cloud.accountUIDs(); got != accounts {
		t.Errorf("the accounts of peers are %s, were %s: edge enrolled again", got, accounts)
	}
	eventually(within(t, patience), t, "one replica is active", func() (bool, string) { // a busy one may have lost the role meanwhile
		active := cloud.activePod()
		return len(strings.Fields(active)) == 1, active
	})
}

// peer reads a Peer.
func (c *cluster) peer(name string) peerObject {
	c.t.Helper()
	var p peerObject
	c.object(&p, "peer", "-n", gatewayNamespace, name)
	return p
}

// testOwnAPIServerAway stops branch's API server. Connections through the tunnel continue; the
// clients are inside pods, and do not need their own API server.
func testOwnAPIServerAway(t *testing.T, c *clusters) {
	branch, cloud := c.branch, c.cloud
	branch.join("cloud", cloud.invite("branch", ""), "")
	had := branch.waitPeer("cloud", "usable", func(p peerObject) bool { return p.Status.APIServer == "ok" && !p.Status.Identity.NotAfter.IsZero() })
	branch.run(gatewayNamespace, "client", clientPod("client", "cloud", "postern.dev/peer-cloud: allow"))
	ask := branch.direct("cloud")
	eventually(within(t, patience), t, "cloud's API server answers before the outage", func() (bool, string) {
		err := ask(t.Context())
		return err == nil, fmt.Sprint(err)
	})
	gateway, _ := branch.process(gatewayNamespace, release+"-0", "/postern")
	if err := branch.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	askFor(t, outage, ask)
	// A change during the outage must be in the cluster afterwards.
	cloud.allow("branch", "auth")
	eventually(within(t, patience), t, "the gateway knows what was taken from it", func() (bool, string) {
		_, _ = inContainer(t.Context(), gateway, "/postern", "check", "cloud") // as a user would do
		out, err := inContainer(t.Context(), gateway, "/postern", "status", "cloud", "-o", "json")
		var s api.Status
		if err == nil {
			err = json.Unmarshal([]byte(out), &s)
		}
		return err == nil && len(s.Peers) == 1 && s.Peers[0].Reachability.Outbound.APIServer.Verdict == api.Off, fmt.Sprint(out, err)
	})
	if err := branch.StartAPIServer(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	branch.waitPeer("cloud", "up to date", func(p peerObject) bool { return p.Status.State == "connected" && p.Status.APIServer == "off" })
	late(t, "the API server is back, and status has caught up", time.Since(start), catchUp)
	cloud.allow("branch", "auth", "apiServer")
	got := branch.waitPeer("cloud", "as before", peerObject.usable)
	if got.Spec.PublicKey != had.Spec.PublicKey || got.Metadata.UID != had.Metadata.UID {
		t.Errorf("the Peer is another one: %+v, was %+v", got, had)
	}
	cloud.kubectl("delete", "peer", "-n", gatewayNamespace, "branch")
}

// allow sets what a peer may reach here.
func (c *cluster) allow(peer string, services ...string) {
	c.t.Helper()
	b, err := json.Marshal(map[string]any{"spec": map[string]any{"allow": services}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("patch", "peer", "-n", gatewayNamespace, peer, "--type=merge", "-p", string(b))
}

// askFor asks repeatedly; the longest time between two answers must be short.
func askFor(t *testing.T, during time.Duration, ask func(context.Context) error) {
	t.Helper()
	start, last, gap, answers := time.Now(), time.Now(), time.Duration(0), 0
	var failed error
	for time.Since(start) < during {
		ctx, cancel := context.WithTimeout(t.Context(), outageGap)
		if err := ask(ctx); err != nil {
			failed = err
		} else {
			answers++
			gap, last = max(gap, time.Since(last)), time.Now()
		}
		cancel()
		<-time.After(poll)
	}
	gap = max(gap, time.Since(last))
	t.Logf("%d answers in %v without the API server, the longest time between two was %v", answers, during, gap.Round(time.Millisecond))
	if text, is := tooLate("forwarding stopped", gap, outageGap); is {
		t.Errorf("%s: %v", text, failed)
	}
}

// inContainer runs a program in a container as its user, bypassing the API server.
func inContainer(ctx context.Context, pid int, args ...string) (string, error) {
	const user = "65532" // of every image here
	return netlab.Run(ctx, "", "", append([]string{"nsenter", "-t", strconv.Itoa(pid), "--net", "--mount", "-S", user, "-G", user}, args...)...)
}

// direct is how the pod client requests the peer's API server without `kubectl exec`, which needs
// our own: from inside its container's namespaces.
func (c *cluster) direct(peer string) func(context.Context) error {
	c.t.Helper()
	pid, _ := c.process(gatewayNamespace, "client", "/bin/sleep")
	return func(ctx context.Context) error {
		out, err := inContainer(ctx, pid, "/bin/kubectl", "--kubeconfig=/peer/kubeconfig",
			"--cache-dir=/data/cache", "get", "--raw", "/api/v1/namespaces/"+tenant+"/pods", "--request-timeout=4s")
		if err != nil {
			return fmt.Errorf("ask %s's API server: %w", peer, err)
		}
		var list struct{ Items []any }
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) == 0 {
			return fmt.Errorf("%s's API server answered %.200q", peer, out)
		}
		return nil
	}
}
