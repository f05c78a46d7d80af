package objects

import (
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// checkName is our own check that these problems are shown by.
const checkName = "cluster"

// forbidden reads what the API server says of a missing right.
var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\w+) resource "([^"]*)"(?: in API group "([^"]*)")?`)

// Problem is what a failed request for a resource says of the gateway and its cluster.
func Problem(err error, resource, namespace string) check.OwnProblem {
	var p catalogue.Params
	p.Resource, p.Namespace = qualified(resource), namespace
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		p.Detail = err.Error()
		return check.OwnProblem{Name: checkName, Code: catalogue.ClusterSilent, Params: p}
	}
	s := status.Status()
	switch {
	case apierrors.IsNotFound(err) && !namesAnObject(err):
		p.Resource = resource
		return check.OwnProblem{Name: checkName, Code: catalogue.CRDMissing, Params: p}
	case s.Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err):
		p.Detail = s.Message
		return check.OwnProblem{Name: checkName, Code: catalogue.ClusterSilent, Params: p}
	}
	if m := forbidden.FindStringSubmatch(s.Message); m != nil {
		p.Verbs, p.Resource = m[2], qualified(m[3])
		if group := m[4]; group != "" {
			p.Resource = grouped(m[3], group)
		}
		if account, ok := strings.CutPrefix(m[1], "system:serviceaccount:"); ok {
			p.Account = account
		}
	} else {
		p.Verbs, p.Detail = "use", s.Message
	}
	return check.OwnProblem{Name: checkName, Code: catalogue.ClusterForbidden, Params: p}
}

// qualified is a resource as kubectl wants it.
func qualified(resource string) string {
	name, _, _ := strings.Cut(resource, "/")
	if name == v1alpha1.PeerResource || name == v1alpha1.TicketResource {
		return grouped(resource, v1alpha1.Group)
	}
	return resource
}

// grouped is a resource of a group as kubectl wants it.
func grouped(resource, group string) string {
	name, sub, of := strings.Cut(resource, "/")
	if name += "." + group; of {
		return name + "/" + sub
	}
	return name
}

// Problems are the problems that requests of different kinds have currently. The zero value
// has none. It is used by one goroutine.
type Problems struct {
	now, told map[string]check.OwnProblem // by what was asked
	begun     bool
}

// Note remembers how requests of a kind go; a nil err is well.
func (t *Problems) Note(what, resource, namespace string, err error, now time.Time) {
	if err == nil {
		delete(t.now, what)
		return
	}
	p := Problem(err, resource, namespace)
	p.Since = now
	if was, there := t.now[what]; there && was.Code == p.Code {
		p.Since = was.Since
	}
	if t.now == nil {
		t.now = map[string]check.OwnProblem{}
	}
	t.now[what] = p
}

// Changed returns the problems, and those that were not there before, when they are others than
// the last time; changed is false when they are not.
func (t *Problems) Changed() (all, fresh []check.OwnProblem, changed bool) {
	same := maps.EqualFunc(t.now, t.told, func(a, b check.OwnProblem) bool {
		return a.Code == b.Code && a.Params.Verbs == b.Params.Verbs && a.Params.Resource == b.Params.Resource
	})
	if same && t.begun {
		return nil, nil, false
	}
	seen := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(t.now)) {
		p := t.now[what]
		if key := string(p.Code) + p.Params.Verbs + p.Params.Resource; !seen[key] {
			seen[key] = true
			all = append(all, p)
		}
		if was, there := t.told[what]; !there || was.Code != p.Code {
			fresh = append(fresh, p)
		}
	}
	t.told, t.begun = maps.Clone(t.now), true
	return all, fresh, true
}
