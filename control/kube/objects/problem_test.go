package objects

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		"a policy":             {answer(http.StatusForbidden, metav1.StatusReasonForbidden, "denied request", ""), catalogue.ClusterRefuses, "", "peers.postern.dev", ""},
		"a token that is none": {answer(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", ""), catalogue.ClusterRefuses, "", "peers.postern.dev", ""},
	} {
		got := Problem(c.err, "peers", "postern")
		if got.Code != c.code || got.Params.Verbs != c.verbs || got.Params.Resource != c.resource || got.Params.Account != c.account || got.Params.Namespace != "postern" {
			t.Errorf("%s: got %s %+v", name, got.Code, got.Params)
		}
	}
}

// A refusal is no missing right: to give the gateway one would change nothing. The messages are those
// of Kubernetes 1.34.
func TestWhatRefusesAWriteIsNamed(t *testing.T) {
	const forbids, invalid, internal = metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonInternalError
	terminating := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: forbids,
		Message: `secrets "cloud" is forbidden: unable to create new content in namespace postern because it is being terminated`,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
	for name, c := range map[string]struct {
		err   error
		why   catalogue.Failure
		final bool
		fix   string
	}{
		"a quota": {answer(http.StatusForbidden, forbids, `services "postern-cloud" is forbidden: exceeded quota: small, requested: services=1, used: services=5, limited: services=5`, "postern-cloud"),
			catalogue.FailureQuota, true, "kubectl describe quota -n postern"},
		"a webhook that denies": {answer(http.StatusForbidden, forbids, `admission webhook "owner.example.net" denied the request: every Service needs an owner`, ""),
			catalogue.FailureAdmission, true, "validatingwebhookconfigurations"},
		"a policy that denies": {answer(http.StatusUnprocessableEntity, invalid, `services "postern-cloud" is forbidden: ValidatingAdmissionPolicy 'owner' with binding 'all' denied request: no owner`, ""),
			catalogue.FailureAdmission, true, "validatingadmissionpolicies"},
		"a webhook that speaks of a quota": {answer(http.StatusForbidden, forbids, `admission webhook "cost.example.net" denied the request: the team has exceeded quota of 5`, ""),
			catalogue.FailureAdmission, true, "validatingwebhookconfigurations"},
		"a webhook that speaks of rights": {answer(http.StatusForbidden, forbids, `admission webhook "owner.example.net" denied the request: User "system:serviceaccount:a:b" cannot use resource "x; reboot"`, ""),
			catalogue.FailureAdmission, true, "validatingwebhookconfigurations"},
		"a policy that speaks of rights": {answer(http.StatusUnprocessableEntity, invalid, `services "postern-cloud" is forbidden: ValidatingAdmissionPolicy 'owner' with binding 'all' denied request: services "a" is forbidden: User "b" cannot get resource "secrets"`, ""),
			catalogue.FailureAdmission, true, "validatingadmissionpolicies"},
		"a webhook that is down": {answer(http.StatusInternalServerError, internal,
			`Internal error occurred: failed calling webhook "owner.example.net": failed to call webhook: Post "https://owner.tools.svc:443/?timeout=10s": dial tcp 10.96.7.7:443: connect: connection refused`, ""),
			catalogue.FailureWebhook, true, "start its pods"},
		"an immutable Secret": {answer(http.StatusUnprocessableEntity, invalid, "Secret \"postern-state-peers\" is invalid: data: Forbidden: field is immutable when `immutable` is set", "postern-state-peers"),
			catalogue.FailureImmutable, true, "kubectl delete secret postern-state-peers -n postern"},
		"a namespace that ends": {terminating, catalogue.FailureEnding, true, "wait until it is gone"},
		"no such account":       {answer(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", ""), catalogue.FailureUnknown, false, "kubectl get serviceaccounts -n postern"},
		"an invalid object":     {answer(http.StatusUnprocessableEntity, invalid, `Service "postern-cloud" is invalid: spec.clusterIPs[0]: Invalid value`, "postern-cloud"), catalogue.FailureRejected, true, "correct what the cause names"},
		"no right":              {answer(http.StatusForbidden, forbids, cannot, ""), "", true, ""},
		"a namespace missing":   {answer(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "postern" not found`, "postern"), catalogue.FailureRejected, false, ""},
		"an older version":      {answer(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified", "cloud"), "", false, ""},
		"an overload":           {answer(http.StatusInternalServerError, internal, "etcdserver: request timed out", ""), "", false, ""},
		"no answer":             {errors.New("connection refused"), "", false, ""},
		"no error":              {nil, "", false, ""},
	} {
		if got := Failure(c.err); got != c.why {
			t.Errorf("%s: refused by %q, want %q", name, got, c.why)
		}
		if got := Final(c.err); got != c.final {
			t.Errorf("%s: final: %v, want %v", name, got, c.final)
		}
		if c.fix == "" {
			continue
		}
		p := Problem(c.err, "services", "postern")
		p.Params.Object = "Secret postern-state-peers"
		cause, fix := catalogue.Render(p.Code, p.Params)
		if p.Code != catalogue.ClusterRefuses || !strings.Contains(cause, "refuses Secret postern-state-peers in namespace postern") ||
			!strings.Contains(cause, c.err.Error()) || !strings.Contains(fix.String(), c.fix) || strings.Contains(fix.String(), "role") {
			t.Errorf("%s: %s: %s\n%s", name, p.Code, cause, fix)
		}
	}
}

// What to do about an API server that gives no good answer depends on why: a NetworkPolicy makes no
// certificate invalid, and refuses no requests.
func TestWhyAnAPIServerGivesNoAnswerIsTold(t *testing.T) {
	asked := func(err error) error {
		return fmt.Errorf("failed to list: %w", &url.Error{Op: "Get", URL: "https://10.96.0.1:443/apis/postern.dev", Err: err})
	}
	verified := func(err error) error { return asked(&tls.CertificateVerificationError{Err: err}) }
	for name, c := range map[string]struct {
		err error
		why catalogue.Failure
		fix string
	}{
		"its certificate expired": {verified(x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired, Detail: "it ended on Monday"}), catalogue.FailureExpired, "`kubeadm certs renew apiserver`"},
		"its authority changed":   {verified(x509.UnknownAuthorityError{}), catalogue.FailureCertificate, "`kubectl get configmap kube-root-ca.crt -n postern -o yaml`"},
		"another name":            {verified(x509.HostnameError{Certificate: new(x509.Certificate), Host: "10.96.0.1"}), catalogue.FailureCertificate, "something else answers"},
		"nobody listens":          {asked(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), catalogue.FailureRefused, "check that the API server runs"},
		"nobody answers":          {asked(context.DeadlineExceeded), catalogue.FailureTimeout, "no NetworkPolicy blocks"},
		"it is overloaded":        {answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later", ""), catalogue.FailureBusy, "dump_priority_levels"},
		"its etcd is slow":        {answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: request timed out", ""), catalogue.FailureBroken, "/readyz?verbose"},
		"something else":          {errors.New("unexpected EOF"), "", "no NetworkPolicy blocks"},
	} {
		p := Problem(c.err, "peers", "postern")
		cause, fix := catalogue.Render(p.Code, p.Params)
		if p.Code != catalogue.ClusterSilent || p.Params.Failure != c.why || !strings.Contains(cause, p.Params.Detail) || !strings.Contains(fix.String(), c.fix) {
			t.Errorf("%s: got %s, %q, %s\n%s", name, p.Code, p.Params.Failure, cause, fix)
		}
		if blames := strings.Contains(fix.String(), "NetworkPolicy"); blames != (c.why == "" || c.why == catalogue.FailureTimeout) {
			t.Errorf("%s: blames a NetworkPolicy: %v\n%s", name, blames, fix)
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
	for _, message := range []string{`secrets "a" is forbidden: exceeded quota: small`, `admission webhook "w" denied the request`} {
		x.Note("write", "peers/status", "postern", answer(http.StatusForbidden, metav1.StatusReasonForbidden, message, ""), noon)
		if _, _, changed := x.Changed(); !changed {
			t.Errorf("that %s refuses it now is not told", message)
		}
	}
	x.Note("write", "", "", nil, noon)
	all, fresh, changed := x.Changed()
	if !changed || len(all) != 1 || len(fresh) != 0 || !all[0].Since.Equal(noon) {
		t.Errorf("one is over: %+v, %v, %v", all, fresh, changed)
	}
}
