//go:build linux && e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
)

// lasting is what no change of a release may change: the gateway's key, its peers, its identity
// at them, and the address under which its cluster finds the other one.
type lasting struct{ key, peer, accounts, service string }

func (c *cluster) lasting(other *cluster) lasting {
	c.t.Helper()
	p := c.peer(other.name)
	return lasting{p.Spec.PublicKey, p.Metadata.UID, c.accountUIDs(),
		c.kubectl("get", "service", "-n", gatewayNamespace, "postern-"+other.name, "-o", "jsonpath={.metadata.uid} {.spec.clusterIP}")}
}

// podUIDs returns the UIDs of the gateway's pods.
func (c *cluster) podUIDs() []string {
	c.t.Helper()
	return strings.Fields(c.kubectl("get", "pods", "-n", gatewayNamespace, "-l", "app.kubernetes.io/name=postern", "-o", "jsonpath={.items[*].metadata.uid}"))
}

// watching watches ConfigMaps of the other cluster from the pod client, on one connection that is
// opened again after it has ended. sees makes a change and waits until the watch reports it.
func (c *cluster) watching(other *cluster) (sees func(ctx context.Context, name string) error, stop func()) {
	c.t.Helper()
	const script = `while :; do /bin/kubectl get configmaps -n ` + tenant + ` --watch -o name 2>/dev/null; done`
	p := c.node.Start(netlab.Command{Args: append([]string{c.KubectlPath(), "--kubeconfig", c.Kubeconfig()}, inside("client", "/bin/sh", "-c", script)...)})
	return func(ctx context.Context, name string) error {
		if _, err := other.Kubectl(ctx, "", "create", "configmap", "-n", tenant, name); err != nil {
			return err
		}
		_, err := p.WaitStdout(ctx, func(s string) bool { return strings.Contains(s, "configmap/"+name+"\n") })
		return err
	}, p.Kill
}

// rolled has change replace all pods of a cluster's gateway, one after the other, and waits until
// all are ready. Meanwhile edge uses cloud, with new connections all the time and a permanent
// one. Nobody may be without an answer for longer than replacedWithin, nor without the watch for
// longer than blindFor, or late is called; and nothing may be lost.
func (c *clusters) rolled(t *testing.T, late lateness, blindFor time.Duration, what string, rolling *cluster, change func()) {
	t.Helper()
	what = rolling.name + ", " + what
	before := map[*cluster]lasting{}
	for one, other := range c.both() {
		before[one] = one.lasting(other)
	}
	pods := rolling.podUIDs()
	sees, end := c.edge.watching(c.cloud)
	defer end()
	marker := func(when string) string { return fmt.Sprintf("rolled-%d-%s", time.Now().UnixNano(), when) }
	if err := sees(within(t, patience), marker("before")); err != nil {
		t.Fatalf("%s: the watch before it: %v", what, err)
	}
	stop := c.edge.pulse()
	start := time.Now()
	change()
	rolling.waitRollout(release, gatewayNamespace)
	took := time.Since(start)
	eventually(within(t, patience), t, "cloud answers", func() (bool, string) {
		out, err := c.edge.away(within(t, patience), "get", "--raw", "/readyz", "--request-timeout=2s")
		return err == nil, fmt.Sprint(out, err)
	})
	gap := stop()
	start = time.Now()
	if err := sees(within(t, patience), marker("after")); err != nil {
		t.Errorf("%s: the watch after it: %v", what, err)
	}
	blind := time.Since(start)
	t.Logf("%s: the pods were replaced in %v; the longest time without an answer was %v, and the watch went on %v after that",
		what, took.Round(100*time.Millisecond), gap.Round(100*time.Millisecond), blind.Round(100*time.Millisecond))
	late(what+": without an answer", gap, replacedWithin)
	late(what+": without the watch", blind, blindFor)
	for _, uid := range rolling.podUIDs() {
		if slices.Contains(pods, uid) {
			t.Errorf("%s: a pod was not replaced, so this shows nothing", what)
		}
	}
	for one, other := range c.both() {
		one.waitPeer(other.name, "usable", func(p peerObject) bool {
			return p.usable() && answers(p.Status.Auth, "AuthReachable", p)
		})
		if got := one.lasting(other); got != before[one] {
			t.Errorf("%s: %s has %+v, and had %+v", what, one.name, got, before[one])
		}
	}
}

// rollback returns to the values, and the chart, before the last upgrade.
func (c *cluster) rollback() {
	c.t.Helper()
	if _, err := c.Helm(within(c.t, patience), c.helm, "rollback", release, "-n", gatewayNamespace); err != nil {
		c.t.Fatal(err)
	}
}

// testUpgrade changes values of both gateways, of which cloud has two replicas, and restores
// cloud's. Other tests run at the same time: make test-helm checks the time that it may take.
func testUpgrade(t *testing.T, c *clusters) {
	cloud, edge := c.cloud, c.edge
	cloud.upgrade(release, gatewayNamespace, append(c.cloudValues(), "replicas=2")...)
	edge.waitPeer("cloud", "usable", peerObject.usable)
	anyTime := func(string, time.Duration, time.Duration) {}
	c.rolled(t, anyTime, replacedWithin, "upgrade", cloud, func() {
		cloud.helmUpgrade(release, gatewayNamespace, chartFolder, "--reset-values", append(c.cloudValues(), "replicas=2", "log.level=debug")...)
	})
	c.rolled(t, anyTime, replacedWithin, "upgrade", edge, func() {
		edge.helmUpgrade(release, gatewayNamespace, chartFolder, "--reset-values", append(c.edgeValues(), "log.level=debug", "resources.limits.memory=96Mi")...)
	})
	c.rolled(t, anyTime, replacedWithin, "rollback", cloud, cloud.rollback)
}
