// Package mirror keeps a copy of one kind's objects in one namespace, by client-go's
// Reflector: a list, then a watch, and both again when the watch breaks.
//
// # Rules
//
// What was seen last stays so long as nothing newer is known: an API server that is away
// takes nothing from anybody. That the copy may be old is said by [Mirror.Err]: why the
// objects are not watched at the moment. It is cleared by a watch that is open, not by a list
// alone, so that a gateway which may list and not watch does not seem to be well every other
// second. The reflector says a refusal again with each try: that is logged at debug level, and
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
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// listTimeout bounds one list. A watch may take as long as it likes.
	listTimeout = 30 * time.Second
)

// Object is what a mirror holds: a pointer to a type of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// Options of a mirror. All but Logger are required.
type Options[T Object] struct {
	// Client knows the type and its list.
	Client   rest.Interface
	Version  schema.GroupVersion
	Resource string
	// Namespace of the objects.
	Namespace string
	// Example is an empty object, NewList makes an empty list.
	Example T
	NewList func() runtime.Object
	// Changed is called when an object came, changed or went, and when Err changed. It must
	// not block.
	Changed func()
	Logger  *slog.Logger
}

// Mirror is a copy of objects. It is safe for concurrent use.
type Mirror[T Object] struct {
	o          Options[T]
	parameters runtime.ParameterCodec

	mu      sync.Mutex
	objects map[string]T // by name
	synced  bool
	err     error
}

// New makes a mirror, which is empty until Run.
func New[T Object](o Options[T]) *Mirror[T] {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, o.Version)
	return &Mirror[T]{o: o, parameters: runtime.NewParameterCodec(scheme), objects: map[string]T{}}
}

// Run keeps the copy until ctx ends.
func (m *Mirror[T]) Run(ctx context.Context) {
	logger := logr.FromSlogHandler(quiet{Handler: m.o.Logger.Handler(), ended: func() bool { return ctx.Err() != nil }})
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return m.list(ctx, o) },
		WatchFuncWithContext: m.watch,
	}, m.o.Example, (*store[T])(m), cache.ReflectorOptions{
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
	out := m.o.NewList()
	err := m.o.Client.Get().Namespace(m.o.Namespace).Resource(m.o.Resource).VersionedParams(&o, m.parameters).Do(limited).Into(out)
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
	w, err := m.o.Client.Get().Namespace(m.o.Namespace).Resource(m.o.Resource).VersionedParams(&o, m.parameters).Watch(ctx)
	// A server that gives no lists by watches is asked for a list next.
	if fallback := o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)); ctx.Err() == nil && !fallback {
		m.note(err)
	}
	return w, err
}

// note remembers how the last request went.
func (m *Mirror[T]) note(err error) {
	m.mu.Lock()
	changed := (err == nil) != (m.err == nil) || err != nil && err.Error() != m.err.Error()
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

// store is the mirror as the reflector fills it.
type store[T Object] Mirror[T]

func (s *store[T]) put(x any) error {
	if v, ok := x.(T); ok {
		s.mu.Lock()
		s.objects[v.GetName()] = v
		s.mu.Unlock()
		s.o.Changed()
	}
	return nil
}

// Add is cache.ReflectorStore's.
func (s *store[T]) Add(x any) error { return s.put(x) }

// Update is cache.ReflectorStore's.
func (s *store[T]) Update(x any) error { return s.put(x) }

// Delete is cache.ReflectorStore's.
func (s *store[T]) Delete(x any) error {
	if v, ok := x.(T); ok {
		s.mu.Lock()
		delete(s.objects, v.GetName())
		s.mu.Unlock()
		s.o.Changed()
	}
	return nil
}

// Replace is cache.ReflectorStore's: what a list has is all there is.
func (s *store[T]) Replace(list []any, _ string) error {
	next := make(map[string]T, len(list))
	for _, x := range list {
		if v, ok := x.(T); ok {
			next[v.GetName()] = v
		}
	}
	s.mu.Lock()
	s.objects, s.synced = next, true
	s.mu.Unlock()
	s.o.Changed()
	return nil
}

// Resync is cache.ReflectorStore's; nobody asks for it.
func (s *store[T]) Resync() error { return nil }
