package access

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// owner is what owns the gateway's pod. Garbage collection deletes our objects with it, when
// the release is uninstalled and no gateway is left to do so.
type owner struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// findOwner asks for it until it is known. Nothing waits for it.
func (k *Keeper) findOwner(ctx context.Context) {
	if k.o.Pod == "" || k.owner.UID != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err := metadataOf(ctx, k.core.core.Get().Namespace(k.o.Namespace).Resource("pods").Name(k.o.Pod))
	if err != nil {
		k.log.Debug("it is not known what owns this pod", "pod", k.o.Pod, "error", err)
		return
	}
	if c := metav1.GetControllerOf(&pod); c != nil {
		k.owner = owner{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}
	}
}
