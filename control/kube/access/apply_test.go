package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/testenv/fakeclient"
)

// A quota or a webhook refuses a peer's Service: the gateway lacks no right, and must not ask for one.
func TestARefusedServiceIsNoMissingRight(t *testing.T) {
	answer := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
	}
	for name, c := range map[string]struct {
		err  error
		code catalogue.Code // empty: it is tried again soon
		fix  string
	}{
		"a quota": {answer(http.StatusForbidden, metav1.StatusReasonForbidden, `services "postern-cloud" is forbidden: exceeded quota: small, requested: services=1`),
			catalogue.ClusterRefuses, "kubectl describe quota -n postern"},
		"a webhook that is down": {answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "owner.example.net": connection refused`),
			catalogue.ClusterRefuses, "webhookconfigurations"},
		"no right": {answer(http.StatusForbidden, metav1.StatusReasonForbidden, `services is forbidden: User "system:serviceaccount:postern:gateway" cannot patch resource "services" in API group "" in the namespace "postern"`),
			catalogue.ClusterForbidden, "--verb=get,list,create,patch,delete --resource=services"},
		"no answer": {errors.New("connection refused"), "", ""},
	} {
		k := &Keeper{o: Options{Namespace: "postern", Account: "postern:gateway"}, kinds: []*kind{{name: "Service", resource: "services"}}, refused: map[id]check.OwnProblem{}}
		err := k.settled(object{id: id{"Service", "postern-cloud"}, peer: "cloud"}, c.err)
		got := k.found()
		if c.code == "" {
			if err == nil || len(got) > 0 {
				t.Errorf("%s: %v, %v; want a retry", name, err, got)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].Code != c.code || got[0].Name != NameAccess {
			t.Errorf("%s: %v, %+v", name, err, got)
			continue
		}
		cause, fix := catalogue.Render(got[0].Code, got[0].Params)
		if !strings.Contains(cause, "postern-cloud") || !strings.Contains(fix.String(), c.fix) {
			t.Errorf("%s: %s\n%s", name, cause, fix)
		}
	}
}

// A webhook that fails is reported, and may be back at any moment: nothing else would tell.
func TestWhatAFailedWebhookRefusedIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var up atomic.Bool
		made := make(chan struct{})
		client := fakeclient.New(func(r *http.Request) (int, string) {
			switch {
			case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/services"):
				return http.StatusOK, `{"metadata": {}, "items": []}`
			case r.Method == http.MethodGet:
				return http.StatusNotFound, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}`
			case !up.Load():
				return http.StatusInternalServerError, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError", "message": "Internal error occurred: failed calling webhook \"owner.example.net\": connection refused"}`
			}
			if made != nil {
				close(made)
				made = nil
			}
			return http.StatusOK, `{"metadata": {"uid": "1"}}`
		})
		told := make(chan []check.OwnProblem, 8)
		k := keeperOf(&gateway{peers: []api.PeerStatus{offering("cloud")}, ports: map[string]uint16{"registry": 5000, "apiServer": 6443}})
		k.o.OnProblems = func(list []check.OwnProblem) { told <- list }
		k.log, k.wake, k.every, k.grace = slog.New(slog.DiscardHandler), make(chan struct{}, 1), surveyEvery, startGrace
		for _, name := range []string{kindService, kindSecret, kindPolicy} {
			k.kinds = append(k.kinds, &kind{name: name, resource: "services", version: "v1", client: client})
		}
		done, there := make(chan struct{}), made
		go func() { defer close(done); k.Run(ctx) }()
		if list := <-told; len(list) == 0 || list[0].Params.Failure != catalogue.FailureWebhook {
			t.Errorf("the problems are %+v", list)
		}
		time.Sleep(5 * time.Second)
		up.Store(true)
		back := time.Now()
		<-there
		if took := time.Since(back); took > maxRetry {
			t.Errorf("it is made %v after the webhook is back, want %v at most", took, maxRetry)
		}
		if list := <-told; len(list) > 0 {
			t.Errorf("it is over, and told: %+v", list)
		}
		cancel()
		<-done
	})
}

// Somebody who changes a peer's Service back after each survey is reported, and one who only adds
// something to it is not.
func TestWhoChangesServicesBackIsReported(t *testing.T) {
	for name, c := range map[string]struct{ repairs, reported bool }{"changes it back": {true, true}, "adds to it": {false, false}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var version atomic.Int64
			k := keeperOf(&gateway{peers: []api.PeerStatus{offering("cloud")}, ports: map[string]uint16{"registry": 5000, "apiServer": 6443}})
			meta := func(name string) string {
				labels, _ := json.Marshal(k.labels("cloud"))
				return fmt.Sprintf(`{"metadata": {"name": %q, "uid": "1", "resourceVersion": "%d", "labels": %s,
					"managedFields": [{"manager": "postern", "time": "2026-03-01T12:00:00Z"}, {"manager": "helm", "time": "2026-03-01T12:00:01Z"}]}}`, name, version.Load(), labels)
			}
			client := fakeclient.New(func(r *http.Request) (int, string) {
				switch {
				case r.Method == http.MethodPatch && c.repairs && strings.Contains(r.URL.Path, "/services/"):
					version.Add(1)
				case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/services"):
					if r.URL.Query().Get("fieldSelector") == "" {
						version.Add(1) // by somebody else, since the last survey
					}
					return http.StatusOK, `{"metadata": {}, "items": [` + meta(serviceName("cloud")) + `]}`
				}
				return http.StatusOK, meta(path.Base(r.URL.Path))
			})
			told := make(chan []check.OwnProblem, 8)
			k.o.OnProblems = func(list []check.OwnProblem) { told <- list }
			k.log, k.wake, k.every, k.grace = slog.New(slog.DiscardHandler), make(chan struct{}, 1), surveyEvery, startGrace
			for _, name := range []string{kindService, kindSecret, kindPolicy} {
				k.kinds = append(k.kinds, &kind{name: name, resource: map[bool]string{true: "services", false: "others"}[name == kindService], version: "v1", client: client})
			}
			done := make(chan struct{})
			go func() { defer close(done); k.Run(ctx) }()
			var last []check.OwnProblem
			for end := time.After(5 * time.Minute); end != nil; {
				select {
				case last = <-told:
				case <-end:
					end = nil
				}
			}
			if reported := len(last) == 1 && last[0].Code == catalogue.ObjectReverted && last[0].Params.Manager == "helm"; reported != c.reported {
				t.Errorf("%s: the problems are %+v", name, last)
			}
			cancel()
			<-done
		})
	}
}

// The objects of a peer that comes and goes were changed back by nobody.
func TestWhoComesAndGoesIsNoRevert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version, there := 0, false
		k := keeperOf(&gateway{ports: map[string]uint16{"registry": 5000}})
		k.log, k.refused = slog.New(slog.DiscardHandler), map[id]check.OwnProblem{}
		client := fakeclient.New(func(r *http.Request) (int, string) {
			switch r.Method {
			case http.MethodPatch:
				there = true
			case http.MethodDelete:
				there = false
			case http.MethodGet:
				if !there {
					return http.StatusNotFound, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}`
				}
			}
			version++
			return http.StatusOK, fmt.Sprintf(`{"metadata": {"name": %q, "uid": "%d", "resourceVersion": "%d"}}`, path.Base(r.URL.Path), version, version)
		})
		k.kinds = []*kind{{name: kindService, resource: "services", version: "v1", client: client}, {name: kindSecret, off: true}, {name: kindPolicy, off: true}}
		for i := range 20 {
			var offers []offer
			if i%2 == 0 {
				offers = []offer{{peer: "cloud", ports: []port{{"registry", 5000, 41001}}, noSecret: true}}
			}
			if err := k.settle(t.Context(), offers); err != nil {
				t.Fatal(err)
			}
			if want := len(offers) > 0; there != want {
				t.Fatalf("turn %d: the Service is there: %v, want %v", i, there, want)
			}
			time.Sleep(10 * time.Second)
		}
		if list := k.found(); len(list) > 0 {
			t.Errorf("the problems are %+v", list)
		}
	})
}
