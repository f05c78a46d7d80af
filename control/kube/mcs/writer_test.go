package mcs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/testenv/fakeclient"
)

// What an API server refuses briefly, like a starting one, is tried again soon and not reported.
// What it keeps refusing is reported, and tried less and less often.
func TestARefusalIsToldWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writer{log: slog.New(slog.DiscardHandler), refused: map[id]refusal{}}
		web := id{importKind, "shop", "web"}
		refused := error(apierrors.NewForbidden(schema.GroupResource{Resource: importKind.resource}, "web", nil))
		try := func(err error) {
			if err := w.noted(web, func(context.Context) error { return err })(t.Context()); err != nil {
				t.Errorf("a refusal is tried again like a failure: %v", err)
			}
		}
		begin, tries := time.Now(), 0
		for ; len(w.problems()) == 0; tries++ {
			try(refused)
			if again := w.again(time.Now()); tries == 0 && again != firstRetry || again > refusedAgain {
				t.Fatalf("after %d tries the next is %v later", tries+1, again)
			}
			time.Sleep(w.again(time.Now()) - time.Nanosecond)
			if !w.waits(web) {
				t.Error("it is tried all the time")
			}
			if time.Sleep(time.Nanosecond); w.waits(web) {
				t.Error("it is not tried when it is time to")
			}
		}
		if took := time.Since(begin); took < refusedTold || took > 2*refusedTold || tries > 6 {
			t.Errorf("it is told after %v and %d tries", took, tries)
		}
		for range 10 {
			try(refused)
		}
		if again := w.again(time.Now()); again != refusedAgain {
			t.Errorf("the next try is %v later, want %v", again, refusedAgain)
		}
		if try(nil); len(w.problems()) > 0 || w.waits(web) {
			t.Errorf("it is told when it is over: %+v", w.problems())
		}
		if try(refused); w.again(time.Now()) != firstRetry {
			t.Errorf("another refusal is tried again after %v", w.again(time.Now()))
		}
		// What was due has been tried, whatever the result, and the mirrors report on a taken name:
		// neither causes constant reconciling.
		time.Sleep(firstRetry)
		db := id{importKind, "shop", "db"}
		if w.refuse(db, taken(db, ""), 0); w.again(time.Now()) != refusedAgain {
			t.Errorf("a name that is taken is looked at again after %v", w.again(time.Now()))
		}
	})
}

// Nothing is applied again to an object that it did not change: someone else may own an item of a
// list that is not wanted, or an older definition may lack a field. A newer one makes no new version,
// so it is tried once in a while.
func TestWhatChangesNothingIsAppliedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		w := &writer{log: slog.New(slog.DiscardHandler), refused: map[id]refusal{}, applied: map[target]applied{}, clients: clients{version: v1beta1.SchemeGroupVersion,
			mcs: fakeclient.New(func(r *http.Request) (int, string) {
				sent = append(sent, r.Method+" "+path.Base(r.URL.Path))
				return http.StatusOK, "{}"
			})}}
		by := Options{Release: "postern"}
		condition := func(kind string) metav1.Condition {
			return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}
		}
		web := id{importKind, "shop", "web"}
		have := &v1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "1", Labels: by.labels()},
			Status:     v1beta1.ServiceImportStatus{Conditions: []metav1.Condition{condition("Conflict"), condition("Ready")}, Clusters: []v1beta1.ClusterStatus{{Cluster: "theirs"}}},
		}
		wanted := func(families ...corev1.IPFamily) object {
			return object{id: web, body: &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1beta1.ServiceImportSpec{IPFamilies: families}},
				status: &v1beta1.ServiceImportStatus{Conditions: []metav1.Condition{condition("Ready")}}}
		}
		turn := func(what string, o object, want ...string) {
			t.Helper()
			sent = nil
			steps, _, _ := w.plan(func(yield func(object) bool) { yield(o) }, map[id]mirror.Object{web: have}, by, func(mirror.Object) bool { return false })
			if failed := w.run(t.Context(), steps); failed || !slices.Equal(sent, want) {
				t.Errorf("%s: sent %q, want %q (failed: %v)", what, sent, want, failed)
			}
		}
		turn("the definition has no families", wanted(corev1.IPv4Protocol), "PATCH web")
		turn("the status is someone else's", wanted(corev1.IPv4Protocol), "PATCH status")
		turn("both", wanted(corev1.IPv4Protocol))
		turn("other families", wanted(corev1.IPv6Protocol), "PATCH web")
		turn("these too", wanted(corev1.IPv6Protocol))
		have = have.DeepCopy()
		have.ResourceVersion = "2"
		turn("someone has changed it", wanted(corev1.IPv6Protocol), "PATCH web")
		turn("and its status", wanted(corev1.IPv6Protocol), "PATCH status")
		turn("that is all", wanted(corev1.IPv6Protocol))
		time.Sleep(appliedAgain)
		turn("much later", wanted(corev1.IPv6Protocol), "PATCH web")
		turn("the status, too", wanted(corev1.IPv6Protocol), "PATCH status")
		turn("that is all again", wanted(corev1.IPv6Protocol))
	})
}

// An object that somebody changes back, or deletes, each time is not written for ever.
func TestWhatSomebodyKeepsChangingBackIsNotWrittenForEver(t *testing.T) {
	by := Options{Release: "postern"}
	web := id{importKind, "shop", "web"}
	for name, change := range map[string]func(version string) mirror.Object{
		"argocd-controller": func(version string) mirror.Object {
			return &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version, Labels: by.labels()}}
		},
		"": func(string) mirror.Object { return nil },
	} {
		t.Run("by "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version, writes := 0, 0
				next := func() string { version++; return strconv.Itoa(version) }
				w := &writer{log: slog.New(slog.DiscardHandler), refused: map[id]refusal{}, applied: map[target]applied{}, clients: clients{version: v1beta1.SchemeGroupVersion,
					mcs: fakeclient.New(func(r *http.Request) (int, string) {
						if r.Method == http.MethodGet {
							return http.StatusOK, `{"items": [{"metadata": {"managedFields": [{"manager": "postern", "time": "2026-03-01T12:00:00Z"}, {"manager": "argocd-controller", "time": "2026-03-01T12:00:01Z"}]}}]}`
						}
						writes++
						return http.StatusOK, `{"metadata": {"resourceVersion": "` + next() + `"}}`
					})}}
				for range 36_000 { // an hour, ten times a second
					there := map[id]mirror.Object{}
					if x := change(next()); x != nil {
						there[web] = x
					}
					steps, _, _ := w.plan(func(yield func(object) bool) {
						yield(object{id: web, body: &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1beta1.ServiceImportSpec{IPs: []string{"10.0.0.1"}}}})
					}, there, by, func(mirror.Object) bool { return false })
					if w.run(t.Context(), steps) {
						t.Fatal("a write has failed")
					}
					time.Sleep(100 * time.Millisecond)
				}
				if again := w.again(time.Now()); again > refusedAgain || again <= 0 {
					t.Errorf("the next look is %v later", again)
				}
				for tries := 0; w.reverts.Wait(target{web, ""}.written(), "", time.Now()) > 0; tries++ {
					if time.Sleep(w.again(time.Now())); tries > int(5*time.Minute/refusedAgain) {
						t.Fatal("nobody looks when it is time to write it")
					}
				}
				if writes < 4 || writes > 25 {
					t.Errorf("%d writes in an hour", writes)
				}
				if list := w.problems(); len(list) != 1 || list[0].Code != catalogue.ObjectReverted || list[0].Params.Manager != name || list[0].Params.Object != "ServiceImport web" {
					t.Errorf("the problems are %+v", list)
				}
			})
		})
	}
}

// What the gateway itself deletes and makes again, such as the EndpointSlice of a pod that is ready at
// times, was not changed back by anybody.
func TestWhatIsWantedAtTimesIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := Options{Release: "postern"}
		web := id{sliceKind, "shop", "web"}
		version := 0
		there := map[id]mirror.Object{}
		w := &writer{log: slog.New(slog.DiscardHandler), refused: map[id]refusal{}, applied: map[target]applied{}, clients: clients{version: v1beta1.SchemeGroupVersion,
			discovery: fakeclient.New(func(r *http.Request) (int, string) {
				version++
				if delete(there, web); r.Method == http.MethodPatch {
					x := &discoveryv1.EndpointSlice{}
					if err := json.NewDecoder(r.Body).Decode(x); err != nil {
						t.Error(err)
					}
					x.ResourceVersion, there[web] = strconv.Itoa(version), x
				}
				return http.StatusOK, fmt.Sprintf(`{"metadata": {"resourceVersion": "%d"}}`, version)
			})}}
		for i := range 20 {
			ready := i%2 == 0
			steps, _, _ := w.plan(func(yield func(object) bool) {
				if ready {
					yield(object{id: web, body: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: by.labels()}}})
				}
			}, there, by, func(mirror.Object) bool { return false })
			if w.run(t.Context(), steps) {
				t.Fatal("a write has failed")
			}
			if is := there[web] != nil; is != ready {
				t.Fatalf("turn %d: it is there: %v, want %v", i, is, ready)
			}
			time.Sleep(10 * time.Second)
		}
		if list := w.problems(); len(list) > 0 {
			t.Errorf("the problems are %+v", list)
		}
	})
}
