package objects

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

const (
	// revertsTold is how many times in a row something must be changed back until that is reported,
	// and written less often.
	revertsTold = 3
	// revertsApart is how soon after a write it must be changed back to be one of a row: Argo CD
	// does so after 3 min, and Flux after 10, unless they watch. Afterwards the row is over.
	revertsApart = 30 * time.Minute
	// firstHold doubles with each time up to maxHold.
	firstHold = 10 * time.Second
	maxHold   = 5 * time.Minute
	// askTimeout bounds the question who did it: the write must not wait for the answer for long.
	askTimeout = 2 * time.Second
	// maxNamed is how many objects a problem names: the API server bounds a status.
	maxNamed = 20
)

// Accept headers that make the API server return only metadata (Kubernetes API concepts,
// "Metadata-only fetches").
const (
	MetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	MetadataOne  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// Target is what a gateway writes: an object, or a subresource of it.
type Target struct{ Kind, Resource, Namespace, Name, Subresource string }

func (t Target) String() string {
	if t.Subresource != "" {
		return t.Kind + " " + t.Name + " (" + t.Subresource + ")"
	}
	return t.Kind + " " + t.Name
}

// Reverts notices that somebody keeps changing back what a gateway writes: a GitOps tool, another
// controller, another gateway. Each would answer the other's write for ever. So it makes the
// gateway write less and less often, and reports who it is. All writers of objects share it. The
// zero value is ready to use, and it is safe for concurrent use.
//
// It counts a write that changed the object though the same was written before, and others changed
// the object since. Only the same content is held back: what is new is written at once.
type Reverts struct {
	mu    sync.Mutex
	known map[Target]*written
}

// written is the last write of a target.
type written struct {
	sum     string // its content
	version string // the object's resourceVersion after it
	own     entry  // of the gateway after it
	at      time.Time
	times   int       // how often it was changed back, in a row
	first   time.Time // when that was noticed first
	last    time.Time // and last
	manager string    // the field manager; empty if the object was deleted, or that is unknown
}

// over reports whether a row is over. Other writes of the target do not prolong it.
func (w *written) over(now time.Time) bool {
	last := w.at
	if w.times > 0 {
		last = w.last
	}
	return now.Sub(last) >= revertsApart
}

// hold returns how long to wait after the last write before the same is written again.
func (w *written) hold(now time.Time) time.Duration {
	if w.times < revertsTold || w.over(now) {
		return 0
	}
	return min(firstHold<<min(w.times-revertsTold, 10), maxHold)
}

// Wait returns how long to wait before the next write of the content with a checksum, as in
// [Reverts.Write]; 0 means not at all.
func (r *Reverts) Wait(t Target, sum string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.known[t]; w != nil && (sum == "" || sum == w.sum) {
		return max(0, w.at.Add(w.hold(now)).Sub(now))
	}
	return 0
}

// Next returns how long until the first of all waits ends, at most the given time.
func (r *Reverts) Next(most time.Duration, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.known {
		if wait := w.at.Add(w.hold(now)).Sub(now); wait > 0 {
			most = min(most, wait)
		}
	}
	return most
}

// Keep forgets all targets except these: the gateway does not want the others any more, and deletes
// them itself.
func (r *Reverts) Keep(wanted func(Target) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(t Target, _ *written) bool { return !wanted(t) })
}

// Write sends a request that writes the content with a checksum; an empty one means that the write
// repairs nothing. version is the resourceVersion of the object that was seen; empty without one. The
// request returns the object's metadata after it, as far as known.
func (r *Reverts) Write(ctx context.Context, client rest.Interface, t Target, version, sum string, request func(context.Context) (metav1.ObjectMeta, error)) error {
	manager, changed := r.ask(ctx, client, t, version, sum)
	after, err := request(ctx)
	if err != nil || after.ResourceVersion == "" {
		return err
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.known[t]
	if w == nil || w.over(now) {
		w = &written{}
	}
	if changed && w.suspects(version, sum) && after.ResourceVersion != version && after.ResourceVersion != w.version {
		if w.times++; w.times == 1 {
			w.first = now
		}
		w.last, w.manager = now, manager
	}
	w.version, w.at, w.own = after.ResourceVersion, now, ownEntry(after.ManagedFields, t.Subresource)
	if sum != "" {
		w.sum = sum
	}
	if r.known == nil {
		r.known = map[Target]*written{}
	}
	r.known[t] = w
	return nil
}

// suspects reports whether a write of this content to this version may repair what somebody
// changed. What was seen may also be older than the last write.
func (w *written) suspects(version, sum string) bool {
	return w.version != "" && sum != "" && w.sum == sum && version != w.version
}

// ask returns the field manager that changed an object since it was written, if that may have to be
// reported, and whether anybody has as far as known.
func (r *Reverts) ask(ctx context.Context, client rest.Interface, t Target, version, sum string) (manager string, changed bool) {
	r.mu.Lock()
	var w written
	if known := r.known[t]; known != nil {
		w = *known
	}
	r.mu.Unlock()
	if w.times+1 < revertsTold || !w.suspects(version, sum) || version == "" {
		return "", true
	}
	// The right to list is among those of every writer, the right to get is not.
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.Name).String()}
	result := client.Get().Namespace(t.Namespace).Resource(t.Resource).SetHeader("Accept", MetadataList).
		VersionedParams(&o, metav1.ParameterCodec).Do(ctx)
	raw, err := result.Raw()
	var list metav1.PartialObjectMetadataList
	if err != nil || json.Unmarshal(raw, &list) != nil || len(list.Items) != 1 {
		return "", true
	}
	now := list.Items[0]
	if now.ResourceVersion == w.version {
		return "", false
	}
	manager = ChangedBy(now.ManagedFields, t.Subresource)
	// Whoever only removes fields gets no entry: the gateway's has fewer fields, and its old time.
	if own := ownEntry(now.ManagedFields, t.Subresource); manager == FieldManager && own.at.Equal(w.own.at) && own.fields != w.own.fields {
		manager = ""
	}
	return manager, true
}

// entry is what an object's managedFields say of the gateway.
type entry struct {
	at     time.Time
	fields [sha256.Size]byte // their checksum
}

func ownEntry(list []metav1.ManagedFieldsEntry, subresource string) (out entry) {
	for _, e := range list {
		if e.Manager == FieldManager && e.Subresource == subresource && e.Time != nil && e.FieldsV1 != nil && !e.Time.Time.Before(out.at) {
			out = entry{e.Time.Time, sha256.Sum256(e.FieldsV1.GetRawBytes())}
		}
	}
	return out
}

// ChangedBy returns the field manager that changed an object, or a subresource of it, since the
// gateway wrote it. If no other has, it was one of the gateway's name: another gateway.
func ChangedBy(list []metav1.ManagedFieldsEntry, subresource string) string {
	var last metav1.ManagedFieldsEntry
	for _, e := range list {
		later := e.Time != nil && (last.Time == nil || e.Time.After(last.Time.Time) || !e.Time.Before(last.Time) && last.Manager == FieldManager)
		if e.Subresource == subresource && (last.Manager == "" || later) {
			last = e
		}
	}
	return last.Manager
}

// Meta returns the metadata in the answer to a write, as far as it has any.
func Meta(r rest.Result) (metav1.ObjectMeta, error) {
	if err := r.Error(); err != nil {
		return metav1.ObjectMeta{}, err
	}
	raw, err := r.Raw()
	if err != nil {
		return metav1.ObjectMeta{}, err
	}
	var x metav1.PartialObjectMetadata
	_ = json.Unmarshal(raw, &x) // the write has succeeded, whatever the answer is
	return x.ObjectMeta, nil
}

// Problems returns what is being changed back, one problem for each namespace and field manager.
func (r *Reverts) Problems(now time.Time) (out []check.OwnProblem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(_ Target, w *written) bool { return w.over(now) })
	type who struct{ namespace, manager string }
	found := map[who]check.OwnProblem{}
	for t, w := range r.known {
		if w.times < revertsTold {
			continue
		}
		k := who{t.Namespace, w.manager}
		p, there := found[k]
		if !there || w.first.Before(p.Since) {
			p.Since = w.first
		}
		p.Name, p.Code = checkName, catalogue.ObjectReverted
		p.Params.Namespace, p.Params.Manager = t.Namespace, w.manager
		p.Params.Names = append(p.Params.Names, t.String())
		p.Params.Reverts, p.Params.Hold = max(p.Params.Reverts, w.times), max(p.Params.Hold, w.hold(now))
		found[k] = p
	}
	for _, p := range found {
		slices.Sort(p.Params.Names)
		if more := len(p.Params.Names) - maxNamed; more > 0 {
			p.Params.Names = append(p.Params.Names[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
		}
		kind, name, _ := strings.Cut(p.Params.Names[0], " ")
		name, _, _ = strings.Cut(name, " ")
		p.Params.Object = kind + " " + name
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b check.OwnProblem) int {
		return strings.Compare(a.Params.Namespace+" "+a.Params.Manager, b.Params.Namespace+" "+b.Params.Manager)
	})
	return out
}

// passing are the fields of a status that change by themselves. They do not tell that somebody
// changed it.
var passing = map[string]bool{"lastTransitionTime": true, "lastSeen": true, "rtt": true, "message": true}

// StatusSum returns the checksum of an object's status for [Reverts.Write]; empty if the object has it
// but for passing fields. Another object of the name has another one: whoever deleted the first and
// made the second has not changed the status back. A new object has no status that was changed.
func StatusSum(o Object, status any) string {
	if o == nil {
		return ""
	}
	var have struct {
		Status any `json:"status"`
	}
	var want any
	if !through(o, &have) || !through(status, &want) || within(want, have.Status) {
		return ""
	}
	lasting(want)
	raw, _ := json.Marshal([]any{o.GetUID(), want}) // it comes from JSON
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// through converts a value by its JSON.
func through(from, to any) bool {
	raw, err := json.Marshal(from)
	return err == nil && json.Unmarshal(raw, to) == nil
}

// within reports whether a JSON value has everything that is wanted, but for passing fields. Others'
// conditions do not count.
func within(want, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		h, is := have.(map[string]any)
		for k, v := range want {
			if is = is && (passing[k] || within(v, h[k])); !is {
				break
			}
		}
		return is
	case []any:
		h, is := have.([]any)
		h = slices.DeleteFunc(slices.Clone(h), func(x any) bool {
			return kindOf(x) != nil && !slices.ContainsFunc(want, func(w any) bool { return kindOf(w) == kindOf(x) })
		})
		return is && slices.EqualFunc(want, h, within)
	}
	return want == have
}

// kindOf returns the type of a condition; nil for another value.
func kindOf(x any) any {
	m, _ := x.(map[string]any)
	return m["type"]
}

// lasting removes the passing fields.
func lasting(x any) {
	switch x := x.(type) {
	case map[string]any:
		maps.DeleteFunc(x, func(k string, _ any) bool { return passing[k] })
		for _, v := range x {
			lasting(v)
		}
	case []any:
		for _, v := range x {
			lasting(v)
		}
	}
}
