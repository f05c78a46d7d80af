package mcs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// Answers of a cluster's DNS, and the problems that they show.
func TestTheClustersDNSIsAsked(t *testing.T) {
	const web = "web.shop.svc.clusterset.local."
	addr := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for what, c := range map[string]struct {
		answer []netip.Addr
		err    error
		want   catalogue.Code
	}{
		"its address":    {answer: addr("10.96.0.7")},
		"one of its two": {answer: addr("::ffff:10.96.0.7", "fd00::7")},
		"another":        {answer: addr("10.96.0.8"), want: catalogue.ClustersetWrong},
		"no such name":   {err: &net.DNSError{Err: "no such host", IsNotFound: true}, want: catalogue.ClustersetMissing},
		"a failure":      {err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}, want: catalogue.ClustersetSilent},
		"nothing":        {err: context.DeadlineExceeded, want: catalogue.ClustersetSilent},
		"no resolver":    {err: errors.New("read udp: connection refused"), want: catalogue.ClustersetSilent},
	} {
		t.Run(what, func(t *testing.T) {
			var asked []string
			n := &names{lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
				asked = append(asked, host)
				return c.answer, c.err
			}}
			s := seen{now: time.Now(), imports: map[types.NamespacedName]*v1beta1.ServiceImport{}}
			for name, ips := range map[string][]string{"web": {"10.96.0.7"}, "headless": nil, "xyz": {"10.96.0.9"}, "aaa": {"10.96.0.1"}} {
				x := &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1beta1.ServiceImportSpec{IPs: ips}}
				s.imports[keyOf(x)] = x
			}
			ours := func(x *v1beta1.ServiceImport) bool { return x.Name != "aaa" }
			if wait := n.look(t.Context(), s, ours); wait != namesAgain || len(asked) > 0 {
				t.Fatalf("an import that has just been made is asked for: %v, next after %v", asked, wait)
			}
			s.now = s.now.Add(namesAgain)
			n.look(t.Context(), s, ours)
			n.answered(<-n.answer)
			wait := n.look(t.Context(), s, ours)
			if len(asked) != 1 || asked[0] != web {
				t.Fatalf("asked for %v, want %s", asked, web)
			}
			if c.want == "" && (len(n.problem) != 0 || wait != namesEvery) || c.want != "" && (len(n.problem) != 1 || n.problem[0].Code != c.want || wait != namesAgain) {
				t.Errorf("got %+v and the next question after %v, want %q", n.problem, wait, c.want)
			}
			if n.look(t.Context(), s, ours); len(asked) != 1 || n.answer != nil {
				t.Error("it asks all the time")
			}
			n.look(t.Context(), seen{now: s.now}, ours)
			if len(n.problem) > 0 {
				t.Error("it is still told when nothing is imported")
			}
		})
	}
}

// A DNS that does not answer delays nothing, and is not queried twice at a time.
func TestAClustersDNSThatIsSilentHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		n := &names{lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			asked++
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		x := &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1beta1.ServiceImportSpec{IPs: []string{"10.96.0.7"}}}
		look := func() time.Duration {
			return n.look(t.Context(), seen{now: time.Now(), imports: map[types.NamespacedName]*v1beta1.ServiceImport{keyOf(x): x}}, func(*v1beta1.ServiceImport) bool { return true })
		}
		time.Sleep(look())
		begin := time.Now()
		if again := look(); again != namesAgain || time.Since(begin) > 0 {
			t.Errorf("it took %v, and next is after %v", time.Since(begin), again)
		}
		look()
		n.answered(<-n.answer)
		if took := time.Since(begin); asked != 1 || took != namesPatience || len(n.problem) != 1 || n.problem[0].Code != catalogue.ClustersetSilent {
			t.Errorf("asked %d times, for %v: %+v", asked, took, n.problem)
		}
	})
}

// DNS drops an import when it is deleted. So an import that is being deleted is not queried, and
// the answer to a running query about it is ignored.
func TestTheClustersDNSIsNotAskedForWhatGoes(t *testing.T) {
	made := func(name string, ips ...string) *v1beta1.ServiceImport {
		return &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1beta1.ServiceImportSpec{IPs: ips}}
	}
	one := func(x *v1beta1.ServiceImport) map[types.NamespacedName]*v1beta1.ServiceImport {
		return map[types.NamespacedName]*v1beta1.ServiceImport{keyOf(x): x}
	}
	web := made("web", "10.96.0.7")
	all, none := func(*v1beta1.ServiceImport) bool { return true }, func(*v1beta1.ServiceImport) bool { return false }
	for what, then := range map[string]struct {
		imports map[types.NamespacedName]*v1beta1.ServiceImport
		stays   func(*v1beta1.ServiceImport) bool
	}{
		"it is being deleted":                {one(web), none},
		"it is gone":                         {nil, all},
		"another is there":                   {one(made("xyz", "10.96.0.7")), all},
		"it was made again, as another":      {one(made("web", "10.96.0.8")), all},
		"it was made again, without address": {one(made("web")), all},
	} {
		t.Run(what, func(t *testing.T) {
			asked := 0
			n := &names{lookup: func(context.Context, string, string) ([]netip.Addr, error) {
				asked++
				return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
			}}
			s := seen{now: time.Now(), imports: one(web)}
			n.look(t.Context(), s, all)
			s.now = s.now.Add(namesAgain)
			n.look(t.Context(), s, all)
			s.imports = then.imports
			n.look(t.Context(), s, then.stays)
			n.asking.Wait()
			if n.answer != nil || asked != 1 {
				t.Errorf("the answer is waited for: %v, after %d questions", n.answer, asked)
			}
			s.now = s.now.Add(namesAgain - time.Second)
			if n.look(t.Context(), s, then.stays); n.answer != nil || n.problem != nil {
				t.Errorf("it is asked for what has just been made, and told of %+v", n.problem)
			}
		})
	}
}

// If the gateway serves names, a cluster's DNS that does not forward is distinguished from one that
// forwards to nobody.
func TestTheGatewaysOwnServerIsAskedToo(t *testing.T) {
	const web, at = "web.shop.svc.clusterset.local.", "10.96.0.53"
	says := func(a string, err error) Lookup {
		return func(context.Context, string, string) ([]netip.Addr, error) {
			if err != nil {
				return nil, err
			}
			return []netip.Addr{netip.MustParseAddr(a)}, nil
		}
	}
	right, wrong := says("10.96.0.7", nil), says("10.96.0.8", nil)
	missing, silent := says("", &net.DNSError{Err: "no such host", IsNotFound: true}), says("", errors.New("connection refused"))
	for what, c := range map[string]struct {
		cluster, own  Lookup
		err           error // the Service is not there
		want          catalogue.Code
		server, tried string
	}{
		"all is well":                       {cluster: right, own: silent},
		"the cluster's does not forward":    {cluster: missing, own: right, want: catalogue.ClustersetMissing, server: at},
		"the cluster's has something else":  {cluster: wrong, own: right, want: catalogue.ClustersetWrong, server: at},
		"the cluster's does not answer":     {cluster: silent, own: right, want: catalogue.ClustersetSilent, server: at},
		"neither answers":                   {cluster: silent, own: silent, want: catalogue.ClustersetSilent, tried: at},
		"ours does not know it":             {cluster: missing, own: missing, want: catalogue.ClustersetSilent, tried: at},
		"ours is behind no Service":         {cluster: missing, err: errors.New("not found"), want: catalogue.ClustersetSilent, tried: at},
		"ours knows another address for it": {cluster: wrong, own: wrong, want: catalogue.ClustersetSilent, tried: at},
	} {
		n := &names{lookup: c.cluster, own: func(context.Context) (server, error) { return server{at: at, lookup: c.own}, c.err }}
		var got check.OwnProblem
		for _, p := range n.ask(t.Context(), web, []string{"10.96.0.7"}) {
			got = p
		}
		if got.Code != c.want || got.Params.Server != c.server || got.Params.Address != c.tried {
			t.Errorf("%s: got %q by server %q and %q, want %q, %q and %q", what, got.Code, got.Params.Server, got.Params.Address, c.want, c.server, c.tried)
		}
		cause, fix := catalogue.Render(got.Code, got.Params)
		if c.server != "" && !strings.Contains(fix.String(), "`forward . 10.96.0.53`") || c.tried != "" && !strings.Contains(cause, "this gateway's own DNS server (10.96.0.53)") {
			t.Errorf("%s: the cause is %s, and the fix is to %s", what, cause, fix)
		}
	}
}
