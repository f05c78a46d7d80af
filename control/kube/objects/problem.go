package objects

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// checkName is this gateway's check that shows these problems.
const checkName = "cluster"

// forbidden matches the API server's message about a missing right. Webhooks and policies quote in
// theirs whatever they like, but do not begin so.
var forbidden = regexp.MustCompile(`^[\w./-]+(?: "[^"]*")? is forbidden: User "([^"]*)" cannot (\w+) resource "([\w./-]*)"(?: in API group "([\w.-]*)")?`)

// account matches a ServiceAccount's user name.
var account = regexp.MustCompile(`^system:serviceaccount:([a-z0-9.-]+:[a-z0-9.-]+)$`)

// Problem returns the problem of a failed request for a resource.
func Problem(err error, resource, namespace string) check.OwnProblem {
	var p catalogue.Params
	p.Resource, p.Namespace = qualified(resource), namespace
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		p.Detail, p.Failure = err.Error(), unanswered(err)
		return check.OwnProblem{Name: checkName, Code: catalogue.ClusterSilent, Params: p}
	}
	s := status.Status()
	switch {
	case apierrors.IsNotFound(err) && !namesAnObject(err):
		p.Resource = resource
		return check.OwnProblem{Name: checkName, Code: catalogue.CRDMissing, Params: p}
	}
	if m := forbidden.FindStringSubmatch(s.Message); m != nil {
		p.Verbs, p.Resource = m[2], qualified(m[3])
		if group := m[4]; group != "" {
			p.Resource = grouped(m[3], group)
		}
		if a := account.FindStringSubmatch(m[1]); a != nil {
			p.Account = a[1]
		}
		return check.OwnProblem{Name: checkName, Code: catalogue.ClusterForbidden, Params: p}
	}
	p.Detail = s.Message
	if p.Failure = Failure(err); p.Failure == "" {
		p.Failure = unanswered(err)
		return check.OwnProblem{Name: checkName, Code: catalogue.ClusterSilent, Params: p}
	}
	return check.OwnProblem{Name: checkName, Code: catalogue.ClusterRefuses, Params: p}
}

// failures are what the API server's messages contain when something other than a missing right
// refuses a request. It has no reasons for these.
var failures = []struct {
	text string
	of   catalogue.Failure
}{
	{"failed calling webhook", catalogue.FailureWebhook},
	{"exceeded quota", catalogue.FailureQuota},
	{"failed quota", catalogue.FailureQuota},
	{"field is immutable when `immutable` is set", catalogue.FailureImmutable},
	{"denied the request", catalogue.FailureAdmission}, // a webhook
	{"denied request", catalogue.FailureAdmission},     // a ValidatingAdmissionPolicy
	{"violates PodSecurity", catalogue.FailureAdmission},
}

// Failure returns what refused a request; empty if nothing did, a right is missing, or the answer
// may be another in a moment.
func Failure(err error) catalogue.Failure {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || LacksRight(err) {
		return ""
	}
	text := status.Status().Message
	first, why := len(text), catalogue.Failure("") // what follows may be quoted
	for _, f := range failures {
		if i := strings.Index(text, f.text); i >= 0 && i < first {
			first, why = i, f.of
		}
	}
	if why != "" {
		return why
	}
	switch code := status.Status().Code; {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return catalogue.FailureEnding
	case apierrors.IsUnauthorized(err):
		return catalogue.FailureUnknown
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusConflict:
		return ""
	}
	return catalogue.FailureRejected
}

// unanswered returns why a request that nothing refused got no good answer; empty if that is not
// known.
func unanswered(err error) catalogue.Failure {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; {
		case code == http.StatusTooManyRequests:
			return catalogue.FailureBusy
		case code >= http.StatusInternalServerError:
			return catalogue.FailureBroken
		}
		return ""
	}
	var timeout net.Error
	switch bad, invalid := errors.AsType[x509.CertificateInvalidError](err); {
	case invalid && bad.Reason == x509.Expired:
		return catalogue.FailureExpired
	case errorIs[*tls.CertificateVerificationError](err):
		return catalogue.FailureCertificate
	case errors.Is(err, syscall.ECONNREFUSED):
		return catalogue.FailureRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return catalogue.FailureTimeout
	}
	return ""
}

func errorIs[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}

// Final reports whether a write that is tried again would fail again: it lacks a right, or
// something refuses it.
func Final(err error) bool {
	switch why := Failure(err); {
	case err == nil, apierrors.IsNotFound(err), why == catalogue.FailureUnknown: // a token is renewed
		return false
	case why != "":
		return true
	}
	return LacksRight(err)
}

// LacksRight reports whether a request was refused because a right is missing. [Problem] says which.
func LacksRight(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && forbidden.MatchString(status.Status().Message)
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
		return a.Code == b.Code && a.Params.Verbs == b.Params.Verbs && a.Params.Resource == b.Params.Resource && a.Params.Failure == b.Params.Failure
	})
	if same && t.begun {
		return nil, nil, false
	}
	seen := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(t.now)) {
		p := t.now[what]
		if key := string(p.Code) + p.Params.Verbs + p.Params.Resource + string(p.Params.Failure); !seen[key] {
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
