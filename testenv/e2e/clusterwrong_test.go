//go:build linux && e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// wrongThing is a mistake of an operator at edge, or something that a cluster lacks.
type wrongThing struct {
	name string
	make func(*clusters)
	// fix undoes it; nil if the next one continues from here.
	fix func(*clusters)
	// code and the following must appear in the verdict of check, in an event, and in a condition
	// of the Peer, if it is about one.
	code  string
	words []string
	peer  string
}

// wrongThings are independent unless stated; those that remove definitions come last.
func wrongThings() []wrongThing {
	values := func(more ...string) func(*clusters) {
		return func(c *clusters) { c.edge.upgrade(release, gatewayNamespace, append(c.edgeValues(), more...)...) }
	}
	ingress := fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: %s}
spec: {defaultBackend: {service: {name: %s, port: {number: 51820}}}}
`, gatewayNamespace, release)
	return append(identityThings(), []wrongThing{
		{"NodePort with a private node address", values("service.type=NodePort"), values(), "PST0421", []string{edgeNode, "advertise"}, ""},
		{"LoadBalancer pending", values("service.type=LoadBalancer"), values(), "PST0420", []string{release, "NodePort"}, ""},
		{"Ingress for the gateway", func(c *clusters) { c.edge.apply(ingress, "apply", "-f", "-") },
			func(c *clusters) { c.edge.apply(ingress, "delete", "-f", "-") }, "PST0424", []string{"UDP", "kubectl delete ingress web"}, ""},
		{"API server's certificate for another name",
			func(c *clusters) {
				c.cloud.upgrade(release, gatewayNamespace, append(c.cloudValues(), "services.apiServer.serverName=wrong.example")...)
			},
			func(c *clusters) { c.cloud.upgrade(release, gatewayNamespace, c.cloudValues()...) },
			"PST0502", []string{"wrong.example"}, "cloud"},
		{"two Peers with one key",
			func(c *clusters) {
				c.edge.apply(fmt.Sprintf("apiVersion: postern.dev/v1alpha1\nkind: Peer\nmetadata: {name: twin, namespace: %s}\nspec: {publicKey: %q}\n",
					gatewayNamespace, c.edge.peer("cloud").Spec.PublicKey), "apply", "-f", "-")
			},
			func(c *clusters) { c.edge.kubectl("delete", "peer", "-n", gatewayNamespace, "twin") },
			"PST0724", []string{"cloud", "kubectl"}, "twin"},
		{"RBAC missing",
			// Its first rule is that for Peers; without any right there could be no event either.
			// A running watch continues without the right, so the gateway is restarted.
			func(c *clusters) {
				c.edge.kubectl("patch", "role", "-n", gatewayNamespace, release, "--type=json", "-p", `[{"op":"remove","path":"/rules/0"}]`)
				c.edge.kubectl("delete", "pod", "-n", gatewayNamespace, release+"-0")
			}, values(),
			"PST0721", []string{"helm upgrade"}, ""},
		{"CRD missing",
			func(c *clusters) { c.edge.kubectl("delete", "crd", "tickets.postern.dev") }, values(),
			"PST0720", []string{"tickets"}, ""},
	}...)
}

// testWrongThings makes each mistake and checks that it is named, with its fix.
func testWrongThings(t *testing.T, c *clusters) {
	// A refused pod cannot report anything itself, so helm does.
	_, err := c.edge.Helm(within(t, patience), c.edge.helm, "upgrade", release, chartFolder, "-n", gatewayNamespace, "--reuse-values", "--set", "hostPort=51820")
	if err == nil || !containsAll(err.Error(), `enforces Pod Security "restricted"`, "service.type") {
		t.Errorf("a hostPort in a restricted namespace: got %v, want it refused, with what to do instead", err)
	}
	// Begun now for identityThings: it is tried three times within 40 s.
	c.edge.join("taken", c.branch.invite("taken", ""), "name: cloud")
	for _, w := range wrongThings() {
		t.Run(w.name, func(t *testing.T) {
			c := c.as(t)
			w.make(c)
			c.edge.waitVerdict(w)
			c.edge.waitEvent(w.code)
			if w.peer != "" {
				c.edge.waitPeer(w.peer, "told of "+w.code, func(p peerObject) bool {
					for _, condition := range p.Status.Conditions {
						if condition.Status != "True" && strings.Contains(condition.Message, w.code) {
							return true
						}
					}
					return false
				})
			}
			if w.fix == nil {
				return
			}
			w.fix(c)
			eventually(within(t, patience), t, "the verdict is gone", func() (bool, string) {
				v, ok := c.edge.verdict(w.code)
				return !ok, fmt.Sprint(v)
			})
		})
	}
}

// verdict returns the check with a code and words from `postern check` at the active pod. Without
// one it returns another with the code, which ok does not count.
func (c *cluster) verdict(code string, words ...string) (found api.Check, ok bool) {
	c.t.Helper()
	pod := c.activePod()
	if pod == "" {
		return api.Check{}, false
	}
	out, err := c.Kubectl(within(c.t, patience), "", inside(pod, "/postern", "check", "-o", "json")...)
	if out == "" {
		c.t.Logf("%s: postern check: %v", c.name, err) // it exits 1 if it finds something
		return api.Check{}, false
	}
	var report api.CheckReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		c.t.Fatalf("%v in %q", err, out)
	}
	for _, check := range report.Checks {
		if check.Code != code {
			continue
		}
		if found = check; containsAll(check.Cause+" "+check.Fix, words...) {
			return check, true
		}
	}
	return found, false
}

func (c *cluster) waitVerdict(w wrongThing) {
	c.t.Helper()
	// The previous one may have had the same code, with other words.
	eventually(within(c.t, patience), c.t, fmt.Sprintf("check finds %s with %q", w.code, w.words), func() (bool, string) {
		found, ok := c.verdict(w.code, w.words...)
		return ok && found.Cause != "" && found.Fix != "", fmt.Sprintf("cause %q, fix %q", found.Cause, found.Fix)
	})
}

// waitEvent waits until an event in the gateway's namespace names the code.
func (c *cluster) waitEvent(code string) {
	c.t.Helper()
	err := c.WaitFor(within(c.t, patience), "/api/v1/namespaces/"+gatewayNamespace+"/events", func(b []byte) bool {
		return strings.Contains(string(b), code)
	})
	if err != nil {
		c.t.Errorf("%s: no event has %s: %v", c.name, code, err)
	}
}
