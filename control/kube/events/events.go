// Package events writes Kubernetes Events about objects (core/v1), which `kubectl describe` and
// `kubectl get events` show.
//
// # Rules
//
// Events are for people, and nothing waits for them. An event may be refused; a caller that must
// not lose it tries again. Events are queued, up to [queueSize], and written one after the other.
// When the queue is full, further ones are dropped. Each object may have
// [objectBurst] events in a row and then one every [objectEvery], so that a flapping peer does
// not fill the cluster's store. The first event of its kind, by type and reason, within
// [repeatWithin] is always written, so that frequent old events do not suppress a new one. The
// same event of the same object within that time is the same Event with a higher count, which is
// written at most once a minute.
package events

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	queueSize   = 256
	objectBurst = 12
	objectEvery = time.Minute
	// repeatWithin is how long an event is remembered, countEvery how often its count is written.
	repeatWithin = 30 * time.Minute
	countEvery   = time.Minute
	// maxRemembered limits the stored events and objects.
	maxRemembered = 1024
	// maxMessage is the API server's limit for a message in the newer form, in bytes.
	maxMessage = 1024
	// writeTimeout limits one request.
	writeTimeout = 5 * time.Second
	resource     = "events"
	component    = "postern"
)

// Types of events.
const (
	Normal  = corev1.EventTypeNormal
	Warning = corev1.EventTypeWarning
)

// Event describes what happened. Reason is one word in CamelCase.
type Event struct {
	Type, Reason, Message string
}

// Options configure a recorder. Client and Namespace are required.
type Options struct {
	// Client supports core/v1's Event.
	Client    rest.Interface
	Namespace string
	// Instance is the reporter: the gateway's name.
	Instance string
	Logger   *slog.Logger
}

// Recorder writes events. It is safe for concurrent use.
type Recorder struct {
	o     Options
	queue chan entry

	mu      sync.Mutex
	objects map[types.UID]*allowance
	// Owned by Run.
	written map[string]*remembered
}

type entry struct {
	about corev1.ObjectReference
	event Event
	at    time.Time
}

// allowance is an object's rate limit, and the time of the last event of each kind. There are as
// many kinds as reasons, some dozens.
type allowance struct {
	pace    *rate.Limiter
	written map[string]time.Time
}

type remembered struct {
	count       int32
	first, last time.Time
	wrote       time.Time
}

// New returns a recorder that writes while Run runs.
func New(o Options) *Recorder {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Recorder{o: o, queue: make(chan entry, queueSize), objects: map[types.UID]*allowance{}, written: map[string]*remembered{}}
}

// Record queues an event about an object, and reports whether it was queued. It never blocks.
func (r *Recorder) Record(about corev1.ObjectReference, e Event) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.admit(about.UID, e.Type+" "+e.Reason, now) {
		return false
	}
	select {
	case r.queue <- entry{about, e, now}:
		return true
	default:
		return false
	}
}

// admit reports whether the object's rate limit permits an event, or it is the first of its kind;
// r.mu is held.
func (r *Recorder) admit(uid types.UID, kind string, now time.Time) bool {
	a := r.objects[uid]
	if a == nil {
		if len(r.objects) >= maxRemembered {
			r.objects = map[types.UID]*allowance{}
		}
		a = &allowance{pace: rate.NewLimiter(rate.Every(objectEvery), objectBurst), written: map[string]time.Time{}}
		r.objects[uid] = a
	}
	last, told := a.written[kind]
	if !a.pace.AllowN(now, 1) && told && now.Sub(last) < repeatWithin {
		return false
	}
	a.written[kind] = now
	return true
}

// Run writes events until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.queue:
			if err := r.write(ctx, e); err != nil && ctx.Err() == nil {
				r.o.Logger.Debug("failed to write an event", "object", e.about.Kind+"/"+e.about.Name, "reason", e.event.Reason, "error", err)
			}
		}
	}
}

func (r *Recorder) write(ctx context.Context, e entry) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	name := eventName(e)
	m := r.written[name]
	if m == nil || e.at.Sub(m.last) > repeatWithin {
		if len(r.written) >= maxRemembered {
			r.written = map[string]*remembered{}
		}
		m = &remembered{count: 1, first: e.at, last: e.at, wrote: e.at}
		r.written[name] = m
		err := r.create(ctx, name, e, m)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		return r.patch(ctx, name, m) // from an earlier run of this gateway
	}
	m.count, m.last = m.count+1, e.at
	if e.at.Sub(m.wrote) < countEvery {
		return nil
	}
	m.wrote = e.at
	err := r.patch(ctx, name, m)
	if apierrors.IsNotFound(err) { // events live for an hour
		return r.create(ctx, name, e, m)
	}
	return err
}

func (r *Recorder) create(ctx context.Context, name string, e entry, m *remembered) error {
	x := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: r.o.Namespace},
		InvolvedObject: e.about, Type: e.event.Type, Reason: e.event.Reason, Message: cut(e.event.Message),
		FirstTimestamp: metav1.NewTime(m.first), LastTimestamp: metav1.NewTime(m.last), Count: m.count,
		Source: corev1.EventSource{Component: component}, ReportingController: component, ReportingInstance: r.o.Instance,
	}
	return r.o.Client.Post().Namespace(r.o.Namespace).Resource(resource).Body(x).Do(ctx).Error()
}

func (r *Recorder) patch(ctx context.Context, name string, m *remembered) error {
	body, err := json.Marshal(map[string]any{"count": m.count, "lastTimestamp": metav1.NewTime(m.last)})
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return r.o.Client.Patch(types.MergePatchType).Namespace(r.o.Namespace).Resource(resource).Name(name).Body(body).Do(ctx).Error()
}

// eventName returns the same name for the same event of the same object.
func eventName(e entry) string {
	h := sha256.New()
	for _, s := range []string{string(e.about.UID), e.event.Type, e.event.Reason, e.event.Message} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return e.about.Name + "." + hex.EncodeToString(h.Sum(nil)[:8])
}

// cut shortens a message to the limit, at a character boundary.
func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	const more = "…"
	return strings.ToValidUTF8(s[:maxMessage-len(more)], "") + more
}
