package mcs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/control/kube/objects"
)

// annotationApplied is a checksum of what was last applied. Anything else in an object either
// belongs to others and stays, or was ours and is removed when the object is applied again.
const annotationApplied = "postern.dev/applied"

// object is a wanted object; for a ServiceExport only the status.
type object struct {
	id
	body   mirror.Object // nil is not ours to write
	status any           // a pointer to the kind's status; nil is not ours to write
}

// bodyOf returns a value in the form in which it is applied. It only gets types of the API, so it
// cannot fail.
func bodyOf(x any) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		panic(err)
	}
	delete(out, "status")
	return out
}

// writer writes objects.
type writer struct {
	clients clients
	log     *slog.Logger

	mu      sync.Mutex
	refused map[id]refusal     // what is not tried again for a while
	applied map[target]applied // what is not as wanted after it was applied, or not seen to be yet

	reverts objects.Reverts
}

// target is an object, or its status.
type target struct {
	id
	subresource string
}

// written is how the target is known to [objects.Reverts].
func (t target) written() objects.Target {
	return objects.Target{Kind: t.kind.name, Resource: t.kind.resource, Namespace: t.namespace, Name: t.name, Subresource: t.subresource}
}

// applied is what was last applied, and to which version of the object. It is not applied to the
// same version again: that would change nothing. Someone else may own an item of a list that is not
// wanted, an older definition may lack a field, or a webhook may insist on another value. The latter
// two may end without a new version, so it is applied once more after appliedAgain.
type applied struct {
	version, sum string
	at           time.Time
}

// refusal records that the API server has refused an object, or that another object has its name.
// It is reported once it has lasted: a starting API server refuses everything until it has read its
// roles.
type refusal struct {
	problem check.OwnProblem
	tell    time.Time     // from then on
	next    time.Time     // when it is tried again
	wait    time.Duration // from the last try until then
}

// step is one request.
type step func(context.Context) error

// plan returns the steps that reconcile the objects. Our objects that are not wanted are deleted,
// unless they are to be kept. want are the wanted ones, and made the namespaces in which some are
// made.
func (w *writer) plan(wanted iter.Seq[object], there map[id]mirror.Object, by Options, keep func(mirror.Object) bool) (steps []step, want map[id]bool, made map[string]bool) {
	want, made = map[id]bool{}, map[string]bool{}
	w.forget(func(_ id, r refusal) bool { return r.problem.Code == catalogue.NameTaken })
	for o := range wanted {
		want[o.id] = true
		if w.waits(o.id) {
			continue
		}
		have := there[o.id]
		if have != nil && o.body != nil && !by.ours(have) {
			w.refuse(o.id, taken(o.id, by.owner(have)), 0)
			continue
		}
		if have == nil && o.body != nil {
			made[o.namespace] = true
		}
		if s := w.apply(o, have); s != nil {
			steps = append(steps, w.noted(o.id, s))
		} else {
			w.accept(o.id)
		}
	}
	for i, x := range there {
		if by.ours(x) && !want[i] && x.GetDeletionTimestamp() == nil && !keep(x) && !w.waits(i) {
			steps = append(steps, w.noted(i, func(ctx context.Context) error { return w.remove(ctx, i, x.GetUID()) }))
		}
	}
	w.forget(func(i id, _ refusal) bool { return !want[i] && there[i] == nil })
	w.reverts.Keep(func(t objects.Target) bool {
		return slices.ContainsFunc(kinds, func(k kind) bool { return k.name == t.Kind && want[id{k, t.Namespace, t.Name}] })
	})
	w.mu.Lock()
	maps.DeleteFunc(w.applied, func(t target, a applied) bool {
		return there[t.id] == nil || there[t.id].GetResourceVersion() != a.version
	})
	w.mu.Unlock()
	return steps, want, made
}

// run sends the requests, several at a time. It reports whether one failed that is worth another
// try soon.
func (w *writer) run(ctx context.Context, steps []step) (failed bool) {
	todo := make(chan step)
	var running sync.WaitGroup
	var mu sync.Mutex
	for range min(writers, len(steps)) {
		running.Go(func() {
			for s := range todo {
				if err := s(ctx); err != nil {
					mu.Lock()
					failed = true
					mu.Unlock()
				}
			}
		})
	}
	for _, s := range steps {
		todo <- s
	}
	close(todo)
	running.Wait()
	return failed
}

// noted returns a step that records a refusal. Its error means that it is worth another try.
func (w *writer) noted(i id, s step) step {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := s(ctx)
		switch {
		case err == nil:
			w.accept(i)
		case ctx.Err() != nil:
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.HasStatusCause(err, "NamespaceTerminating"):
			return nil // it is another by now, or its namespace goes: the mirrors will tell
		case objects.Final(err):
			p := objects.Problem(err, i.kind.qualified(), i.namespace)
			p.Name, p.Params.Object, p.Params.Detail = check.NameServices, i.kind.name+" "+i.name, cmp.Or(p.Params.Detail, err.Error())
			w.refuse(i, p, refusedTold)
			return nil
		}
		if err != nil {
			w.log.Debug("an object of an import is not as it should be yet", "kind", i.kind.name, "namespace", i.namespace, "name", i.name, "error", err)
		}
		return err
	}
}

// taken returns the problem that a name belongs to another object. by is the Role or ClusterRole of
// the other gateway that made it, if one did.
func taken(i id, by string) check.OwnProblem {
	p := check.OwnProblem{Name: check.NameServices, Code: catalogue.NameTaken}
	p.Params.Namespace, p.Params.Object, p.Params.Upstream = i.namespace, i.kind.name+" "+i.name, by
	return p
}

// refuse records a refusal, which is reported after patience.
func (w *writer) refuse(i id, p check.OwnProblem, patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	r, again := w.refused[i]
	if !again {
		r.tell = now.Add(patience)
	}
	r.problem, r.wait = p, min(max(2*r.wait, firstRetry), refusedAgain)
	r.next = now.Add(r.wait)
	w.refused[i] = r
}

// accept records that an object has no problem any more.
func (w *writer) accept(i id) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refused, i)
}

// waits reports whether an object was refused, and it is too soon to try again.
func (w *writer) waits(i id) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.refused[i].next)
}

// again returns how long until the next retry of a refused object, or the next write of one that
// somebody keeps changing back, at most refusedAgain. Those that
// were due at a time have been tried; the mirrors report when a name is free again or the object
// has changed.
func (w *writer) again(tried time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.reverts.Next(refusedAgain, time.Now())
	for _, r := range w.refused {
		if r.next.After(tried) && r.problem.Code != catalogue.NameTaken {
			out = min(out, max(time.Until(r.next), gather))
		}
	}
	return out
}

// forget drops the refusals that are over.
func (w *writer) forget(over func(id, refusal) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.refused, over)
}

func (w *writer) problems() []check.OwnProblem {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.reverts.Problems(time.Now())
	for _, i := range slices.SortedFunc(maps.Keys(w.refused), compareID) {
		if r := w.refused[i]; !time.Now().Before(r.tell) {
			out = append(out, r.problem)
		}
	}
	return out
}

// apply returns the step that reconciles an object; nil if it is as wanted, or somebody keeps
// changing it back and it is not time yet.
func (w *writer) apply(o object, have mirror.Object) step {
	if have != nil && have.GetDeletionTimestamp() != nil {
		return nil
	}
	status := func(ctx context.Context) error {
		return w.patch(ctx, target{o.id, "status"}, have, map[string]any{"metadata": map[string]any{}, "status": bodyOf(o.status)}, checksum(o.status))
	}
	if o.body != nil {
		sum := stamp(o.body)
		if (have == nil || !contains(o.body, have) && !w.was(target{o.id, ""}, have, sum)) && w.mayWrite(target{o.id, ""}, sum) {
			return func(ctx context.Context) error {
				err := w.patch(ctx, target{o.id, ""}, have, bodyOf(o.body), sum)
				if err == nil && have == nil && o.status != nil { // It has none yet.
					err = status(ctx)
				}
				return err
			}
		}
	}
	if o.status != nil && have != nil {
		// A status has no checksum of what was last applied, so everything in it must be wanted.
		if is := statusOf(have); (!contains(o.status, is) || !contains(is, o.status)) && !w.was(target{o.id, "status"}, have, checksum(o.status)) && w.mayWrite(target{o.id, "status"}, objects.StatusSum(have, bodyOf(o.status))) {
			return status
		}
	}
	return nil
}

// mayWrite reports whether the content with a checksum may be written now.
func (w *writer) mayWrite(t target, sum string) bool {
	return w.reverts.Wait(t.written(), sum, time.Now()) == 0
}

// was reports whether this was applied to this version of the object.
func (w *writer) was(t target, have mirror.Object, sum string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.applied[t]
	return a.version == have.GetResourceVersion() && a.sum == sum && time.Since(a.at) < appliedAgain
}

// statusOf returns a pointer to an object's status.
func statusOf(x mirror.Object) any {
	switch x := x.(type) {
	case *v1beta1.ServiceExport:
		return &x.Status
	case *v1beta1.ServiceImport:
		return &x.Status
	}
	return nil
}

// stamp stores a body's checksum in it, and returns it.
func stamp(body mirror.Object) (sum string) {
	sum = checksum(body)
	body.SetAnnotations(merged(body.GetAnnotations(), map[string]string{annotationApplied: sum}))
	return sum
}

// checksum returns the checksum of a value of a type of the API.
func checksum(x any) string {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(x); err != nil {
		panic(err) // it is of a type of the API
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// contains reports whether an object or status has everything that is wanted. Both values have the
// same type. What JSON leaves out is not wanted, whatever is present instead; lists must be the
// same.
func contains(want, have any) bool { return within(reflect.ValueOf(want), reflect.ValueOf(have)) }

func within(want, have reflect.Value) bool {
	switch want.Kind() {
	case reflect.Pointer:
		if want.IsNil() || have.IsNil() {
			return want.IsNil() == have.IsNil()
		}
		return within(want.Elem(), have.Elem())
	case reflect.Struct:
		if t, is := reflect.TypeAssert[metav1.Time](want); is { // as exact as it is in JSON
			h, _ := reflect.TypeAssert[metav1.Time](have)
			return t.Unix() == h.Unix()
		}
		for i, f := range fieldsOf(want.Type()) {
			if v := want.Field(i); !f.leaves(v) && !within(v, have.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		for k, v := range want.Seq2() {
			if h := have.MapIndex(k); !h.IsValid() || !within(v, h) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if want.Len() != have.Len() {
			return false
		}
		for i := range want.Len() {
			if !within(want.Index(i), have.Index(i)) {
				return false
			}
		}
		return true
	}
	return want.Equal(have)
}

// field is what the tag of a struct's field says about its zero value in JSON.
type field struct{ omitEmpty, omitZero bool }

// leaves reports whether JSON omits a value of the field.
func (f field) leaves(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return f.omitEmpty && v.Len() == 0
	case reflect.Struct:
		return f.omitZero && v.IsZero()
	}
	return f.omitEmpty && v.IsZero()
}

// structs caches the fields of each type that was compared: reflection would allocate them each
// time.
var structs sync.Map // []field by reflect.Type

func fieldsOf(t reflect.Type) []field {
	if known, ok := structs.Load(t); ok {
		return known.([]field)
	}
	out := make([]field, t.NumField())
	for i := range out {
		options := strings.Split(t.Field(i).Tag.Get("json"), ",")[1:]
		out[i] = field{slices.Contains(options, "omitempty"), slices.Contains(options, "omitzero")}
	}
	structs.Store(t, out)
	return out
}

// patch applies a body to the object that was seen, or creates it if none was.
func (w *writer) patch(ctx context.Context, t target, have mirror.Object, body map[string]any, sum string) error {
	client, api := w.clients.of(t.kind)
	out, meta := maps.Clone(body), maps.Clone(body["metadata"].(map[string]any))
	meta["name"], meta["namespace"] = t.name, t.namespace
	seen := ""
	if have != nil {
		seen, meta["uid"] = have.GetResourceVersion(), string(have.GetUID())
	}
	out["apiVersion"], out["kind"], out["metadata"] = api, t.kind.name, meta
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	force := true
	r := client.Patch(types.ApplyPatchType).Namespace(t.namespace).Resource(t.kind.resource).Name(t.name)
	if t.subresource != "" {
		r = r.SubResource(t.subresource)
	}
	r = r.VersionedParams(&metav1.PatchOptions{FieldManager: objects.FieldManager, Force: &force}, metav1.ParameterCodec).
		SetHeader("Accept", objects.MetadataOne).Body(raw)
	content := sum
	if t.subresource != "" {
		content = objects.StatusSum(have, body["status"])
	}
	err = w.reverts.Write(ctx, client, t.written(), seen, content, func(ctx context.Context) (metav1.ObjectMeta, error) { return objects.Meta(r.Do(ctx)) })
	if err == nil && have != nil {
		w.mu.Lock()
		w.applied[t] = applied{seen, sum, time.Now()}
		w.mu.Unlock()
	}
	return err
}

// remove deletes the object that was seen.
func (w *writer) remove(ctx context.Context, i id, uid types.UID) error {
	client, _ := w.clients.of(i.kind)
	return client.Delete().Namespace(i.namespace).Resource(i.kind.resource).Name(i.name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
}

// empty removes the endpoints from an EndpointSlice, unless it was written since.
func (w *writer) empty(ctx context.Context, i id, version string) error {
	client, _ := w.clients.of(i.kind)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "endpoints": []any{}})
	if err != nil {
		return err
	}
	return client.Patch(types.MergePatchType).Namespace(i.namespace).Resource(i.kind.resource).Name(i.name).
		VersionedParams(&metav1.PatchOptions{FieldManager: objects.FieldManager}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
}
