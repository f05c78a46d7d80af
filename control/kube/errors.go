package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
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
	text := err.Error()
	switch {
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return fmt.Sprintf(" (the namespace %s is being deleted; when it is gone, make it again: kubectl create namespace %s)", a.namespace, a.namespace)
	case apierrors.IsForbidden(err) && strings.Contains(text, "exceeded quota"):
		return fmt.Sprintf(" (raise the quota, which must admit one ServiceAccount per peer: kubectl describe quota -n %s)", a.namespace)
	case apierrors.IsForbidden(err) && strings.Contains(text, " cannot "):
		return " (" + a.permit(text, status.Status()) + ")"
	case apierrors.IsForbidden(err):
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
func (a accounts) permit(text string, s metav1.Status) string {
	role, verbs, what := "postern-peer-accounts", "get,list,watch,create,delete", resource
	if strings.Contains(text, resource+"/token") || s.Details != nil && strings.HasSuffix(s.Details.Kind, "/token") {
		role, verbs, what = "postern-peer-tokens", "create", resource+"/token"
	} else if strings.Contains(text, " cannot watch ") { // the other role may exist, from before it needed watch
		role, verbs = "postern-peer-accounts-watch", "list,watch"
	}
	subject := "--user=USER"
	if m := plainUser.FindStringSubmatch(text); m != nil {
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
