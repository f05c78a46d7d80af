package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/objects"
)

// explain adds to a failed request what to do. It is an auth.ErrIssuer.
func (a accounts) explain(err error) error {
	if err == nil || errors.Is(err, auth.ErrIssuer) {
		return err
	}
	return fmt.Errorf("%w: %w%s", auth.ErrIssuer, err, a.fix(err))
}

// fix returns how to fix an error, in brackets; empty if the error says so itself.
func (a accounts) fix(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if errors.Is(err, errForeign) || errors.Is(err, context.Canceled) {
			return ""
		}
		return fmt.Sprintf(" (see that %s answers; it is asked again)", a.cluster.server)
	}
	switch why := objects.Failure(err); {
	case why == catalogue.FailureEnding:
		return fmt.Sprintf(" (the namespace %s is being deleted; when it is gone, make it again: kubectl create namespace %s)", a.namespace, a.namespace)
	case why == catalogue.FailureQuota:
		return fmt.Sprintf(" (raise the quota, which must admit one ServiceAccount per peer: kubectl describe quota -n %s)", a.namespace)
	case objects.LacksRight(err):
		return " (" + a.permit(err) + ")"
	case why == catalogue.FailureWebhook:
		return fmt.Sprintf(" (start the webhook that the cluster asks, or have it leave out the namespace %s)", a.namespace)
	case why == catalogue.FailureAdmission, apierrors.IsForbidden(err):
		return fmt.Sprintf(" (a policy of the cluster refuses it: admit ServiceAccounts named %s* in the namespace %s)", accountPrefix, a.namespace)
	case apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return fmt.Sprintf(" (kubectl create namespace %s; it is for the accounts of peers alone)", a.namespace)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf(" (%s does not know this gateway: in a pod, see that its ServiceAccount exists; beside a cluster, renew the kubeconfig in %s)", a.cluster.server, kubeconfigVariable)
	case transient(err):
		return " (it is asked again)"
	}
	return ""
}

// plainUser matches a user who may be named in a command as he is.
var plainUser = regexp.MustCompile(`User "([\w.:@-]+)"`)

// permit returns the commands that give the gateway the missing rights.
func (a accounts) permit(err error) string {
	role, verbs, what := "postern-peer-accounts", "get,list,watch,create,delete", resource
	if lacks := objects.Problem(err, resource, a.namespace).Params; lacks.Resource == resource+"/token" {
		role, verbs, what = "postern-peer-tokens", "create", resource+"/token"
	} else if lacks.Verbs == "watch" { // the other role may exist, from before it needed watch
		role, verbs = "postern-peer-accounts-watch", "list,watch"
	}
	subject := "--user=USER"
	if m := plainUser.FindStringSubmatch(err.Error()); m != nil {
		user := m[1]
		subject = "--user=" + user
		if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
			subject = "--serviceaccount=" + account
		}
	}
	return fmt.Sprintf("kubectl create role %s -n %s --verb=%s --resource=%s && kubectl create rolebinding %s -n %s --role=%s %s",
		role, a.namespace, verbs, what, role, a.namespace, role, subject)
}

// transient reports whether an error may be gone in a moment: no answer, or an answer that says so.
func transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, errForeign) && !errors.Is(err, context.Canceled)
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError || apierrors.IsConflict(err)
}
