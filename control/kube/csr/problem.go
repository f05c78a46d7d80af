package csr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	answers "github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/tunnel/peer"
)

// problem is an error with a code for operators.
type problem struct {
	code catalogue.Code
	// object is the request's name; empty if it is not about one.
	object string
	detail string
	// verbs and resource are the missing permission.
	verbs, resource string
}

// Error returns the message for the log.
func (p *problem) Error() string {
	text := string(p.code) + ": "
	switch p.code {
	case catalogue.CSRDenied:
		text += "the cluster denied the request " + p.object
	case catalogue.CSRFailed:
		text += "the cluster's signer failed the request " + p.object
	case catalogue.CSRUnsigned:
		text += "nothing has signed the request " + p.object + " yet"
	case catalogue.CSRUnguarded:
		text += "the cluster would let this gateway's account have certificates for anyone; apply the policy"
	default:
		text += fmt.Sprintf("this gateway may not %s %s", p.verbs, p.resource)
	}
	if p.detail != "" {
		text += ": " + p.detail
	}
	return text
}

func denied(name, why string) error {
	return &problem{code: catalogue.CSRDenied, object: name, detail: why}
}
func failed(name, why string) error {
	return &problem{code: catalogue.CSRFailed, object: name, detail: why}
}
func unsigned(name string) error { return &problem{code: catalogue.CSRUnsigned, object: name} }

// unapproved matches what the plugin CertificateApproval says without the right to approve for a
// signer. It is a right, though not the one for a request.
var unapproved = regexp.MustCompile(`^[\w.]+ "[^"]*" is forbidden: user not permitted to approve requests`)

func lacksApproval(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && unapproved.MatchString(status.Status().Message)
}

// lacksRight distinguishes a refusal by RBAC from one by a policy.
func lacksRight(err error) bool { return answers.LacksRight(err) || lacksApproval(err) }

// refusedByPolicy reports a refusal by admission: a policy, a webhook or a plugin.
func refusedByPolicy(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && !lacksRight(err)
}

// explain adds the code to an error of the API server.
func explain(err error, name string) error {
	var p *problem
	switch {
	case errors.As(err, &p):
		return err
	case errors.Is(err, errForeign):
		return fmt.Errorf("CertificateSigningRequest %s: %w (delete it: kubectl delete csr %s)", name, err, name)
	case errors.Is(err, errSigner):
		return &problem{code: catalogue.CSRFailed, object: name, detail: err.Error()}
	case lacksRight(err):
		return missingRight(err)
	case refusedByPolicy(err):
		return &problem{code: catalogue.CSRDenied, object: name, detail: err.Error()}
	}
	return err
}

// missingRight returns the problem with the missing right.
func missingRight(err error) error {
	p := &problem{code: catalogue.CSRForbidden, verbs: "approve", resource: "signers/" + certificatesv1.KubeAPIServerClientSignerName, detail: err.Error()}
	if !lacksApproval(err) {
		right := answers.Problem(err, resource, "").Params
		p.verbs, p.resource = right.Verbs, right.Resource
	}
	return p
}

// transient reports whether an error may disappear soon.
func transient(err error) bool {
	var p *problem
	if errors.As(err, &p) || errors.Is(err, errForeign) || errors.Is(err, errSigner) || errors.Is(err, context.Canceled) {
		return false
	}
	if errors.Is(err, errReplaced) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError ||
		apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// guardName represents the guard among the names of peers, which are never empty.
const guardName = ""

// note records the result of a peer's request for the checks.
func (i *Issuer) note(name string, err error) {
	var p *problem
	if err != nil && !errors.As(err, &p) {
		return // errors without a code are transient
	}
	if p != nil && (p.code == catalogue.CSRUnguarded || p.code == catalogue.CSRForbidden) {
		name = guardName
	}
	i.mu.Lock()
	if p == nil {
		delete(i.problems, name)
	} else {
		i.problems[name] = check.OwnProblem{Name: "issuer", Code: p.code, Params: catalogue.Params{
			Peer: name, Detail: p.detail,
			ClusterParams: catalogue.ClusterParams{Object: p.object, Verbs: p.verbs, Resource: p.resource},
		}}
	}
	list := i.listLocked()
	i.mu.Unlock()
	i.report(list)
}

func (i *Issuer) noteGuard(err error) { i.note(guardName, err) }

// forget drops the problems of former peers.
func (i *Issuer) forget(peers map[string]peer.PublicKey) {
	i.mu.Lock()
	maps.DeleteFunc(i.problems, func(name string, _ check.OwnProblem) bool {
		_, ok := peers[name]
		return name != guardName && !ok
	})
	list := i.listLocked()
	i.mu.Unlock()
	i.report(list)
}

func (i *Issuer) listLocked() []check.OwnProblem {
	var out []check.OwnProblem
	for _, name := range slices.Sorted(maps.Keys(i.problems)) {
		out = append(out, i.problems[name])
	}
	return out
}

func (i *Issuer) report(list []check.OwnProblem) {
	if i.o.Report != nil {
		i.o.Report(list)
	}
}
