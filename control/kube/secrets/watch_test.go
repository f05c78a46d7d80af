package secrets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

// watched runs a scene with a gateway's backend that watches its Secrets, in virtual time.
func watched(t *testing.T, scene func(t *testing.T, v *vault, b *Backend, told func() []check.OwnProblem)) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault()
		b := backend(t, v, "a")
		b.namespace = "tenant"
		load(t, b)
		save(t, b, "private.key", "k")
		save(t, b, "peers.json", "p")
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Pointer[[]check.OwnProblem]
		told.Store(new([]check.OwnProblem))
		go b.Watch(ctx, func(list []check.OwnProblem) { told.Store(&list) })
		scene(t, v, b, func() []check.OwnProblem { synctest.Wait(); return *told.Load() })
		cancel()
		synctest.Wait()
	})
}

func (v *vault) remove(names ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range names {
		delete(v.objects, name)
	}
}

func (v *vault) writes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.version
}

// file returns a file in a Secret; empty if there is none.
func (v *vault) file(name, file string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x := v.objects[name]; x != nil {
		return string(x.Data[file])
	}
	return ""
}

func TestSecretsThatAreDeletedAreMadeAgain(t *testing.T) {
	watched(t, func(t *testing.T, v *vault, _ *Backend, told func() []check.OwnProblem) {
		v.remove("postern-state-key", "postern-state-peers")
		time.Sleep(watchEvery)
		list := told()
		if key, peers := v.file("postern-state-key", "private.key"), v.file("postern-state-peers", "peers.json"); key != "k" || peers != "p" {
			t.Errorf("the Secrets have %q and %q", key, peers)
		}
		if len(list) != 1 || list[0].Code != catalogue.StateDeleted || len(list[0].Params.Names) != 2 || list[0].Since.IsZero() {
			t.Errorf("got problems %+v", list)
		}
		if _, fix := catalogue.Render(list[0].Code, list[0].Params); !strings.Contains(fix.String(), "`postern state backup -n tenant --release postern -f postern-state.yaml`") {
			t.Errorf("got the fix %s", fix)
		}
		time.Sleep(reportedFor - watchEvery)
		if list := told(); len(list) != 1 {
			t.Errorf("within the hour: got problems %+v", list)
		}
		time.Sleep(watchEvery)
		if list := told(); len(list) != 0 {
			t.Errorf("an hour later it is still told: %+v", list)
		}
	})
}

func TestADeletedSecretWaitsForTheAPIServer(t *testing.T) {
	watched(t, func(t *testing.T, v *vault, _ *Backend, told func() []check.OwnProblem) {
		v.remove("postern-state-key")
		v.mu.Lock()
		v.fault = func(int) (error, bool) { return errors.New("connection refused"), false }
		v.mu.Unlock()
		time.Sleep(10 * watchEvery)
		if list := told(); len(list) != 0 {
			t.Errorf("without an answer: got problems %+v", list)
		}
		v.mu.Lock()
		v.fault = nil
		v.mu.Unlock()
		time.Sleep(watchEvery)
		if list := told(); len(list) != 1 || v.file("postern-state-key", "private.key") != "k" {
			t.Errorf("got problems %+v and key %q", list, v.file("postern-state-key", "private.key"))
		}
	})
}

func TestWhatIsChangedByHandIsWrittenOver(t *testing.T) {
	watched(t, func(t *testing.T, v *vault, _ *Backend, told func() []check.OwnProblem) {
		v.edit("postern-state-key", func(x *corev1.Secret) {
			x.Data["private.key"] = []byte("x")
			x.Labels["team"] = "net"
			x.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Time: &metav1.Time{Time: time.Now()}}}
		})
		time.Sleep(watchEvery)
		list := told()
		v.mu.Lock()
		team := v.objects["postern-state-key"].Labels["team"]
		v.mu.Unlock()
		if v.file("postern-state-key", "private.key") != "k" || team != "net" || len(list) != 1 || list[0].Code != catalogue.StateDeleted || list[0].Params.Names[0] != "postern-state-key" || list[0].Params.Manager != "kubectl-edit" {
			t.Errorf("got key %q, label %q, problems %+v", v.file("postern-state-key", "private.key"), team, list)
		}
		writes := v.writes()
		time.Sleep(10 * watchEvery)
		if v.writes() != writes {
			t.Error("unchanged Secrets are written")
		}
		// Who only removes something gets no entry in managedFields.
		v.edit("postern-state-key", func(x *corev1.Secret) {
			delete(x.Data, "private.key")
			x.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "postern", Time: &metav1.Time{Time: time.Now()}}}
		})
		time.Sleep(watchEvery)
		if list := told(); len(list) != 1 || list[0].Params.Manager != "" {
			t.Errorf("somebody removes the key: problems %+v", list)
		}
	})
}

// A write that got no answer may have arrived, and is no change by somebody else, however long the
// API server was away. Nor is one whose answer says that the storage gave none.
func TestAWriteWithoutAnAnswerIsNobodyElses(t *testing.T) {
	for name, lost := range map[string]error{
		"no answer": errors.New("connection reset by peer"),
		"of etcd": &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown,
			Message: "etcdserver: request timed out"}},
	} {
		for _, away := range []time.Duration{0, 5 * time.Minute} {
			t.Run(fmt.Sprintf("%s, away for %s", name, away), func(t *testing.T) {
				watched(t, func(t *testing.T, v *vault, b *Backend, told func() []check.OwnProblem) {
					fail := func(f func(int) (error, bool)) {
						v.mu.Lock()
						defer v.mu.Unlock()
						v.fault = f
					}
					fail(func(int) (error, bool) { return lost, true })
					if err := b.Save(t.Context(), "peers.json", []byte("more")); err == nil {
						t.Error("it is kept without an answer")
					}
					if got := v.file("postern-state-peers", "peers.json"); got != "more" {
						t.Fatalf("the write did not arrive: %q", got)
					}
					fail(func(int) (error, bool) { return errors.New("connection refused"), false })
					time.Sleep(away)
					fail(nil)
					time.Sleep(2 * watchEvery)
					if list := told(); len(list) > 0 || v.file("postern-state-peers", "peers.json") != "p" {
						t.Errorf("got problems %+v and %q", list, v.file("postern-state-peers", "peers.json"))
					}
					v.mu.Lock()
					v.objects["postern-state-peers"].Data["peers.json"] = []byte("other")
					v.version++
					v.objects["postern-state-peers"].ResourceVersion = strconv.Itoa(v.version)
					v.mu.Unlock()
					time.Sleep(2 * watchEvery)
					if list := told(); len(list) != 1 {
						t.Errorf("somebody changed it later: got problems %+v", list)
					}
				})
			})
		}
	}
}
