// Package objects writes the cluster's postern objects, and interprets an API server's refusals.
//
// # Rules
//
// A write concerns exactly the object that was seen, by its UID, and no later one with its name.
// Status is applied by server-side apply of the status subresource, with the field manager
// postern: other managers' fields are not touched, and there are no conflicts. Every request has
// a timeout, since nothing should wait for an API server that hangs. What somebody keeps changing
// back is written less and less often ([Reverts]).
package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

const (
	// FieldManager is the gateway's name for server-side apply.
	FieldManager = "postern"
	// requestTimeout limits one request.
	requestTimeout = 5 * time.Second
)

// Object is one of ours, or a Secret.
type Object interface {
	runtime.Object
	metav1.Object
}

// Writer writes the objects of one kind in one namespace.
type Writer struct {
	// Reverts are the statuses that somebody keeps changing back.
	Reverts                   Reverts
	client                    rest.Interface
	namespace, resource, kind string
}

// NewWriter returns a writer for a kind of postern.dev, with a client that supports it.
func NewWriter(client rest.Interface, namespace, resource, kind string) *Writer {
	return &Writer{client: client, namespace: namespace, resource: resource, kind: kind}
}

// Namespace returns the objects' namespace.
func (w *Writer) Namespace() string { return w.namespace }

// Reference returns an event's reference to an object.
func (w *Writer) Reference(o Object) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: w.kind,
		Namespace: w.namespace, Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}
}

// Wait returns how long to wait before the next write of a status to an object, because somebody
// keeps changing it back; 0 means not at all.
func (w *Writer) Wait(o Object, status any, now time.Time) time.Duration {
	return w.Reverts.Wait(w.status(o), StatusSum(o, status), now)
}

// status returns the target of the writes of an object's status.
func (w *Writer) status(o Object) Target {
	return Target{Kind: w.kind, Resource: w.resource, Namespace: w.namespace, Name: o.GetName(), Subresource: "status"}
}

// ApplyStatus applies an object's status.
func (w *Writer) ApplyStatus(ctx context.Context, o Object, status any) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": w.kind,
		"metadata": map[string]any{"name": o.GetName(), "uid": o.GetUID()}, "status": status,
	})
	if err != nil {
		return fmt.Errorf("encode the status of %s %s: %w", w.kind, o.GetName(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	r := w.client.Patch(types.ApplyPatchType).Namespace(w.namespace).Resource(w.resource).Name(o.GetName()).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: FieldManager, Force: &force}, metav1.ParameterCodec).SetHeader("Accept", MetadataOne).Body(body)
	return w.Reverts.Write(ctx, w.client, w.status(o), o.GetResourceVersion(), StatusSum(o, status), func(ctx context.Context) (metav1.ObjectMeta, error) {
		return Meta(r.Do(ctx))
	})
}

// Since returns a condition as it should be now, with the time of its last status change. The
// time of a definition's default condition is 1970, and does not count. meta.SetStatusCondition
// would change the object's list, and so take over conditions of other field managers: what is
// applied belongs to the applier.
func Since(was []metav1.Condition, x metav1.Condition) metav1.Condition {
	if old := meta.FindStatusCondition(was, x.Type); old != nil && old.Status == x.Status && old.LastTransitionTime.Unix() > 0 {
		x.LastTransitionTime = old.LastTransitionTime
	}
	return x
}

// Create creates an object. It is no error if the object exists: it will be seen soon.
func (w *Writer) Create(ctx context.Context, o Object) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = w.client.Post().Namespace(w.namespace).Resource(w.resource).
		VersionedParams(&metav1.CreateOptions{FieldManager: FieldManager}, metav1.ParameterCodec).Body(o).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// SetSpec changes fields of an object's spec.
func (w *Writer) SetSpec(ctx context.Context, o Object, fields map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID()}, "spec": fields})
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", w.kind, o.GetName(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.client.Patch(types.MergePatchType).Namespace(w.namespace).Resource(w.resource).Name(o.GetName()).
		VersionedParams(&metav1.PatchOptions{FieldManager: FieldManager}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
}

// Delete deletes an object. It is no error if it is gone.
func (w *Writer) Delete(ctx context.Context, o Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := o.GetUID()
	err := w.client.Delete().Namespace(w.namespace).Resource(w.resource).Name(o.GetName()).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Gone reports whether there is no object with the name any more, or only one that was deleted and
// waits for a finalizer. That there is none is certain only if the API server knows the kind but not
// the object.
func (w *Writer) Gone(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got := w.client.Get().Namespace(w.namespace).Resource(w.resource).Name(name).Do(ctx)
	switch err := got.Error(); {
	case err == nil:
		var o metav1.PartialObjectMetadata
		body, err := got.Raw()
		if err == nil {
			err = json.Unmarshal(body, &o)
		}
		return err == nil && o.DeletionTimestamp != nil, err
	case apierrors.IsNotFound(err) && namesAnObject(err):
		return true, nil
	default:
		return false, err
	}
}

// Vanished reports whether the error of a write means that the object is gone or was replaced; a
// watch will report that.
func Vanished(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) && namesAnObject(err)
}

// namesAnObject distinguishes "no such object" from "no such kind". The name alone does not: if
// the response is not a Status, as for an unknown path, client-go fills in the request's name.
func namesAnObject(err error) bool {
	var status apierrors.APIStatus
	return !apierrors.IsUnexpectedServerError(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}
