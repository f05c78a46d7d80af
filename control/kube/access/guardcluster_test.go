//go:build linux && e2e

package access

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
)

// podRights are the permissions to look up the pods of a namespace.
const podRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: access, namespace: FROM}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: access, namespace: FROM}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: access}
subjects: [{kind: ServiceAccount, name: postern, namespace: NS}]
`

func (w *world) testGuard(t *testing.T) {
	own := w.account(t, "guard")
	g, err := NewGuard(GuardOptions{Cluster: own, Namespaces: []string{"tenant"}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), 40000) }
	if err := g.Admit("cloud", api.TCP, at("10.244.0.7")); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("without the right to list pods: got %v", err)
	}
	var told []string
	g.Notify(func(list []check.OwnProblem) {
		told = told[:0]
		for _, p := range list {
			told = append(told, p.Params.Namespace)
		}
	})
	w.kubectl(t, "", "create", "namespace", "tenant")
	w.kubectl(t, "", "create", "serviceaccount", "-n", "tenant", "default")
	w.kubectl(t, "", "create", "namespace", "elsewhere")
	w.kubectl(t, "", "create", "serviceaccount", "-n", "elsewhere", "default")
	w.apply(t, "guard", strings.ReplaceAll(podRights, "FROM", "guard"))
	begun := time.Now()
	for len(told) != 1 || told[0] != "tenant" { // a missing namespace does not affect the others
		if err := g.Admit("cloud", api.TCP, at("10.244.0.7")); err == nil || time.Since(begun) > patience {
			t.Fatalf("without the right in one namespace: %v, told of %v", err, told)
		}
	}
	w.apply(t, "guard", strings.ReplaceAll(podRights, "FROM", "tenant"))
	const stranger = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"stranger","labels":{"postern.dev/peer-cloud":"allow"}},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"x"}]}}`
	w.kubectl(t, stranger, "apply", "-n", "elsewhere", "-f", "-")
	w.kubectl(t, "", "patch", "pod", "stranger", "-n", "elsewhere", "--subresource=status", "--type=merge", "-p", `{"status":{"podIP":"10.244.0.10"}}`)
	for name, p := range map[string]struct{ labels, spec, status string }{
		"allowed": {`"postern.dev/peer-cloud":"allow"`, ``, `"podIP":"10.244.0.7"`},
		"other":   {`"postern.dev/peer-berlin":"allow"`, ``, `"podIP":"10.244.0.8"`},
		"ended":   {`"postern.dev/peer-cloud":"allow"`, ``, `"phase":"Succeeded","podIP":"10.244.0.9"`},
		"onhost":  {`"postern.dev/peer-cloud":"allow"`, `"hostNetwork":true,`, `"podIP":"10.0.0.1"`},
	} {
		w.kubectl(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+name+`","labels":{`+p.labels+`}},"spec":{`+p.spec+`"automountServiceAccountToken":false,"containers":[{"name":"c","image":"x"}]}}`,
			"apply", "-n", "tenant", "-f", "-")
		w.kubectl(t, "", "patch", "pod", name, "-n", "tenant", "--subresource=status", "--type=merge", "-p", `{"status":{`+p.status+`}}`)
	}
	for ip, want := range map[string]string{
		"10.244.0.7": "", "10.244.0.8": "pod tenant/other has no label postern.dev/peer-cloud: allow",
		"10.244.0.9": "the address of no pod", "10.0.0.1": "the address of no pod", "10.9.9.9": "the address of no pod",
		"10.244.0.10": "the namespaces guard, tenant",
	} {
		var err error
		for begun := time.Now(); time.Since(begun) < patience; {
			// It takes a moment until rights apply everywhere in an API server.
			if err = g.Admit("cloud", api.TCP, at(ip)); err == nil || !strings.Contains(err.Error(), "forbidden") {
				break
			}
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", ip, err, want)
		}
	}
	w.kubectl(t, "", "label", "pod", "other", "-n", "tenant", "postern.dev/peer-cloud=allow")
	begun = time.Now()
	for g.Admit("cloud", api.TCP, at("10.244.0.8")) != nil {
		if time.Since(begun) > patience {
			t.Fatal("a label that was given does not count")
		}
	}
}
