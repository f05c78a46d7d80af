// Package role marks the pod that is the gateway, among the replicas.
//
// The active pod bears the label postern.dev/role: active, and Services select by it: it is
// what leads traffic from one replica to the other. A pod labels itself, by a merge patch
// of its own object, and takes the label away from the one whose place it took: a node that
// died says nothing, and its pod would stay an endpoint until the cluster notices, after 40 s.
//
// The right that is needed: pods get and patch, for the names of the StatefulSet's pods.
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
	// Label is on the active pod, with the value [Active], and on no other.
	Label  = "postern.dev/role"
	Active = "active"

	// NameVariable and UIDVariable tell a pod who it is (downward API: metadata.name,
	// metadata.uid).
	NameVariable = "POD_NAME"
	UIDVariable  = "POD_UID"

	resource = "pods"
	// between separates a pod's name from its UID in an identity.
	between = "_"
)

// ErrNoPod: it is unknown which pod this is.
var ErrNoPod = errors.New("it is not known which pod this is")

// Pod is the gateway's own. It is safe for concurrent use.
type Pod struct {
	client          rest.Interface
	namespace, name string
	uid             string
}

// Self finds out which pod this is, by its environment.
func Self(c *kube.Cluster) (*Pod, error) {
	name := os.Getenv(NameVariable)
	if name == "" {
		return nil, fmt.Errorf("%w: %s is not set (give the container the field metadata.name in it, as the chart does)", ErrNoPod, NameVariable)
	}
	return New(c, name, os.Getenv(UIDVariable))
}

// New is the pod of that name. uid may be empty.
func New(c *kube.Cluster, name, uid string) (*Pod, error) {
	client, err := c.Group(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{})
	if err != nil {
		return nil, err
	}
	return &Pod{client: client, namespace: c.Namespace(), name: name, uid: uid}, nil
}

// Name is the pod's.
func (p *Pod) Name() string { return p.name }

// Identity tells this pod from every other, an earlier one of its name included. A
// container that is started again has the same.
func (p *Pod) Identity() string {
	if p.uid == "" {
		return p.name
	}
	return p.name + between + p.uid
}

// Mark labels our own pod, or takes the label away.
func (p *Pod) Mark(ctx context.Context, active bool) error {
	if err := p.patch(ctx, p.name, active); err != nil {
		return fmt.Errorf("label the pod %s: %w", p.name, err)
	}
	return nil
}

// Unmark takes the label from the pod with that identity, unless it is this one or gone.
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
	var value any // null takes a label away
	if active {
		value = Active
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{Label: value}}})
	if err != nil {
		return err
	}
	return p.client.Patch(types.MergePatchType).Namespace(p.namespace).Resource(resource).Name(name).Body(body).Do(ctx).Error()
}

// Owner is what controls the pod, a StatefulSet: what belongs to it as well goes with it. Without
// one the UID is empty.
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
