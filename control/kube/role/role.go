// Package role marks the active gateway's pod among the replicas.
//
// The active pod has the label postern.dev/role: active, and Services select by it: it is what
// moves traffic from one replica to another. A pod labels itself, by a merge patch of its own
// object, and removes the label from the pod that it replaced: a dead node says nothing, and its
// pod would stay an endpoint until the cluster notices, after 40 s.
//
// The account needs the rights get and patch on pods, for the names of the StatefulSet's pods.
package role

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube"
)

const (
	// Label is set on the active pod, with the value [Active], and on no other.
	Label  = "postern.dev/role"
	Active = "active"

	// NameVariable and UIDVariable contain the pod's own name and UID (downward API:
	// metadata.name, metadata.uid).
	NameVariable = "POD_NAME"
	UIDVariable  = "POD_UID"

	resource = "pods"
	// between separates a pod's name from its UID in an identity.
	between = "_"
)

// ErrNoPod is returned if it is unknown which pod this is.
var ErrNoPod = errors.New("it is not known which pod this is")

// Pod is the gateway's own pod. It is safe for concurrent use.
type Pod struct {
	client          rest.Interface
	namespace, name string
	uid             string
}

// Self returns this pod, according to its environment.
func Self(c *kube.Cluster) (*Pod, error) {
	name := os.Getenv(NameVariable)
	if name == "" {
		return nil, fmt.Errorf("%w: %s is not set (give the container the field metadata.name in it, as the chart does)", ErrNoPod, NameVariable)
	}
	return New(c, name, os.Getenv(UIDVariable))
}

// New returns the pod with the name. uid may be empty.
func New(c *kube.Cluster, name, uid string) (*Pod, error) {
	client, err := c.Group(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{})
	if err != nil {
		return nil, err
	}
	return &Pod{client: client, namespace: c.Namespace(), name: name, uid: uid}, nil
}

// Name returns the pod's name.
func (p *Pod) Name() string { return p.name }

// Identity distinguishes this pod from all others, including earlier ones with its name. A
// restarted container has the same identity.
func (p *Pod) Identity() string {
	if p.uid == "" {
		return p.name
	}
	return p.name + between + p.uid
}

// Mark adds the label to our own pod, or removes it.
func (p *Pod) Mark(ctx context.Context, active bool) error {
	if err := p.patch(ctx, p.name, active); err != nil {
		return fmt.Errorf("label the pod %s: %w", p.name, err)
	}
	return nil
}

// Unmark removes the label from the pod with the identity, unless that is this pod or gone.
func (p *Pod) Unmark(ctx context.Context, identity string) error {
	name, _, _ := strings.Cut(identity, between)
	if name == "" || name == p.name {
		return nil
	}
	if err := p.patch(ctx, name, false); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the label %s from the pod %s: %w", Label, name, err)
	}
	return nil
}

func (p *Pod) patch(ctx context.Context, name string, active bool) error {
	var value any // null removes a label
	if active {
		value = Active
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{Label: value}}})
	if err != nil {
		return err
	}
	return p.client.Patch(types.MergePatchType).Namespace(p.namespace).Resource(resource).Name(name).Body(body).Do(ctx).Error()
}

// Owner returns the pod's controller, a StatefulSet, as the owner of other objects, which are
// then deleted with it. The UID is empty without one.
func (p *Pod) Owner(ctx context.Context) (metav1.OwnerReference, error) {
	var pod corev1.Pod
	if err := p.client.Get().Namespace(p.namespace).Resource(resource).Name(p.name).Do(ctx).Into(&pod); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("ask what the pod %s belongs to: %w", p.name, err)
	}
	c := metav1.GetControllerOf(&pod)
	if c == nil {
		return metav1.OwnerReference{}, nil
	}
	return metav1.OwnerReference{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}, nil
}
