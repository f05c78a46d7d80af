package peers

import (
	"os"
	"regexp"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// untouched returns the default status of the definition, for an object that no gateway has
// processed.
func untouched(t *testing.T) (is v1alpha1.PeerStatus) {
	t.Helper()
	text, err := os.ReadFile("../../../cmd/postern/deploy/chart/definitions/postern.dev_peers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	given, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "default")
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(given, &is); err != nil {
		t.Fatal(err)
	}
	return is
}

// argo returns what Argo CD shows for an object, by the check in the documentation.
func argo(t *testing.T, object map[string]any) string {
	t.Helper()
	text, err := os.ReadFile("../v1alpha1/README.md")
	if err != nil {
		t.Fatal(err)
	}
	check := regexp.MustCompile("(?s)resource.customizations.health.postern.dev_Peer: \\|\n(.*?)```").FindSubmatch(text)
	if check == nil {
		t.Fatal("the README has no health check")
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", luaValue(t, l, object))
	if err := l.DoString(string(check[1])); err != nil {
		t.Fatal(err)
	}
	health, ok := l.Get(-1).(*lua.LTable)
	if !ok || health.RawGetString("message").String() == "" {
		t.Fatalf("it gives %v", l.Get(-1))
	}
	return health.RawGetString("status").String()
}

func luaValue(t *testing.T, l *lua.LState, v any) lua.LValue {
	t.Helper()
	switch v := v.(type) {
	case nil:
		return lua.LNil
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case []any:
		list := l.NewTable()
		for _, x := range v {
			list.Append(luaValue(t, l, x))
		}
		return list
	case map[string]any:
		table := l.NewTable()
		for name, x := range v {
			table.RawSetString(name, luaValue(t, l, x))
		}
		return table
	}
	t.Fatalf("%T in an object", v)
	return nil
}

func TestWhatWaitsForAPeerSeesWhetherItIsReady(t *testing.T) {
	refused := statusOf(&candidate{object: object("cloud"), refused: found(object("cloud"), catalogue.PeerDuplicate, "")}, nil, v1alpha1.PeerStatus{}, noon)
	well := shown(with(func(*api.PeerStatus) {}))
	edited := *well.DeepCopy()
	edited.ObservedGeneration--
	for name, c := range map[string]struct {
		is   v1alpha1.PeerStatus
		want kstatus.Status
		argo string
	}{
		"no gateway has looked at it": {untouched(t), kstatus.InProgressStatus, "Progressing"},
		"the gateway is taking it":    {shown(nil), kstatus.InProgressStatus, "Progressing"},
		"it waits for approval":       {shown(&api.PeerStatus{State: api.StatePending}), kstatus.InProgressStatus, "Progressing"},
		"it is refused":               {refused, kstatus.FailedStatus, "Degraded"},
		"it connects":                 {shown(with(func(s *api.PeerStatus) { s.State = api.StateConnecting })), kstatus.InProgressStatus, "Progressing"},
		"it is connected":             {well, kstatus.CurrentStatus, "Healthy"},
		"it was edited":               {edited, kstatus.InProgressStatus, "Progressing"},
		"it denies us":                {shown(with(func(s *api.PeerStatus) { s.Reachability.Outbound.Auth = failing("PST0204", "denied") })), kstatus.InProgressStatus, "Progressing"},
		"the gateway has ended":       {stopped(well, noon), kstatus.InProgressStatus, "Progressing"},
	} {
		o := object("cloud")
		o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.PeerKind}
		o.Status = c.is
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := kstatus.Compute(&unstructured.Unstructured{Object: content}); err != nil || got.Status != c.want {
			t.Errorf("%s: kstatus says %+v, %v; want %s", name, got, err, c.want)
		}
		if got := argo(t, content); got != c.argo {
			t.Errorf("%s: Argo CD shows %s, want %s", name, got, c.argo)
		}
	}
}

func TestTheFirstStatusCountsFromWhenItIsWritten(t *testing.T) {
	is := statusOf(&candidate{object: object("cloud")}, nil, untouched(t), noon)
	for _, x := range is.Conditions {
		if !x.LastTransitionTime.Time.Equal(noon) {
			t.Errorf("%s changed at %v", x.Type, x.LastTransitionTime)
		}
	}
}

func TestWhenAPeerWasSeenStays(t *testing.T) {
	was := shown(with(func(s *api.PeerStatus) { s.LastHandshake = &noon }))
	refused := &candidate{object: object("cloud"), refused: found(object("cloud"), catalogue.PeerDuplicate, "")}
	for name, is := range map[string]v1alpha1.PeerStatus{
		"the gateway has just started": statusOf(&candidate{object: object("cloud")}, with(func(s *api.PeerStatus) { s.LastHandshake = nil }), was, noon.Add(time.Hour)),
		"it is refused":                statusOf(refused, nil, was, noon.Add(time.Hour)),
		"the gateway has ended":        stopped(was, noon.Add(time.Hour)),
	} {
		if is.LastSeen == nil || !is.LastSeen.Time.Equal(noon) {
			t.Errorf("%s: it was seen at %v", name, is.LastSeen)
		}
	}
}

func TestAGatewayThatEndsRefusesNothing(t *testing.T) {
	is := statusOf(&candidate{object: object("cloud"), refused: found(object("cloud"), catalogue.PeerDuplicate, "")}, nil, v1alpha1.PeerStatus{}, noon)
	for _, x := range stopped(is, noon).Conditions {
		if x.Type == v1alpha1.Stalled {
			t.Errorf("there is %+v", x)
		}
	}
}

func TestAPeerIsSaidToHaveBeenSeenSeldom(t *testing.T) {
	p := steadyPace()
	seen := func(at time.Time) v1alpha1.PeerStatus {
		return shown(with(func(s *api.PeerStatus) { s.LastHandshake = &at }))
	}
	is := v1alpha1.PeerStatus{}
	if !p.offer("a", &is, seen(noon), noon) || !is.LastSeen.Time.Equal(noon) {
		t.Fatalf("it was not written: %+v", is)
	}
	for after := time.Minute; after < seenEvery; after += time.Minute {
		if p.offer("a", &is, seen(noon.Add(after)), noon.Add(after)) {
			t.Errorf("it was written after %v", after)
		}
	}
	if !p.offer("a", &is, seen(noon.Add(seenEvery)), noon.Add(seenEvery)) {
		t.Errorf("it was not written after %v", seenEvery)
	}
	silent := with(func(s *api.PeerStatus) { s.State = api.StateConnecting })
	at := noon.Add(seenEvery + time.Minute)
	silent.LastHandshake = &at
	if !p.offer("a", &is, shown(silent), at.Add(time.Minute)) || !is.LastSeen.Time.Equal(at) {
		t.Errorf("a lost peer was last seen at %v, want %v", is.LastSeen, at)
	}
}
