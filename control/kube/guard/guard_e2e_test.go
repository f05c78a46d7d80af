//go:build linux && e2e

package guard

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// unrelated is a policy that does not concern the guard's requests.
const unrelated = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: unrelated}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [secrets, services]}]},
  matchConditions: [{name: gateway, expression: "request.userInfo.username == 'system:serviceaccount:postern:postern'"}],
  validations: [{expression: "has(object.metadata.labels) && 'team' in object.metadata.labels"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: unrelated}, spec: {policyName: unrelated, validationActions: [Deny]}}
`

// testGuard: a gateway whose policy is removed reports that, and its probes leave nothing behind.
func testGuard(t *testing.T, w *world) {
	told := make(chan []check.OwnProblem, 8)
	g, err := New(Options{Cluster: w.gateway(t), Release: release, Pod: "postern-0", OnProblems: func(list []check.OwnProblem) { told <- list }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, patience)
	eventually(t, "with the policy nothing is wrong", func() (bool, string) {
		list, err := g.Admitted(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 0, ""
	})
	w.install(t, "rbac.policy=false")
	eventually(t, "without the policy all is admitted", func() (bool, string) {
		list, err := g.Admitted(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == len(g.probes()), ""
	})
	w.kubectl(t, unrelated, "apply", "-f", "-")
	eventually(t, "a policy that refuses Secrets and Services whatever they are hides nothing", func() (bool, string) {
		list, err := g.Admitted(ctx)
		return err == nil && slices.Equal(list, []string{g.probes()[2].means}), strings.Join(list, "; ")
	})
	w.kubectl(t, unrelated, "delete", "-f", "-")
	g.again = poll
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); g.Run(running) }()
	select {
	case list := <-told:
		if !slices.ContainsFunc(list, func(p check.OwnProblem) bool { return p.Code == catalogue.AccountUnbounded }) {
			t.Errorf("told %+v, want %s", list, catalogue.AccountUnbounded)
		}
	case <-ctx.Done():
		t.Error("nothing was told")
	}
	w.install(t)
	for bad := true; bad; { // until it is enforced some probes are still admitted
		select {
		case list := <-told:
			bad = len(list) > 0
		case <-ctx.Done():
			t.Error("that the policy is there again was not told")
			bad = false
		}
	}
	stop()
	<-done
	if left := w.kubectl(t, "", "get", "secret,service", "-n", namespace, "-o", "name"); strings.Contains(left, "guard-probe") {
		t.Errorf("a probe made something: %s", left)
	}
}
