package objects

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/catalogue"
)

// answer returns an API server's error.
func answer(code int32, reason metav1.StatusReason, message, object string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{Name: object}}}
}

const cannot = `peers.postern.dev is forbidden: User "system:serviceaccount:postern:gateway" cannot patch resource "peers/status" in API group "postern.dev" in the namespace "postern"`

func TestWhatAnAPIServerRefusesHasACode(t *testing.T) {
	for name, c := range map[string]struct {
		err                      error
		code                     catalogue.Code
		verbs, resource, account string
	}{
		"nobody answers":   {errors.New("connection refused"), catalogue.ClusterSilent, "", "peers.postern.dev", ""},
		"it is overloaded": {answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later", ""), catalogue.ClusterSilent, "", "peers.postern.dev", ""},
		"it is broken":     {answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd", ""), catalogue.ClusterSilent, "", "peers.postern.dev", ""},
		"no such kind":     {answer(http.StatusNotFound, metav1.StatusReasonNotFound, "could not find the requested resource", ""), catalogue.CRDMissing, "", "peers", ""},
		"no right":         {answer(http.StatusForbidden, metav1.StatusReasonForbidden, cannot, ""), catalogue.ClusterForbidden, "patch", "peers.postern.dev/status", "postern:gateway"},
		"wrapped":          {fmt.Errorf("failed to list: %w", answer(http.StatusForbidden, metav1.StatusReasonForbidden, cannot, "")), catalogue.ClusterForbidden, "patch", "peers.postern.dev/status", "postern:gateway"},
		"no right elsewhere": {answer(http.StatusForbidden, metav1.StatusReasonForbidden, strings.NewReplacer("peers/status", "endpointslices", "postern.dev", "discovery.k8s.io").Replace(cannot), ""),
			catalogue.ClusterForbidden, "patch", "endpointslices.discovery.k8s.io", "postern:gateway"},
		"a policy":             {answer(http.StatusForbidden, metav1.StatusReasonForbidden, "denied request", ""), catalogue.ClusterForbidden, "use", "peers.postern.dev", ""},
		"a token that is none": {answer(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", ""), catalogue.ClusterForbidden, "use", "peers.postern.dev", ""},
	} {
		got := Problem(c.err, "peers", "postern")
		if got.Code != c.code || got.Params.Verbs != c.verbs || got.Params.Resource != c.resource || got.Params.Account != c.account || got.Params.Namespace != "postern" {
			t.Errorf("%s: got %s %+v", name, got.Code, got.Params)
		}
	}
}

func TestOnlyAnObjectThatIsGoneHasVanished(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"the object is gone": {answer(http.StatusNotFound, metav1.StatusReasonNotFound, "", "cloud"), true},
		"the kind is":        {answer(http.StatusNotFound, metav1.StatusReasonNotFound, "", ""), false},
		"it is another":      {answer(http.StatusConflict, metav1.StatusReasonConflict, "uid", "cloud"), true},
		"nobody answers":     {errors.New("connection refused"), false},
	} {
		if got := Vanished(c.err); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestProblemsAreToldOnceAndSinceWhen(t *testing.T) {
	var x Problems
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	silent := errors.New("connection refused from port 1")
	if all, fresh, changed := x.Changed(); !changed || len(all)+len(fresh) > 0 {
		t.Errorf("at first: %v, %v, %v; want to hear that all is well", all, fresh, changed)
	}
	x.Note("watch", "peers", "postern", silent, noon)
	x.Note("write", "peers/status", "postern", answer(http.StatusForbidden, metav1.StatusReasonForbidden, cannot, ""), noon)
	if all, fresh, changed := x.Changed(); !changed || len(all) != 2 || len(fresh) != 2 {
		t.Errorf("two troubles: %v, %v, %v", all, fresh, changed)
	}
	x.Note("watch", "peers", "postern", errors.New("connection refused from port 2"), noon.Add(time.Hour))
	if _, _, changed := x.Changed(); changed {
		t.Error("the same is told again")
	}
	x.Note("write", "", "", nil, noon)
	all, fresh, changed := x.Changed()
	if !changed || len(all) != 1 || len(fresh) != 0 || !all[0].Since.Equal(noon) {
		t.Errorf("one is over: %+v, %v, %v", all, fresh, changed)
	}
}
