package peers

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// source is whose problems of the gateway these are.
const source = "peers"

// asStatus is errors.As for what an API server answered.
func asStatus(err error, status *apierrors.APIStatus) bool { return errors.As(err, status) }

// forbidden reads what the API server says of a missing right.
var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\w+) resource "([^"]*)"`)

// Problem is what a failed request says of the gateway and its cluster.
func Problem(err error, resource, namespace string) check.OwnProblem {
	p := check.Params{}
	p.Resource, p.Namespace = resource, namespace
	var status apierrors.APIStatus
	if !asStatus(err, &status) {
		p.Detail = err.Error()
		return check.OwnProblem{Name: "cluster", Code: check.ClusterSilent, Params: p}
	}
	s := status.Status()
	switch {
	case apierrors.IsNotFound(err) && (s.Details == nil || s.Details.Name == ""):
		return check.OwnProblem{Name: "cluster", Code: check.CRDMissing, Params: p}
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		p.Verbs = "get, list, watch"
		p.Resource = qualified(resource)
		if m := forbidden.FindStringSubmatch(s.Message); m != nil {
			p.Verbs, p.Resource = m[2], qualified(m[3])
			p.Account = strings.TrimPrefix(m[1], "system:serviceaccount:")
		} else {
			p.Detail = s.Message
		}
		return check.OwnProblem{Name: "cluster", Code: check.ClusterForbidden, Params: p}
	case s.Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err):
		p.Detail = s.Message
		return check.OwnProblem{Name: "cluster", Code: check.ClusterSilent, Params: p}
	}
	p.Detail = s.Message
	return check.OwnProblem{Name: "cluster", Code: check.ClusterForbidden, Params: p}
}

// qualified is a resource as kubectl wants it.
func qualified(resource string) string {
	name, sub, _ := strings.Cut(resource, "/")
	switch name {
	case v1alpha1.PeerResource, v1alpha1.TicketResource:
		name += "." + v1alpha1.Group
	}
	if sub != "" {
		return name + "/" + sub
	}
	return name
}

// troubles are the problems that requests of different kinds have at present.
type troubles struct {
	now  map[string]check.OwnProblem // by what was asked
	told map[string]check.OwnProblem
}

// note remembers how requests of a kind go; nil is well.
func (t *troubles) note(what, resource, namespace string, err error, now time.Time) {
	if err == nil {
		delete(t.now, what)
		return
	}
	p := Problem(err, resource, namespace)
	p.Since = now
	if was, there := t.now[what]; there && was.Code == p.Code {
		p.Since = was.Since
	}
	t.now[what] = p
}
