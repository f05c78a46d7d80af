//go:build linux && e2e

// Package guardtest installs the shipped policy of the gateway's account in a test's cluster. So
// the tests show that the policy permits what the gateway does.
package guardtest

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/kube"
)

const (
	// patience limits how long the API server may take to enforce the policy.
	patience = 90 * time.Second
	// poll is the polling interval for conditions without an event.
	poll = 100 * time.Millisecond

	// shipped is the condition for accounts in the manifest, everyOne matches every account of
	// that name.
	shipped  = "request.userInfo.username == 'system:serviceaccount:postern:postern'"
	everyOne = "request.userInfo.username.matches('^system:serviceaccount:[^:]+:postern$')"

	// witness may do what only the policy refuses.
	witness = `{apiVersion: v1, kind: Namespace, metadata: {name: guardtest}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: witness, namespace: guardtest},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
  subjects: [{kind: ServiceAccount, name: postern, namespace: guardtest}]}
`
	forbidden = `{apiVersion: v1, kind: Secret, metadata: {name: any, namespace: guardtest}}`
)

// Install applies the policy for the accounts named postern of all namespaces, and waits until it
// is enforced.
func Install(t *testing.T, c *kube.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("this file is nowhere")
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../../cmd/postern/deploy/rbac/gateway-policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.Replace(string(b), shipped, everyOne, 1)
	if !strings.Contains(policy, everyOne) {
		t.Fatalf("the manifest does not say %q", shipped)
	}
	if _, err := c.Kubectl(ctx, witness+"---\n"+policy, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		_, err := c.Kubectl(ctx, forbidden, "create", "--dry-run=server", "--as=system:serviceaccount:guardtest:postern", "-f", "-")
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the policy is not in force; last seen: %v", err)
		}
	}
}
