// Package mirror keeps a copy of one kind's objects in one namespace or in all, or of a kind
// without namespaces, with client-go's Reflector: a list, then a watch, and both again when the
// watch breaks.
//
// # Rules
//
// The last seen objects stay until something newer is known: an unreachable API server takes
// nothing away. [Mirror.Err] says that the copy may be old: why the objects are not being
// watched. Only an open watch clears it, not a list. Otherwise a gateway that may list but not
// watch would seem healthy every other second. [Mirror.Denied] reports a refusal, which outlasts
// an outage. The reflector logs a refusal with each try; that is lowered to debug level, and the
// mirror's user says what it means.
package mirror

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// firstRetry and maxRetry limit the interval of retries while the API server does not answer:
	// short enough that what an operator applies after an outage is seen at once, long enough not
	// to matter.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 10 * time.Second
	// sure is how long an API server must refuse what it granted before until that counts: a
	// starting one refuses everything until it has read its roles.
	sure = 15 * time.Second
	// listTimeout limits one list. A watch has no limit.
	listTimeout = 30 * time.Second
)

// Object is a mirrored object: a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.Object
}

// Options configure a mirror. Client, Resource, List and Changed are required.
type Options[T Object] struct {
	// Client supports the type and its list.
	Client   rest.Interface
	Resource string
	// Namespace of the objects; empty for a kind without namespaces, and for objects of all
	// namespaces, whose keys are NAMESPACE/NAME.
	Namespace string
	// Fields and Labels select objects; empty means all.
	Fields, Labels string
	// List is an empty list of the type.
	List runtime.Object
	// Slim reduces an object to the fields that are read, to save memory; nil keeps all. It must
	// not change an already reduced object.
	Slim func(T) T
	// Changed is called when an object was added, changed or deleted, and when Err changed. It
	// must not block.
	Changed func()
	// Logger gets the reflector's log; nil discards it.
	Logger *slog.Logger
}

// Mirror is a copy of objects, and the store of the reflector that fills it. It is safe for
// concurrent use.
type Mirror[T Object] struct {
	o Options[T]

	mu      sync.Mutex
	objects map[string]T // by key
	synced  bool
	refused time.Time // since when, without any other answer
	denied  bool
	err     error
}

var _ cache.TransformingStore = (*Mirror[Object])(nil)

// New returns a mirror, which is empty until Run.
func New[T Object](o Options[T]) *Mirror[T] {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Slim == nil {
		o.Slim = func(x T) T { return x }
	}
	return &Mirror[T]{o: o, objects: map[string]T{}}
}

// Run keeps the copy until ctx ends.
func (m *Mirror[T]) Run(ctx context.Context) {
	logger := logr.FromSlogHandler(quiet{Handler: m.o.Logger.Handler(), ended: func() bool { return ctx.Err() != nil }})
	var example T
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return m.list(ctx, o) },
		WatchFuncWithContext: m.watch,
	}, example, m, cache.ReflectorOptions{
		Name: m.o.Resource, Logger: &logger,
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: maxRetry, Steps: 10, Factor: 2, Jitter: 0.5},
	})
	r.RunWithContext(klog.NewContext(ctx, logger))
}

// List lists all objects once, without changing the copy.
func (m *Mirror[T]) List(ctx context.Context) (runtime.Object, error) {
	return m.list(ctx, metav1.ListOptions{})
}

func (m *Mirror[T]) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	out := m.o.List.DeepCopyObject()
	err := m.request(o).Do(limited).Into(out)
	if err != nil {
		if ctx.Err() == nil { // as in watch: its end is no failure
			m.note(err)
		}
		return nil, err
	}
	return out, nil
}

func (m *Mirror[T]) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := m.request(o).Watch(ctx)
	// If a server does not support lists by watches, or no longer has the version to watch from, the
	// reflector lists next.
	lists := o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) ||
		apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	if ctx.Err() == nil && !lists {
		m.note(err)
	}
	return w, err
}

func (m *Mirror[T]) request(o metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = m.o.Fields, m.o.Labels
	return m.o.Client.Get().Namespace(m.o.Namespace).Resource(m.o.Resource).VersionedParams(&o, metav1.ParameterCodec)
}

// note records the result of the last request.
func (m *Mirror[T]) note(err error) {
	m.mu.Lock()
	was := m.denied
	switch {
	case err == nil:
		m.refused, m.denied = time.Time{}, false
	case apierrors.IsForbidden(err):
		if m.refused.IsZero() {
			m.refused = time.Now()
		}
		m.denied = m.denied || !m.synced || time.Since(m.refused) >= sure
	case !m.denied: // a server that refuses next may just have started
		m.refused = time.Time{}
	}
	changed := was != m.denied || (err == nil) != (m.err == nil) || err != nil && err.Error() != m.err.Error()
	m.err = err
	m.mu.Unlock()
	if changed {
		m.o.Changed()
	}
}

// Err says why the objects are not being watched; nil if they are, and before the first try.
func (m *Mirror[T]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Denied reports whether the API server refuses to list or to watch the objects; if it granted
// that before, only once it has refused for a while. A later outage does not change it.
func (m *Mirror[T]) Denied() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.denied
}

// key returns an object's name, with its namespace if there are several.
func (m *Mirror[T]) key(x T) string {
	if m.o.Namespace == "" && x.GetNamespace() != "" {
		return x.GetNamespace() + "/" + x.GetName()
	}
	return x.GetName()
}

// Objects returns the last seen objects by name; they must not be changed. synced is false until
// all were seen once.
func (m *Mirror[T]) Objects() (list []T, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		list = append(list, m.objects[name])
	}
	return list, m.synced
}

// Get returns the last seen object with the name, nil if there is none; it must not be changed.
// synced is as in Objects.
func (m *Mirror[T]) Get(name string) (object T, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[name], m.synced
}

// Transformer implements cache.TransformingStore: objects are reduced as they arrive.
func (m *Mirror[T]) Transformer() cache.TransformFunc {
	return func(x any) (any, error) {
		if v, ok := x.(T); ok {
			return m.o.Slim(v), nil
		}
		return x, nil
	}
}

// Add implements cache.ReflectorStore.
func (m *Mirror[T]) Add(x any) error { return m.Update(x) }

// Update implements cache.ReflectorStore.
func (m *Mirror[T]) Update(x any) error {
	if v, ok := x.(T); ok {
		m.mu.Lock()
		m.objects[m.key(v)] = m.o.Slim(v)
		m.mu.Unlock()
		m.o.Changed()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *Mirror[T]) Delete(x any) error {
	if v, ok := x.(T); ok {
		m.mu.Lock()
		delete(m.objects, m.key(v))
		m.mu.Unlock()
		m.o.Changed()
	}
	return nil
}

// Replace implements cache.ReflectorStore: a list contains all objects.
func (m *Mirror[T]) Replace(list []any, _ string) error {
	next := make(map[string]T, len(list))
	for _, x := range list {
		if v, ok := x.(T); ok {
			next[m.key(v)] = m.o.Slim(v)
		}
	}
	m.mu.Lock()
	m.objects, m.synced = next, true
	m.mu.Unlock()
	m.o.Changed()
	return nil
}

// Resync implements cache.ReflectorStore; it is never called.
func (m *Mirror[T]) Resync() error { return nil }
