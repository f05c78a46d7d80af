package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

const (
	// fieldManager is who the gateway is to server-side apply.
	fieldManager = "postern"
	// requestTimeout bounds one request.
	requestTimeout = 5 * time.Second
)

// objects writes Peers.
type objects struct {
	client     rest.Interface
	namespace  string
	parameters runtime.ParameterCodec
}

func newObjects(client rest.Interface, namespace string) *objects {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion())
	return &objects{client: client, namespace: namespace, parameters: runtime.NewParameterCodec(scheme)}
}

// reference is how an event names an object.
func reference(o *v1alpha1.Peer) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.PeerKind,
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}

// applyStatus makes an object's status say what it should. It concerns this very object and
// none that has come to its name since.
func (w *objects) applyStatus(ctx context.Context, o *v1alpha1.Peer, s v1alpha1.PeerStatus) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.PeerKind,
		"metadata": map[string]any{"name": o.Name, "uid": o.UID}, "status": s,
	})
	if err != nil {
		return fmt.Errorf("encode the status of Peer %s: %w", o.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	return w.client.Patch(types.ApplyPatchType).Namespace(w.namespace).Resource(v1alpha1.PeerResource).Name(o.Name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, w.parameters).Body(body).Do(ctx).Error()
}

// create makes an object. One that is there already is no error: it is seen soon.
func (w *objects) create(ctx context.Context, o *v1alpha1.Peer) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = w.client.Post().Namespace(w.namespace).Resource(v1alpha1.PeerResource).
		VersionedParams(&metav1.CreateOptions{FieldManager: fieldManager}, w.parameters).Body(o).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// setSpec changes fields of an object's spec.
func (w *objects) setSpec(ctx context.Context, o *v1alpha1.Peer, fields map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID}, "spec": fields})
	if err != nil {
		return fmt.Errorf("encode Peer %s: %w", o.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.client.Patch(types.MergePatchType).Namespace(w.namespace).Resource(v1alpha1.PeerResource).Name(o.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, w.parameters).Body(body).Do(ctx).Error()
}

// delete deletes the very object that was seen. That it is gone already is fine.
func (w *objects) delete(ctx context.Context, o *v1alpha1.Peer) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := o.UID
	err := w.client.Delete().Namespace(w.namespace).Resource(v1alpha1.PeerResource).Name(o.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// gone asks whether there is no object of the name any more. It is sure only when the API
// server knows the kind and not the object.
func (w *objects) gone(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := w.client.Get().Namespace(w.namespace).Resource(v1alpha1.PeerResource).Name(name).Do(ctx).Error()
	if err == nil {
		return false, nil
	}
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && asStatus(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name {
		return true, nil
	}
	return false, err
}
