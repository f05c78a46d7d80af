package mcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/mirror"
)

// missingKinds are the kinds of the API that the cluster does not have.
type missingKinds string

func (k missingKinds) Error() string { return "the API server has no " + string(k) }

// noVersion: the cluster has no supported version.
const noVersion = missingKinds(v1beta1.GroupName + "/v1beta1 or v1alpha1")

// kind is a kind of object that the controller writes.
type kind struct{ name, resource, group string }

// The kinds.
var (
	serviceKind = kind{name: "Service", resource: "services"}
	sliceKind   = kind{name: "EndpointSlice", resource: "endpointslices", group: discoveryv1.GroupName}
	importKind  = kind{name: v1beta1.ServiceImportKindName, resource: v1beta1.ServiceImportPluralName, group: v1beta1.GroupName}
	exportKind  = kind{name: v1beta1.ServiceExportKindName, resource: v1beta1.ServiceExportPluralName, group: v1beta1.GroupName}

	kinds = []kind{serviceKind, sliceKind, importKind, exportKind}
)

// qualified returns the kind's resource in kubectl's form.
func (k kind) qualified() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

// clients support the few types that are read and written.
type clients struct {
	core, discovery, rbac, mcs rest.Interface
	// version is that of the API's kinds.
	version schema.GroupVersion
}

// newClients returns the clients for a version of the API. The types of v1beta1 also serve for
// v1alpha1, which has fewer fields.
func newClients(c *kube.Cluster, version schema.GroupVersion) (clients, error) {
	out := clients{version: version}
	var failed []error
	group := func(into *rest.Interface, client rest.Interface, err error) {
		*into = client
		if err != nil {
			failed = append(failed, fmt.Errorf("mcs: %w", err))
		}
	}
	binary := c.WithProtobuf()
	client, err := binary.Group(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Namespace{}, &corev1.NamespaceList{})
	group(&out.core, client, err)
	client, err = binary.Group(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	group(&out.discovery, client, err)
	client, err = c.Group(rbacv1.SchemeGroupVersion)
	group(&out.rbac, client, err)
	client, err = c.Group(version, &v1beta1.ServiceExport{}, &v1beta1.ServiceExportList{}, &v1beta1.ServiceImport{}, &v1beta1.ServiceImportList{})
	group(&out.mcs, client, err)
	return out, errors.Join(failed...)
}

// of returns the client for a kind, and the kind's apiVersion.
func (c clients) of(k kind) (client rest.Interface, apiVersion string) {
	switch k.group {
	case corev1.GroupName:
		return c.core, corev1.SchemeGroupVersion.String()
	case discoveryv1.GroupName:
		return c.discovery, discoveryv1.SchemeGroupVersion.String()
	}
	return c.mcs, c.version.String()
}

// versionOf returns the cluster's version of the API: v1beta1, or else v1alpha1.
func versionOf(ctx context.Context, c *kube.Cluster) (schema.GroupVersion, error) {
	client, err := c.Group(v1beta1.SchemeGroupVersion)
	if err != nil {
		return schema.GroupVersion{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := answer(client.Get().AbsPath("/apis", v1beta1.GroupName).Do(ctx))
	if apierrors.IsNotFound(err) {
		return schema.GroupVersion{}, noVersion
	}
	if err != nil {
		return schema.GroupVersion{}, err
	}
	var group metav1.APIGroup
	if err := json.Unmarshal(raw, &group); err != nil {
		return schema.GroupVersion{}, fmt.Errorf("the versions of %s cannot be read: %w", v1beta1.GroupName, err)
	}
	for _, want := range []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion} {
		for _, have := range group.Versions {
			if have.GroupVersion == want.String() {
				return want, nil
			}
		}
	}
	return schema.GroupVersion{}, noVersion
}

// owner returns the Role or ClusterRole with the name, which grants the right to import into a
// namespace, or into all.
func (c clients) owner(ctx context.Context, namespace, name string) (*metav1.OwnerReference, error) {
	kind, resource := "Role", "roles"
	if namespace == "" {
		kind, resource = "ClusterRole", "clusterroles"
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := answer(c.rbac.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).Do(ctx))
	if err != nil {
		return nil, err
	}
	var x metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &x); err != nil {
		return nil, fmt.Errorf("the %s %s cannot be read: %w", kind, name, err)
	}
	return &metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind, Name: name, UID: x.UID}, nil
}

// answer returns the body of a response. Result.Raw alone would not say why a request was refused.
func answer(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

// namespaces mirrors the existing namespaces.
type namespaces = mirror.Mirror[*corev1.Namespace]

func (c clients) namespaces(changed func()) *namespaces {
	return mirror.New(mirror.Options[*corev1.Namespace]{
		Client: c.core, Resource: "namespaces", List: &corev1.NamespaceList{}, Changed: changed,
		Slim: func(x *corev1.Namespace) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: x.Name, DeletionTimestamp: x.DeletionTimestamp}}
		},
	})
}
