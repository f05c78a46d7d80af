package exposure

import (
	"cmp"
	"context"
	"fmt"
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

// firstRetry and maxRetry pace the tries when the API server does not answer: what happened
// during an outage is to be known soon after it. retrySteps are the doublings between them.
const (
	firstRetry = 500 * time.Millisecond
	maxRetry   = 10 * time.Second
	retrySteps = 5
)

// object is what a mirror holds.
type object interface {
	metav1.Object
	runtime.Object
}

// source is what a mirror mirrors.
type source struct {
	client    rest.Interface
	resource  string // "services"
	namespace string // empty for what is of no namespace
	fields    string // selectors
	labels    string
}

// mirror holds the objects of a source, cut down to what is read of them. It is the store
// of a reflector, which lists and watches, and safe for concurrent use.
type mirror[T object] struct {
	source  source
	slim    func(T) T
	changed func()

	mu      sync.Mutex
	objects map[string]T
	read    bool
	denied  bool
}

var _ cache.TransformingStore = (*mirror[object])(nil)

func newMirror[T object](s source, slim func(T) T, changed func()) *mirror[T] {
	return &mirror[T]{source: s, slim: slim, changed: changed, objects: map[string]T{}}
}

// run lists and watches until ctx ends. list is an empty list of the type, item an object.
func (m *mirror[T]) run(ctx context.Context, item T, list func() runtime.Object) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list()
			err := m.request(o).Do(ctx).Into(into)
			m.asked(err, false)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := m.request(o).Watch(ctx)
			m.asked(err, true)
			return w, err
		},
	}
	// What fails is known from asked; client-go would repeat it in the log each time.
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(lw, item, m, cache.ReflectorOptions{Name: m.source.resource, Logger: &quiet,
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: maxRetry, Steps: retrySteps, Factor: 2, Jitter: 1}})
	r.RunWithContext(klog.NewContext(ctx, quiet))
}

func (m *mirror[T]) request(o metav1.ListOptions) *rest.Request {
	o.FieldSelector, o.LabelSelector = m.source.fields, m.source.labels
	return m.source.client.Get().Namespace(m.source.namespace).Resource(m.source.resource).VersionedParams(&o, metav1.ParameterCodec)
}

// asked notes whether the API server refuses. That it is away changes nothing, and a list
// alone does not show that the rights suffice.
func (m *mirror[T]) asked(err error, watched bool) {
	denied := apierrors.IsForbidden(err)
	if !denied && (err != nil || !watched) {
		return
	}
	m.mu.Lock()
	other := denied != m.denied
	m.denied = denied
	m.mu.Unlock()
	if other {
		m.changed()
	}
}

// known is what is held, in the order of names.
func (m *mirror[T]) known() known[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := known[T]{read: m.read, denied: m.denied, list: make([]T, 0, len(m.objects))}
	for _, o := range m.objects {
		k.list = append(k.list, o)
	}
	slices.SortFunc(k.list, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return k
}

// settled reports whether it is known what there is, or that it cannot be.
func (m *mirror[T]) settled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read || m.denied
}

// Transformer is cache.TransformingStore's: objects are cut down as they arrive.
func (m *mirror[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if x, ok := o.(T); ok {
			return m.slim(x), nil
		}
		return o, nil
	}
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// Add is cache.ReflectorStore's.
func (m *mirror[T]) Add(o any) error { return m.Update(o) }

// Update is cache.ReflectorStore's.
func (m *mirror[T]) Update(o any) error {
	x, ok := o.(T)
	if !ok {
		return fmt.Errorf("%s: an object of type %T", m.source.resource, o)
	}
	x = m.slim(x)
	m.mu.Lock()
	m.objects[key(x)] = x
	m.mu.Unlock()
	m.changed()
	return nil
}

// Delete is cache.ReflectorStore's.
func (m *mirror[T]) Delete(o any) error {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	x, ok := o.(T)
	if !ok {
		return fmt.Errorf("%s: an object of type %T", m.source.resource, o)
	}
	m.mu.Lock()
	delete(m.objects, key(x))
	m.mu.Unlock()
	m.changed()
	return nil
}

// Replace is cache.ReflectorStore's.
func (m *mirror[T]) Replace(list []any, _ string) error {
	next := make(map[string]T, len(list))
	for _, o := range list {
		x, ok := o.(T)
		if !ok {
			return fmt.Errorf("%s: an object of type %T", m.source.resource, o)
		}
		x = m.slim(x)
		next[key(x)] = x
	}
	m.mu.Lock()
	m.objects, m.read = next, true
	m.mu.Unlock()
	m.changed()
	return nil
}

// Resync is cache.ReflectorStore's; there is nothing to be done.
func (m *mirror[T]) Resync() error { return nil }
