package catalogue

import (
	"fmt"
	"regexp"
	"strings"
)

// Texts about objects in a cluster, in the terms of kubectl and helm.

// Placed returns the object with its namespace.
func (v *view) Placed(otherwise string) string {
	if v.Namespace == "" {
		return or(v.Object, otherwise)
	}
	return or(v.Object, otherwise) + " in namespace " + v.Namespace
}

// InNamespace returns kubectl's and helm's flag.
func (v *view) InNamespace() string {
	if v.Namespace == "" {
		return ""
	}
	return " -n " + v.Namespace
}

func (v *view) IsIngress() bool { return strings.HasPrefix(v.Object, "Ingress") }

// HelmType returns the command that changes the Service's type.
func (v *view) HelmType(to string) string {
	return fmt.Sprintf("helm upgrade RELEASE CHART%s --reuse-values --set service.type=%s", v.InNamespace(), to)
}

// KubectlObject returns the object in kubectl's form: "service postern".
func (v *view) KubectlObject(otherwise string) string {
	kind, name, ok := strings.Cut(v.Object, " ")
	if !ok || strings.ContainsFunc(name, unlikeName) {
		return otherwise
	}
	return strings.ToLower(kind) + " " + name
}

// Release returns the name of the release that keeps its state in the Secrets of the parameters.
func (v *view) Release() string {
	_, name, _ := strings.Cut(v.Object, " ")
	m := stateSecret.FindStringSubmatch(or(name, first(v.Names)))
	if m == nil {
		return "RELEASE"
	}
	return m[1]
}

// stateSecret matches the name of a Secret of a release's state: RELEASE-state-PART.
var stateSecret = regexp.MustCompile(`^([a-z0-9][a-z0-9.-]*)-state-[a-z]+$`)

// unlikeName reports whether a character is none of an object's name.
func unlikeName(r rune) bool {
	return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
}

// Unanswered reports whether a cluster gave no good answer, while nothing refused the request.
func (v *view) Unanswered() bool {
	switch v.Failure {
	case FailureRefused, FailureTimeout, FailureCertificate, FailureExpired, FailureBusy, FailureBroken:
		return true
	}
	return false
}

// RoleKind, RoleName and RoleVerbs describe the right that the gateway lacks.
func (v *view) RoleKind() string {
	if v.Namespace != "" {
		return "role"
	}
	return "clusterrole"
}

func (v *view) RoleName() string {
	return "postern-" + strings.NewReplacer("/", "-", ".", "-").Replace(or(v.Resource, "RESOURCE"))
}

func (v *view) RoleVerbs() string { return or(strings.ReplaceAll(v.Verbs, " ", ""), "get,list,watch") }
