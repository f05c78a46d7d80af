package objects

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/testenv/fakeclient"
)

// cluster has one Peer, whose status is applied, and changed by others.
type cluster struct {
	peer    v1alpha1.Peer
	version int
	writes  int
}

func newCluster() *cluster {
	c := &cluster{}
	c.peer.Name, c.peer.Namespace = "cloud", "postern"
	c.change("kubectl-create", func() {})
	return c
}

// change changes the object, as a field manager.
func (c *cluster) change(manager string, f func()) {
	before, _ := json.Marshal(c.peer)
	f()
	if after, _ := json.Marshal(c.peer); string(before) == string(after) && c.version > 0 {
		return // as an API server does
	}
	c.version++
	c.peer.ResourceVersion = fmt.Sprint(c.version)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	fields, _ := json.Marshal(c.peer.Status) // not in their form
	owned := metav1.NewFieldsV1(strings.NewReplacer(`"connected"`, "{}", `"failed"`, "{}", `"PST0112"`, "{}", `"PST0101"`, "{}").Replace(string(fields)))
	for i, e := range c.peer.ManagedFields {
		if e.Manager == manager {
			c.peer.ManagedFields[i].Time, c.peer.ManagedFields[i].FieldsV1 = &now, owned
			return
		}
		if manager == "" && e.Manager == FieldManager {
			c.peer.ManagedFields[i].FieldsV1 = owned
		}
	}
	if manager != "" { // else fields were only removed, which is not recorded
		c.peer.ManagedFields = append(c.peer.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Subresource: "status", Time: &now, FieldsV1: owned})
	}
}

func (c *cluster) answer(r *http.Request) (int, string) {
	var out any = metav1.PartialObjectMetadata{ObjectMeta: c.peer.ObjectMeta}
	if r.Method == http.MethodGet {
		if got := r.URL.Query().Get("fieldSelector"); got != "metadata.name=cloud" {
			return http.StatusBadRequest, "{}"
		}
		out = metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{out.(metav1.PartialObjectMetadata)}}
	} else {
		c.writes++
		var body v1alpha1.Peer
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &body)
		c.change(FieldManager, func() { c.peer.Status = body.Status })
		out = metav1.PartialObjectMetadata{ObjectMeta: c.peer.ObjectMeta}
	}
	raw, _ := json.Marshal(out)
	return http.StatusOK, string(raw)
}

// keep writes a status for a while whenever the object has another.
func (c *cluster) keep(t *testing.T, w *Writer, want v1alpha1.PeerStatus, d time.Duration, others func(i int)) {
	t.Helper()
	for i := range int(d / time.Second) {
		others(i)
		if seen := c.peer.DeepCopy(); !reflect.DeepEqual(seen.Status, want) && w.Wait(seen, want, time.Now()) == 0 {
			if err := w.ApplyStatus(t.Context(), seen, want); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
	}
}

// Another writer that changes an object back each time is no reason to write it for ever: it is
// written less and less often, and who that is is reported.
func TestWhatSomebodyKeepsChangingBackIsWrittenLessOftenAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		w := NewWriter(fakeclient.New(c.answer), "postern", "peers", "Peer")
		want := v1alpha1.PeerStatus{State: "connected", Code: "PST0112"}
		c.keep(t, w, want, 2*time.Hour, func(int) { c.change("argocd-controller", func() { c.peer.Status = v1alpha1.PeerStatus{} }) })
		if c.writes < revertsTold || c.writes > 35 { // three, six that double, and one every 5 min
			t.Errorf("%d writes in two hours", c.writes)
		}
		list := w.Reverts.Problems(time.Now())
		if len(list) != 1 || list[0].Code != catalogue.ObjectReverted || list[0].Params.Manager != "argocd-controller" || list[0].Params.Object != "Peer cloud" {
			t.Fatalf("the problems are %+v", list)
		}
		list[0].Params.Age = time.Since(list[0].Since)
		cause, fix := catalogue.Render(list[0].Code, list[0].Params)
		for text, part := range map[string]string{cause: "the field manager argocd-controller keeps changing what this gateway writes in namespace postern: Peer cloud (status)",
			fix.String(): "kubectl get peer cloud -n postern -o yaml --show-managed-fields"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in: %s", part, text)
			}
		}
		// It stops: the object is right at most 5 min later, and half an hour later it is over.
		c.keep(t, w, want, maxHold+time.Second, func(int) {})
		if c.peer.Status.State != want.State {
			t.Errorf("the object has %+v", c.peer.Status)
		}
		time.Sleep(revertsApart)
		if list := w.Reverts.Problems(time.Now()); len(list) > 0 {
			t.Errorf("when it is over: %+v", list)
		}
	})
}

// What a gateway writes because it has something else to say is no repair, whatever others change of
// the object meanwhile, and neither is one write after something was changed once or twice.
func TestWritesThatRepairNothingAreNotCounted(t *testing.T) {
	label := func(c *cluster, i int) {
		c.change("someone", func() { metav1.SetMetaDataLabel(&c.peer.ObjectMeta, "turn", fmt.Sprint(i)) })
	}
	for name, others := range map[string]func(c *cluster, want *v1alpha1.PeerStatus, i int){
		"another round trip, while someone changes a label": func(c *cluster, want *v1alpha1.PeerStatus, i int) {
			label(c, i)
			want.RTT = fmt.Sprintf("%dms", i)
			want.Conditions[0].Message = want.RTT
		},
		"another state, while someone changes a label": func(c *cluster, want *v1alpha1.PeerStatus, i int) {
			label(c, i)
			want.State = []string{"connected", "connecting"}[i%2]
		},
		"twice": func(c *cluster, _ *v1alpha1.PeerStatus, i int) {
			if i == 10 || i == 20 {
				c.change("kubectl-edit", func() { c.peer.Status = v1alpha1.PeerStatus{} })
			}
		},
		"rarely": func(c *cluster, _ *v1alpha1.PeerStatus, i int) {
			if time.Duration(i)*time.Second%(revertsApart+time.Second) == 0 {
				c.change("kubectl-edit", func() { c.peer.Status = v1alpha1.PeerStatus{} })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				w := NewWriter(fakeclient.New(c.answer), "postern", "peers", "Peer")
				want := v1alpha1.PeerStatus{State: "connected", Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}}
				for i := range 3 * 60 * 60 {
					if i%10 == 0 { // the watch is that late
						others(c, &want, i/10)
					}
					seen := c.peer.DeepCopy()
					if !reflect.DeepEqual(seen.Status, want) {
						if wait := w.Wait(seen, want, time.Now()); wait > 0 {
							t.Fatalf("it waits for %v", wait)
						}
						if err := w.ApplyStatus(t.Context(), seen, *want.DeepCopy()); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Second)
				}
				if list := w.Reverts.Problems(time.Now()); len(list) > 0 {
					t.Errorf("it is reported: %+v", list)
				}
			})
		})
	}
}

// Whoever changed an object last did it, and not who changed it before the gateway did.
func TestWhoChangedAnObject(t *testing.T) {
	at := func(manager, subresource string, second int64) metav1.ManagedFieldsEntry {
		when := metav1.Unix(second, 0)
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &when}
	}
	for name, c := range map[string]struct {
		list []metav1.ManagedFieldsEntry
		want string
	}{
		"after us":               {[]metav1.ManagedFieldsEntry{at("helm", "", 1), at(FieldManager, "", 2), at("argocd-controller", "", 3)}, "argocd-controller"},
		"in the same second":     {[]metav1.ManagedFieldsEntry{at("argocd-controller", "", 3), at(FieldManager, "", 3)}, "argocd-controller"},
		"before us":              {[]metav1.ManagedFieldsEntry{at("helm", "", 1), at(FieldManager, "", 2)}, FieldManager},
		"of another subresource": {[]metav1.ManagedFieldsEntry{at(FieldManager, "", 2), at("helm", "status", 3)}, FieldManager},
		"nobody known":           {nil, ""},
	} {
		if got := ChangedBy(c.list, ""); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What one field manager does in a namespace is one problem.
func TestOneProblemForEachFieldManager(t *testing.T) {
	now := time.Now()
	contested := func(manager string, times int) *written {
		return &written{at: now, last: now, first: now.Add(-time.Duration(times) * time.Minute), times: times, manager: manager}
	}
	r := Reverts{known: map[Target]*written{
		{Kind: "Service", Namespace: "shop", Name: "web"}:       contested("kustomize-controller", 4),
		{Kind: "EndpointSlice", Namespace: "shop", Name: "web"}: contested("kustomize-controller", 9),
		{Kind: "Service", Namespace: "shop", Name: "db"}:        contested("", 3),
		{Kind: "Service", Namespace: "shop", Name: "cache"}:     contested("helm", revertsTold-1),
	}}
	want := []check.OwnProblem{{Name: checkName, Code: catalogue.ObjectReverted, Since: now.Add(-3 * time.Minute)}, {Name: checkName, Code: catalogue.ObjectReverted, Since: now.Add(-9 * time.Minute)}}
	want[0].Params.ClusterParams = catalogue.ClusterParams{Namespace: "shop", Object: "Service db", Reverts: 3, Hold: firstHold}
	want[0].Params.Names = []string{"Service db"}
	want[1].Params.ClusterParams = catalogue.ClusterParams{Namespace: "shop", Object: "EndpointSlice web", Manager: "kustomize-controller", Reverts: 9, Hold: maxHold}
	want[1].Params.Names = []string{"EndpointSlice web", "Service web"}
	if got := r.Problems(now); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A status is as wanted whatever others' conditions are, and whatever passes.
func TestAStatusIsAsWantedWhateverOthersAddToIt(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, text string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: text, LastTransitionTime: metav1.Now()}
	}
	want := v1alpha1.PeerStatus{State: "connected", Conditions: []metav1.Condition{condition("Ready", metav1.ConditionTrue, "now")}}
	for name, c := range map[string]struct {
		have v1alpha1.PeerStatus
		same bool
	}{
		"a text":        {v1alpha1.PeerStatus{State: "connected", RTT: "2ms", Conditions: []metav1.Condition{condition("Ready", metav1.ConditionTrue, "before")}}, true},
		"another's":     {v1alpha1.PeerStatus{State: "connected", Conditions: []metav1.Condition{condition("Theirs", metav1.ConditionTrue, ""), condition("Ready", metav1.ConditionTrue, "")}}, true},
		"a condition":   {v1alpha1.PeerStatus{State: "connected", Conditions: []metav1.Condition{condition("Ready", metav1.ConditionFalse, "")}}, false},
		"none":          {v1alpha1.PeerStatus{State: "connected"}, false},
		"another state": {v1alpha1.PeerStatus{State: "failed", Conditions: want.Conditions}, false},
	} {
		if got := StatusSum(&v1alpha1.Peer{Status: c.have}, want) == ""; got != c.same {
			t.Errorf("%s: it is as wanted: %v", name, got)
		}
	}
}

// That a Peer's status is written for what passes, as it always is, does not make what was changed
// back last for ever; nor is a state held back that is another than what was changed back.
func TestWhatWasChangedBackIsOverAndHoldsNothingElseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		w := NewWriter(fakeclient.New(c.answer), "postern", "peers", "Peer")
		want := v1alpha1.PeerStatus{State: "connected"}
		c.keep(t, w, want, 20*time.Minute, func(int) { c.change("argocd-controller", func() { c.peer.Status = v1alpha1.PeerStatus{} }) })
		if len(w.Reverts.Problems(time.Now())) != 1 {
			t.Fatal("it is not reported")
		}
		want.State = "failed"
		c.keep(t, w, want, time.Second, func(int) {})
		if c.peer.Status.State != want.State {
			t.Errorf("another state is held back: the object has %q", c.peer.Status.State)
		}
		for i := range 6 {
			c.keep(t, w, want, maxHold+time.Second, func(int) {})
			want.RTT = fmt.Sprintf("%dms", i)
			c.keep(t, w, want, 2*maxHold, func(int) {})
		}
		if list := w.Reverts.Problems(time.Now()); len(list) > 0 {
			t.Errorf("it has stood for 90 min: %+v", list)
		}
	})
}

// Who deletes an object and makes it again has not changed back what the gateway wrote of the other.
func TestAnObjectMadeAgainWasNotChangedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		w := NewWriter(fakeclient.New(c.answer), "postern", "peers", "Peer")
		c.keep(t, w, v1alpha1.PeerStatus{State: "connected"}, 20*time.Minute, func(i int) {
			if i%60 == 0 {
				c.change("kubectl-create", func() { c.peer.UID, c.peer.Status = types.UID(fmt.Sprint(i)), v1alpha1.PeerStatus{} })
			}
		})
		if list := w.Reverts.Problems(time.Now()); len(list) > 0 || c.writes != 20 {
			t.Errorf("%d writes; the problems are %+v", c.writes, list)
		}
	})
}

// A watch that is late shows what the gateway has changed already. Nobody has changed it back.
func TestALateWatchIsNoRevert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		w := NewWriter(fakeclient.New(c.answer), "postern", "peers", "Peer")
		late := c.peer.DeepCopy()
		for i := range 10 {
			if err := w.ApplyStatus(t.Context(), late, v1alpha1.PeerStatus{State: "connected", RTT: fmt.Sprintf("%dms", i)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if list := w.Reverts.Problems(time.Now()); len(list) > 0 {
			t.Errorf("the problems are %+v", list)
		}
	})
}

// An API server records no field manager for what only removes fields: the gateway's own entry loses
// them. That is no other gateway.
func TestWhoRemovesFieldsIsUnknown(t *testing.T) {
	for name, want := range map[string]string{"a script that removes fields": "", "another gateway": FieldManager} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster()
			w := NewWriter(fakeclient.New(c.answer), "postern", "peers", "Peer")
			c.keep(t, w, v1alpha1.PeerStatus{State: "connected", Code: "PST0112"}, 5*time.Minute, func(int) {
				if want == FieldManager {
					c.change(FieldManager, func() { c.peer.Status = v1alpha1.PeerStatus{State: "failed", Code: "PST0101"} })
				} else {
					c.change("", func() { c.peer.Status.Code = "" })
				}
			})
			if list := w.Reverts.Problems(time.Now()); len(list) != 1 || list[0].Params.Manager != want {
				t.Errorf("%s: the problems are %+v", name, list)
			}
		})
	}
}

// However many objects are changed back, a problem names some.
func TestAProblemNamesSomeOfManyObjects(t *testing.T) {
	now := time.Now()
	r := Reverts{known: map[Target]*written{}}
	for i := range 1000 {
		r.known[Target{Kind: "Service", Namespace: "shop", Name: fmt.Sprintf("web-%03d", i)}] = &written{at: now, last: now, first: now, times: revertsTold}
	}
	got := r.Problems(now)
	if len(got) != 1 || len(got[0].Params.Names) != maxNamed+1 || got[0].Params.Names[0] != "Service web-000" || got[0].Params.Names[maxNamed] != "980 more" {
		t.Errorf("%d problems: %q", len(got), got[0].Params.Names)
	}
}
