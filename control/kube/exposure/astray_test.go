package exposure

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/fakeclient"
)

// A Service whose selector was changed, or whose pods have other labels, leads nowhere. One that
// leads to other pods may lead to a proxy in front of the gateway.
func TestAServiceWithoutPodsLeadsNowhere(t *testing.T) {
	labelled := func(labels map[string]string) *corev1.Pod {
		p := pod("n1")
		p.Labels = labels
		return p
	}
	ours := map[string]string{"app.kubernetes.io/name": "postern", "postern.dev/role": "active"}
	for name, c := range map[string]struct {
		selector map[string]string
		pods     []any
		others   int // pods that the selector matches, by the API server
		status   int
		was      bool
		want     bool
	}{
		"the chart's":              {ours, []any{labelled(ours)}, 0, 0, false, false},
		"a typo":                   {map[string]string{"app.kubernetes.io/name": "postern", "postern.dev/role": "actve"}, []any{labelled(ours)}, 0, 200, false, true},
		"a proxy":                  {map[string]string{"app": "envoy"}, []any{labelled(ours)}, 1, 200, false, false},
		"no selector":              {nil, []any{labelled(ours)}, 0, 0, false, false},
		"no active pod, for now":   {map[string]string{"app": "envoy"}, nil, 0, 0, false, false},
		"nobody may list its pods": {map[string]string{"app": "envoy"}, []any{labelled(ours)}, 0, 403, false, false},
		"no answer":                {map[string]string{"app": "envoy"}, []any{labelled(ours)}, 0, 500, false, false},
		"no answer any more":       {map[string]string{"app.kubernetes.io/name": "postern", "postern.dev/role": "actve"}, []any{labelled(ours)}, 0, 500, true, true},
	} {
		w := &Watcher{o: Options{Namespace: "ns"}, wasAstray: c.was, core: fakeclient.New(func(r *http.Request) (int, string) {
			body := fmt.Sprintf(`{"kind": "PodList", "apiVersion": "v1", "items": [%s]}`, strings.TrimSuffix(strings.Repeat("{},", c.others), ","))
			if r.URL.Query().Get("limit") != "1" {
				t.Errorf("%s: more pods than one are asked for: %s", name, r.URL)
			}
			switch {
			case c.status == 0:
				t.Errorf("%s: the API server is asked", name)
			case c.status == 403:
				body = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}`
			case c.status != 200:
				body = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError"}`
			}
			return c.status, body
		})}
		f := cluster(append(c.pods, service(corev1.ServiceTypeLoadBalancer, given(corev1.LoadBalancerIngress{IP: "203.0.113.9"}), func(s *corev1.Service) { s.Spec.Selector = c.selector }))...)
		f.astray = w.astray(t.Context(), f)
		d := derive(f, now)
		if f.astray != c.want || (len(d.Problems) > 0) != c.want || len(d.Endpoints) != 1 {
			t.Errorf("%s: astray: %v, want %v; problems %v, endpoints %v", name, f.astray, c.want, d.Problems, d.Endpoints)
		}
		for _, p := range d.Problems {
			cause, fix := catalogue.Render(p.Code, p.Params)
			if !strings.Contains(cause, "Service postern in namespace ns selects pods with the labels app.kubernetes.io/name=postern,postern.dev/role=actve, and there are none") ||
				!strings.Contains(fix.String(), "kubectl get pods -n ns --show-labels") {
				t.Errorf("%s: %s\n%s", name, cause, fix)
			}
		}
	}
}
