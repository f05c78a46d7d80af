package access

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/objects"
)

func (k *Keeper) target(kind *kind, o object) objects.Target {
	return objects.Target{Kind: kind.name, Resource: kind.resource, Namespace: k.o.Namespace, Name: o.name}
}

// patch applies an object whose content has the checksum. With the UID of an existing one, it is a
// conflict if that was replaced or deleted.
func (k *Keeper) patch(ctx context.Context, kind *kind, o object, uid, sum string) (metav1.PartialObjectMetadata, error) {
	body, err := json.Marshal(k.body(kind.version, o, uid))
	if err != nil {
		return metav1.PartialObjectMetadata{}, err
	}
	force := true
	r := kind.client.Patch(types.ApplyYAMLPatchType).Namespace(k.o.Namespace).Resource(kind.resource).Name(o.name).
		VersionedParams(&metav1.PatchOptions{FieldManager: manager, Force: &force}, metav1.ParameterCodec).Body(body)
	var now metav1.PartialObjectMetadata
	err = k.reverts.Write(ctx, kind.client, k.target(kind, o), k.have[o.id].rv, sum, func(ctx context.Context) (_ metav1.ObjectMeta, err error) {
		now, err = metadataOf(ctx, r)
		return now.ObjectMeta, err
	})
	return now, err
}

// look checks for an existing object before one is created. Someone else could create one in
// between, which would be taken for ours: server-side apply leaves that gap.
func (k *Keeper) look(ctx context.Context, kind *kind, o object) error {
	there, err := metadataOf(ctx, kind.client.Get().Namespace(k.o.Namespace).Resource(kind.resource).Name(o.name))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !k.ours(there.Labels, o.peer) {
		return errTaken
	}
	k.have[o.id] = held{peer: o.peer, uid: string(there.UID), rv: there.ResourceVersion}
	return nil
}

// remove deletes an object of ours, and no replacement; it is no error if it is gone.
func (k *Keeper) remove(ctx context.Context, i id) error {
	kind, h := k.kind(i.kind), k.have[i]
	if kind.off || kind.denied {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := types.UID(h.uid)
	body, err := json.Marshal(&metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return err
	}
	err = kind.client.Delete().Namespace(k.o.Namespace).Resource(kind.resource).Name(i.name).Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	delete(k.have, i)
	k.log.Info("deleted an object for pods to reach a peer", "peer", h.peer, "object", kind.name+" "+i.name)
	return nil
}

// metadataOf sends a request about one object, and returns only its metadata.
func metadataOf(ctx context.Context, r *rest.Request) (metav1.PartialObjectMetadata, error) {
	var out metav1.PartialObjectMetadata
	raw, err := bodyOf(r.SetHeader("Accept", objects.MetadataOne).Do(ctx))
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return out, nil
}
