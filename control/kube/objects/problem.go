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

// checkName is this gateway's check that shows these problems.
const checkName = "cluster"

// forbidden matches the API server's message about a missing right.
var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\w+) resource "([^"]*)"(?: in API group "([^"]*)")?`)

// Problem returns the problem of a failed request for a resource.
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

// qualified returns a resource in kubectl's form.
func qualified(resource string) string {
	name, _, _ := strings.Cut(resource, "/")
	if name == v1alpha1.PeerResource || name == v1alpha1.TicketResource {
		return grouped(resource, v1alpha1.Group)
	}
	return resource
}

// grouped returns a group's resource in kubectl's form.
func grouped(resource, group string) string {
	name, sub, of := strings.Cut(resource, "/")
	if name += "." + group; of {
		return name + "/" + sub
	}
	return name
}

// Problems are the current problems with requests of different kinds. The zero value has none.
// Only one goroutine may use it.
type Problems struct {
	now, reported map[string]check.OwnProblem // by request kind
	begun         bool
}

// Note records the result of requests of a kind; a nil err is success.
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

// Changed returns the problems, and the new ones among them, if they differ from the last time;
// otherwise changed is false.
func (t *Problems) Changed() (all, fresh []check.OwnProblem, changed bool) {
	same := maps.EqualFunc(t.now, t.reported, func(a, b check.OwnProblem) bool {
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
		if was, there := t.reported[what]; !there || was.Code != p.Code {
			fresh = append(fresh, p)
		}
	}
	t.reported, t.begun = maps.Clone(t.now), true
	return all, fresh, true
}
