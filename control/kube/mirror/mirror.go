// Package mirror keeps a copy of one kind's objects in one namespace or in all, or of a kind
// without namespaces, by client-go's Reflector: a list, then a watch, and both again when the watch
// breaks.
//
// # Rules
//
// What was seen last stays so long as nothing newer is known: an API server that is away
// takes nothing from anyone. That the copy may be old is said by [Mirror.Err]: why the
// objects are not watched at the moment. It is cleared by a watch that is open, not by a list
// alone, so that a gateway which may list and not watch does not seem to be well every other
// second. [Mirror.Denied] tells a refusal apart, which outlasts an outage. The reflector says a refusal again with each try: that is logged at debug level, and
// whoever uses the mirror says what it means.
package mirror

import (
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
	// firstRetry and maxRetry pace the tries when the API server does not answer: soon
	// enough that what an operator applies after an outage is seen at once, seldom enough
	// not to matter.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 10 * time.Second
	// sure is for how long an API server has to refuse what it gave before, until that is believed:
	// one that starts refuses everything until it has read its roles.
	sure = 15 * time.Second
	// listTimeout bounds one list. A watch may take as long as it likes.
	listTimeout = 30 * time.Second
)

// Object is what a mirror holds: a pointer to a type of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// Options of a mirror. Client, Resource, List and Changed are required.
type Options[T Object] struct {
	// Client knows the type and its list.
	Client   rest.Interface
	Resource string
	// Namespace of the objects; empty for a kind without namespaces, and for those of all
	// namespaces, which are told apart as NAMESPACE/NAME.
	Namespace string
	// Fields and Labels select among them; empty takes all.
	Fields, Labels string
	// List is an empty list of the type.
	List runtime.Object
	// Slim cuts an object down to what is read of it, so that the rest takes no memory; nil
	// keeps all. What is slim already stays as it is.
	Slim func(T) T
	// Changed is called when an object came, changed or went, and when Err changed. It must
	// not block.
	Changed func()
	// Logger gets what the reflector logs; nil drops it.
	Logger *slog.Logger
}

// Mirror is a copy of objects, and the store of the reflector that fills it. It is safe for
// concurrent use.
type Mirror[T Object] struct {
	o Options[T]

	mu      sync.Mutex
	objects map[string]T // by key
	synced  bool
	refused time.Time // since when it is, without an answer in between
	denied  bool
	err     error
}

var _ cache.TransformingStore = (*Mirror[Object])(nil)

// New makes a mirror, which is empty until Run.
func New[T Object](o Options[T]) *Mirror[T] {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
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

// List asks for all objects once, without the copy.
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
	// A server that gives no lists by watches is asked for a list next.
	if fallback := o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)); ctx.Err() == nil && !fallback {
		m.note(err)
	}
	return w, err
}

func (m *Mirror[T]) request(o metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = m.o.Fields, m.o.Labels
	return m.o.Client.Get().Namespace(m.o.Namespace).Resource(m.o.Resource).VersionedParams(&o, metav1.ParameterCodec)
}

// note remembers how the last request went.
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
	case !m.denied: // whoever refuses next may have started since
		m.refused = time.Time{}
	}
	changed := was != m.denied || (err == nil) != (m.err == nil) || err != nil && err.Error() != m.err.Error()
	m.err = err
	m.mu.Unlock()
	if changed {
		m.o.Changed()
	}
}

// Err says why the objects are not watched now; nil when they are, and before the first try.
func (m *Mirror[T]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Denied reports whether the API server refuses to list or to watch the objects, and has done so for
// a while if it gave them before. That it is away since then changes nothing.
func (m *Mirror[T]) Denied() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.denied
}

// key is an object's name, with its namespace where there are several.
func (m *Mirror[T]) key(x T) string {
	if m.o.Namespace == "" && x.GetNamespace() != "" {
		return x.GetNamespace() + "/" + x.GetName()
	}
	return x.GetName()
}

// Objects are those seen last, by name; not to be changed. synced is false until they were
// all seen once.
func (m *Mirror[T]) Objects() (list []T, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		list = append(list, m.objects[name])
	}
	return list, m.synced
}

// Get is the object of a name as seen last, nil if there is none; not to be changed. synced is
// as of Objects.
func (m *Mirror[T]) Get(name string) (object T, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[name], m.synced
}

// Transformer is cache.TransformingStore's: objects are cut down as they arrive.
func (m *Mirror[T]) Transformer() cache.TransformFunc {
	return func(x any) (any, error) {
		if v, ok := x.(T); ok {
			return m.o.Slim(v), nil
		}
		return x, nil
	}
}

// Add is cache.ReflectorStore's.
func (m *Mirror[T]) Add(x any) error { return m.Update(x) }

// Update is cache.ReflectorStore's.
func (m *Mirror[T]) Update(x any) error {
	if v, ok := x.(T); ok {
		m.mu.Lock()
		m.objects[m.key(v)] = m.o.Slim(v)
		m.mu.Unlock()
		m.o.Changed()
	}
	return nil
}

// Delete is cache.ReflectorStore's.
func (m *Mirror[T]) Delete(x any) error {
	if v, ok := x.(T); ok {
		m.mu.Lock()
		delete(m.objects, m.key(v))
		m.mu.Unlock()
		m.o.Changed()
	}
	return nil
}

// Replace is cache.ReflectorStore's: what a list has is all there is.
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

// Resync is cache.ReflectorStore's; nobody asks for it.
func (m *Mirror[T]) Resync() error { return nil }
