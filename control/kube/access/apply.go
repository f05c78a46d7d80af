package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/objects"
)

// NameAccess is the gateway's own check that shows the problems.
const NameAccess = "peer-services"

// kind is one of the kinds of objects.
type kind struct {
	name, resource, group, version string
	client                         rest.Interface
	// optional: it is left out if the right to it is missing.
	optional bool
	off      bool // left out, because the right is missing
	denied   bool // it is not left out, but the right is missing
}

// held is an existing object of ours.
type held struct {
	peer string
	uid  string
	rv   string            // resourceVersion, which shows whether someone changed it
	sum  [sha256.Size]byte // of what was last applied; zero = unknown
}

// survey finds out which of our objects exist, and which kinds may be used. An error means that the
// API server does not answer.
func (k *Keeper) survey(ctx context.Context) error {
	k.refused = map[id]check.OwnProblem{}
	for _, kind := range k.kinds {
		list, err := k.list(ctx, kind)
		denied := apierrors.IsForbidden(err)
		kind.off, kind.denied = denied && kind.optional, denied && !kind.optional
		if denied {
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.resource, err)
		}
		k.seen(kind, list)
	}
	return nil
}

// seen records which objects of a kind exist. One that someone has changed must be applied again.
func (k *Keeper) seen(kind *kind, list []metav1.PartialObjectMetadata) {
	there := map[id]bool{}
	for _, x := range list {
		peer := x.Labels[LabelPeer]
		if !k.ours(x.Labels, peer) {
			continue
		}
		i := id{kind.name, x.Name}
		there[i] = true
		if h, ok := k.have[i]; !ok || h.uid != string(x.UID) || h.rv != x.ResourceVersion {
			k.have[i] = held{peer: peer, uid: string(x.UID), rv: x.ResourceVersion}
		}
	}
	maps.DeleteFunc(k.have, func(i id, _ held) bool { return i.kind == kind.name && !there[i] })
}

func (k *Keeper) list(ctx context.Context, kind *kind) ([]metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return listMetadata(ctx, kind.client, kind.resource, k.o.Namespace,
		metav1.ListOptions{LabelSelector: LabelPeer + "," + labelInstance + "=" + k.o.Release + "," + labelManagedBy + "=" + program})
}

// settle applies missing and changed objects, and deletes unwanted ones. A rejection becomes a
// problem; an error is worth a retry.
func (k *Keeper) settle(ctx context.Context, offers []offer) error {
	wanted := map[id]bool{}
	for _, o := range offers {
		for _, x := range k.objects(o) {
			wanted[x.id] = true
			if k.waits(x.id) || x.keep {
				continue
			}
			if err := k.settled(x, k.apply(ctx, x)); err != nil {
				return err
			}
		}
	}
	k.reverts.Keep(func(t objects.Target) bool { return wanted[id{t.Kind, t.Name}] })
	for _, i := range sorted(k.have) {
		if k.waits(i) || wanted[i] || k.young() {
			continue
		}
		if err := k.settled(object{id: i, peer: k.have[i].peer}, k.remove(ctx, i)); err != nil {
			return err
		}
	}
	maps.DeleteFunc(k.refused, func(i id, _ check.OwnProblem) bool { _, there := k.have[i]; return !wanted[i] && !there })
	return nil
}

// waits reports whether an object was rejected, and is not tried again before the next survey. A
// webhook that fails may be back at any moment.
func (k *Keeper) waits(i id) bool {
	p, refused := k.refused[i]
	return refused && p.Params.Failure != catalogue.FailureWebhook
}

// settled handles the result of a request: a rejection is recorded, any other error is returned.
func (k *Keeper) settled(o object, err error) error {
	switch {
	case err == nil:
		delete(k.refused, o.id)
		return nil
	case errors.Is(err, errTaken):
		p := check.OwnProblem{Name: NameAccess, Code: catalogue.NameTaken}
		p.Params.Peer, p.Params.Namespace, p.Params.Object = o.peer, k.o.Namespace, o.kind+" "+o.name
		k.refused[o.id] = p
		return nil
	case objects.Final(err):
		kind := k.kind(o.kind)
		p := objects.Problem(err, kind.resource, k.o.Namespace)
		if p.Code == catalogue.ClusterForbidden { // whoever lacks one of the rights is given all
			p = k.forbidden(kind)
			p.Params.Detail = fmt.Sprintf("%s %s: %v", o.kind, o.name, err)
		}
		p.Name, p.Params.Peer, p.Params.Object = NameAccess, o.peer, o.kind+" "+o.name
		k.refused[o.id] = p
		return nil
	}
	return fmt.Errorf("%s %s: %w", o.kind, o.name, err)
}

func sorted[T any](m map[id]T) []id {
	return slices.SortedFunc(maps.Keys(m), func(a, b id) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) })
}

func (k *Keeper) kind(name string) *kind {
	i := slices.IndexFunc(k.kinds, func(x *kind) bool { return x.name == name })
	return k.kinds[i]
}

// errTaken: there is another object of the name, which is not ours.
var errTaken = errors.New("not this gateway's")

// apply applies one object, unless it is up to date.
func (k *Keeper) apply(ctx context.Context, o object) error {
	kind := k.kind(o.kind)
	if kind.off || kind.denied {
		return nil
	}
	plain, err := json.Marshal(k.body(kind.version, o, ""))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(plain)
	if k.have[o.id].sum == sum || k.reverts.Wait(k.target(kind, o), string(sum[:]), time.Now()) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if k.have[o.id].uid == "" {
		if err := k.look(ctx, kind, o); err != nil {
			return err
		}
	}
	before := k.have[o.id].uid
	now, err := k.patch(ctx, kind, o, before, string(sum[:]))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		delete(k.have, o.id) // replaced or deleted: the next pass looks
	}
	if err != nil {
		return err
	}
	if before == "" {
		k.log.Info("created an object for pods to reach a peer", "peer", o.peer, "object", kind.name+" "+o.name)
	}
	k.have[o.id] = held{peer: o.peer, uid: string(now.UID), rv: now.ResourceVersion, sum: sum}
	return nil
}
func (k *Keeper) forbidden(kind *kind) check.OwnProblem {
	p := check.OwnProblem{Name: NameAccess, Code: catalogue.ClusterForbidden}
	p.Params.Namespace, p.Params.Account = k.o.Namespace, k.o.Account
	p.Params.Verbs, p.Params.Resource = "get,list,create,patch,delete", kind.resource
	if kind.group != "" {
		p.Params.Resource += "." + kind.group
	}
	return p
}
