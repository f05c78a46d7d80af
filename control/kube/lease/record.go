package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube"
)

const resource = "leases"

// waiting is the annotation with the name of a standby. The standby writes it, and whoever takes
// the lease removes it: other standbys then write it again.
const waiting = "postern.dev/standby"

// publicKey is the annotation with the key of the gateway that has the lease, or had it last.
const publicKey = "postern.dev/public-key"

// tells writes the gateway's key to a lease; empty leaves it unchanged.
func tells(x *coordinationv1.Lease, key string) {
	if key == "" {
		return
	}
	if x.Annotations == nil {
		x.Annotations = map[string]string{}
	}
	x.Annotations[publicKey] = key
}

// rival returns a replica that could take the lease from the holder; empty if none has been seen.
func rival(x *coordinationv1.Lease) string {
	if name := x.Annotations[waiting]; name != holder(x) {
		return name
	}
	return ""
}

// pod returns the name of the pod with that identity (role.Pod.Identity).
func pod(identity string) string {
	name, _, _ := strings.Cut(identity, "_")
	return name
}

// announced returns the lease with the name of a standby; empty removes it.
func announced(x *coordinationv1.Lease, identity string) *coordinationv1.Lease {
	next := x.DeepCopy()
	delete(next.Annotations, waiting)
	if identity == "" {
		return next
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[waiting] = identity
	return next
}

// holder returns the holder of a lease; empty if there is none.
func holder(x *coordinationv1.Lease) string {
	if x.Spec.HolderIdentity == nil {
		return ""
	}
	return *x.Spec.HolderIdentity
}

// mark returns a value that changes with every write of the holder, and only then.
func mark(x *coordinationv1.Lease) string {
	return fmt.Sprintf("%s %s %s", holder(x), stamp(x.Spec.AcquireTime), stamp(x.Spec.RenewTime))
}

func stamp(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(metav1.RFC3339Micro)
}

// lasts returns how long to wait for the holder.
func lasts(x *coordinationv1.Lease) time.Duration {
	if x.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*x.Spec.LeaseDurationSeconds) * time.Second
}

// term identifies the time in which the holder has held the lease without interruption.
func term(x *coordinationv1.Lease) string { return holder(x) + "@" + stamp(x.Spec.AcquireTime) }

// taken returns the lease as its new holder writes it. If it is already its own, the term
// continues.
func taken(x *coordinationv1.Lease, identity string, d time.Duration, now time.Time) *coordinationv1.Lease {
	next := x.DeepCopy()
	at := metav1.NewMicroTime(now)
	if was := holder(x); was != identity || next.Spec.AcquireTime == nil {
		turns := int32(0)
		if n := x.Spec.LeaseTransitions; n != nil {
			turns = *n
		}
		if x.ResourceVersion != "" {
			turns++
		}
		next.Spec.AcquireTime, next.Spec.LeaseTransitions = &at, &turns
		delete(next.Annotations, waiting)
	}
	next.Spec.HolderIdentity = &identity
	next.Spec.RenewTime = &at
	seconds := int32((d + time.Second - 1) / time.Second)
	next.Spec.LeaseDurationSeconds = &seconds
	return next
}

// given returns the lease as it is written to release it.
func given(x *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	next := x.DeepCopy()
	at := metav1.NewMicroTime(now)
	next.Spec.HolderIdentity, next.Spec.RenewTime = nil, &at
	return next
}

// owned adds an owner, with which the lease is deleted.
func owned(x *coordinationv1.Lease, owner metav1.OwnerReference) {
	if owner.UID == "" || slices.ContainsFunc(x.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
		return
	}
	x.OwnerReferences = append(slices.DeleteFunc(x.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == owner.Kind && r.Name == owner.Name
	}), owner)
}

// leases are the requests to the API server about one lease.
type leases interface {
	get(ctx context.Context) (*coordinationv1.Lease, error)
	create(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error)
	update(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// watch calls changed for every state of the lease until ctx or the watch ends.
	watch(ctx context.Context, changed func(*coordinationv1.Lease)) error
	// redial drops a connection that may be dead.
	redial()
}

// watchSeconds bounds a watch; API servers end those of an hour anyway.
const watchSeconds = "600"

// remote is a real API server.
type remote struct {
	client          rest.Interface
	namespace, name string
}

func newRemote(c *kube.Cluster, name string) (remote, error) {
	client, err := c.Apart().Group(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	return remote{client, c.Namespace(), name}, err
}

func (r remote) get(ctx context.Context) (*coordinationv1.Lease, error) {
	var out coordinationv1.Lease
	err := r.client.Get().Namespace(r.namespace).Resource(resource).Name(r.name).MaxRetries(0).Do(ctx).Into(&out)
	return &out, err
}

func (r remote) create(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	x = x.DeepCopy()
	x.Name = r.name
	var out coordinationv1.Lease
	err := r.client.Post().Namespace(r.namespace).Resource(resource).Body(x).MaxRetries(0).Do(ctx).Into(&out)
	return &out, err
}

func (r remote) update(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	var out coordinationv1.Lease
	err := r.client.Put().Namespace(r.namespace).Resource(resource).Name(r.name).Body(x).MaxRetries(0).Do(ctx).Into(&out)
	return &out, err
}

func (r remote) watch(ctx context.Context, changed func(*coordinationv1.Lease)) error {
	w, err := r.client.Get().Namespace(r.namespace).Resource(resource).
		Param("watch", "true").Param("fieldSelector", "metadata.name="+r.name).Param("timeoutSeconds", watchSeconds).Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the lease %s: %w", r.name, err)
	}
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			x, ok := e.Object.(*coordinationv1.Lease)
			switch {
			case !ok: // an error, after which the watch ends
			case e.Type == watch.Deleted:
				changed(&coordinationv1.Lease{})
			default:
				changed(x)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r remote) redial() { kube.Redial(r.client) }
