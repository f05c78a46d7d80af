package controller

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API server at a URL; without a URL it gets no requests.
type cluster struct{ url string }

func (c cluster) Namespace() string { return "postern" }

func (c cluster) Group(version schema.GroupVersion, objects ...runtime.Object) (rest.Interface, error) {
	if c.url == "" {
		return nil, nil
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, objects...)
	metav1.AddToGroupVersion(scheme, version)
	return rest.RESTClientFor(&rest.Config{Host: c.url, APIPath: "/apis", ContentConfig: rest.ContentConfig{GroupVersion: &version,
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), ContentType: runtime.ContentTypeJSON}})
}

// told are the notifications to a gateway, in order.
type told struct {
	source string
	list   []check.OwnProblem
}

type gateway struct{ told chan told }

func (gateway) OnChange(func()) {}

func (g gateway) SetProblems(source string, list []check.OwnProblem) { g.told <- told{source, list} }

func controller(t *testing.T, url string) (*Controller[*v1alpha1.Peer], gateway) {
	t.Helper()
	g := gateway{make(chan told, 16)}
	c, err := New(Options[*v1alpha1.Peer]{
		Cluster: cluster{url}, Gateway: g, Name: "edge", Object: &v1alpha1.Peer{}, List: &v1alpha1.PeerList{},
		Kind: v1alpha1.PeerKind, Resource: v1alpha1.PeerResource, Source: "test", Gather: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, g
}

// While the controller runs, unreadable objects are a problem of the gateway.
func TestARefusalIsTheGatewaysProblemUntilTheEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `peers.postern.dev is forbidden: User "system:serviceaccount:postern:gateway" cannot list resource "peers" in API group "postern.dev" in the namespace "postern"`})
	}))
	defer server.Close()
	c, g := controller(t, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	done, beside := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, func(ctx context.Context) time.Duration {
			select {
			case <-beside: // a later turn
			default:
				close(beside)
				c.Go(func() { <-ctx.Done(); g.told <- told{source: "beside"} })
			}
			return time.Hour // the mirror triggers it again
		})
	}()
	for x := range g.told {
		if len(x.list) > 0 {
			if x.source != "test" || x.list[0].Code != catalogue.ClusterForbidden {
				t.Errorf("told %+v", x)
			}
			break
		}
	}
	cancel()
	<-done
	left := map[string]bool{}
	for len(g.told) > 0 {
		x := <-g.told
		left[x.source] = len(x.list) == 0
	}
	if !left["test"] || !left["beside"] {
		t.Errorf("at the end: told %v, want the problem withdrawn, and what ran beside awaited", left)
	}
}

func TestProblemsAreToldWhenTheyAreOthers(t *testing.T) {
	c, g := controller(t, "")
	problem := func(peer, detail string) []check.OwnProblem {
		p := check.OwnProblem{Code: catalogue.PeerRefused}
		p.Params.Peer, p.Params.Detail = peer, detail
		return []check.OwnProblem{p}
	}
	for i, step := range []struct {
		list []check.OwnProblem
		told bool
	}{{nil, false}, {problem("a", "x"), true}, {problem("a", "x"), false}, {problem("b", "x"), true}, {problem("b", "y"), true}, {nil, true}, {nil, false}} {
		c.SetProblems("refused", step.list)
		if got := len(g.told) == 1; got != step.told {
			t.Errorf("step %d: told %v, want %v", i, got, step.told)
		}
		for len(g.told) > 0 {
			<-g.told
		}
	}
}

func TestAPauseGrowsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		for i, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
			if got := p.Hold(); got != want*time.Second || p.Until != time.Now().Add(got) {
				t.Errorf("pause %d: got %v until %v, want %v s", i+1, got, p.Until, int(want))
			}
		}
		p.End()
		if got := p.Hold(); got != firstPause {
			t.Errorf("after its end: got %v, want %v", got, firstPause)
		}
	})
}
