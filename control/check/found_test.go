package check

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func TestWhatOthersFoundIsShownAsOwnChecks(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := catalogue.Params{ClusterParams: catalogue.ClusterParams{Namespace: "postern", Object: "Service postern"}}
	got := foundElsewhere(Own{Found: []OwnProblem{
		{Name: "service", Code: catalogue.NoUDPWay, Params: catalogue.Params{ClusterParams: catalogue.ClusterParams{Object: "Ingress front"}}},
		{Name: "node-addresses", Code: catalogue.ExposureUnknown},
		{Name: "service", Code: catalogue.LoadBalancerPending, Params: pending, Since: now.Add(-95 * time.Second)},
	}}, now)
	want := []struct {
		name    string
		verdict api.Outcome
		code    catalogue.Code
		cause   string
	}{
		{"node-addresses", api.Warning, catalogue.ExposureUnknown, "this gateway may not"},
		{"service", api.Warning, catalogue.LoadBalancerPending, "Service postern in namespace postern is a LoadBalancer and has had no address for 1m35s"},
		{"service-PST0424", api.Error, catalogue.NoUDPWay, "Ingress front leads to the Service of this gateway"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d results, want %d", len(got), len(want))
	}
	for i, w := range want {
		v := got[i].Verdict()
		if got[i].Name != w.name || v.Verdict != w.verdict || v.Code != string(w.code) || !strings.HasPrefix(v.Cause, w.cause) {
			t.Errorf("got %s %s %s %q, want %+v", got[i].Name, v.Verdict, v.Code, v.Cause, w)
		}
		if v.Fix == "" {
			t.Errorf("%s: no fix: %+v", w.code, got[i])
		}
	}
}

// A check is identified by its name, so names must be unique.
func TestProblemsOfOneNameAreChecksOfTheirOwn(t *testing.T) {
	p := OwnProblem{Name: "peer-services", Code: catalogue.NameTaken}
	var names []string
	for _, r := range foundElsewhere(Own{Found: []OwnProblem{p, p, {Name: "peer-services", Code: catalogue.ClusterForbidden}, p}}, time.Now()) {
		names = append(names, r.Name)
	}
	if got, want := strings.Join(names, " "), "peer-services peer-services-PST0739 peer-services-PST0739-2 peer-services-PST0739-3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Names of objects come from the cluster. An invalid one is not offered to be pasted.
func TestOnlyNamesOfObjectsAreOfferedToBePasted(t *testing.T) {
	for object, want := range map[string]string{
		"Service postern":   "kubectl describe service postern -n",
		"Service $(reboot)": "kubectl describe service NAME -n",
		"":                  "kubectl describe service NAME -n",
	} {
		_, fix := catalogue.Render(catalogue.LoadBalancerPending, catalogue.Params{ClusterParams: catalogue.ClusterParams{Namespace: "ns", Object: object}})
		if !strings.Contains(fix.String(), want) {
			t.Errorf("%q: got %q, want %q in it", object, fix, want)
		}
	}
}

func TestARightThatIsMissingIsGivenWhereItIs(t *testing.T) {
	for _, c := range []struct {
		p    catalogue.ClusterParams
		want string
	}{
		{catalogue.ClusterParams{Account: "a:b", Verbs: "list, watch", Resource: "nodes"},
			"`kubectl create clusterrole postern-nodes --verb=list,watch --resource=nodes && kubectl create clusterrolebinding postern-nodes --clusterrole=postern-nodes --serviceaccount=a:b`"},
		{catalogue.ClusterParams{Account: "a:b", Verbs: "get", Resource: "services", Namespace: "a"},
			"`kubectl create role postern-services -n a --verb=get --resource=services && kubectl create rolebinding postern-services -n a --role=postern-services --serviceaccount=a:b`"},
	} {
		if _, fix := catalogue.Render(catalogue.ExposureUnknown, catalogue.Params{ClusterParams: c.p}); !strings.Contains(fix.String(), c.want) {
			t.Errorf("got %q, want %q in it", fix, c.want)
		}
	}
}
