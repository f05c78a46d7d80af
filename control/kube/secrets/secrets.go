package secrets

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube"
	answers "github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// Type of the Secrets.
	Type corev1.SecretType = "postern.dev/state"
	// WriterAnnotation identifies the current writer.
	WriterAnnotation = "postern.dev/writer"

	labelInstance  = "app.kubernetes.io/instance"
	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"

	resource = "secrets"
	// tries bounds the attempts of a write while the object changes.
	tries = 4
)

// ErrTooLarge: the files of one Secret exceed its maximum size.
var ErrTooLarge = errors.New("more than the 1 MiB that a Secret holds")

// places maps each file to its object, by the suffix of its name.
var places = map[string]string{
	"private.key":     "key",
	"peers.json":      "peers",
	"tickets.json":    "tickets",
	"identities.json": "identities",
	"observed.json":   "learned",
	"boots.json":      "learned",
	"relays.json":     "learned",
	"overlay.json":    "learned",
	"trial.json":      "learned",
}

// parts are the suffixes of the objects' names, sorted.
var parts = slices.Compact(slices.Sorted(maps.Values(places)))

// Names returns the names of a release's Secrets.
func Names(release string) []string {
	out := make([]string, 0, len(parts))
	for _, p := range parts {
		out = append(out, release+"-state-"+p)
	}
	return out
}

// Options configure a Backend. Release and Term are required.
type Options struct {
	// Release is the prefix of the names.
	Release string
	// Term is the value of the annotation. It must be unique among all gateways and terms
	// (lease.Lease.Term).
	Term string
	// Owner is the owner of the Secrets, with which they are deleted: the StatefulSet. Without a
	// UID they have no owner, and stay.
	Owner metav1.OwnerReference
	// HadKey is the last known key of the release's gateway; zero if unknown.
	HadKey peer.PublicKey
	// OnFenced is called once, when another gateway has taken over. It must not block. It may be
	// nil; writers get the error anyway.
	OnFenced func()
	// Logger may be nil.
	Logger *slog.Logger
}

// Backend stores the files of one gateway in one term. It is safe for concurrent use: calls for
// one object wait for each other.
type Backend struct {
	o         Options
	api       objects
	namespace string
	logger    *slog.Logger

	turn chan struct{} // one slot: held by whoever talks to the API server
	// Owned by the holder of turn.
	seen   map[string]*corev1.Secret // by name, as last seen; without missing ones
	unsure map[string]bool           // by name, whether a write since the last one that was kept may have arrived
	made   map[string]time.Time      // by name, when a deleted or changed one was restored
	// manager is the field manager that changed one last; empty if none did.
	manager string
	fenced  bool
}

var (
	_ state.Backend = (*Backend)(nil)
	_ state.Tenure  = (*Backend)(nil)
	_ state.Witness = (*Backend)(nil)
)

// New returns a backend. It sends no request yet.
func New(c *kube.Cluster, o Options) (*Backend, error) {
	api, err := newRemote(c)
	if err != nil {
		return nil, err
	}
	b, err := newBackend(api, o)
	if err == nil {
		b.namespace = c.Namespace()
	}
	return b, err
}

func newBackend(api objects, o Options) (*Backend, error) {
	if o.Release == "" || o.Term == "" {
		return nil, errors.New("keep state in Secrets: a release and a term are needed")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Backend{o: o, api: api, logger: o.Logger, turn: make(chan struct{}, 1), seen: map[string]*corev1.Secret{}, unsure: map[string]bool{}, made: map[string]time.Time{}}, nil
}

// Term returns that of the options.
func (b *Backend) Term() string { return b.o.Term }

// HadKey returns that of the options.
func (b *Backend) HadKey() peer.PublicKey { return b.o.HadKey }

// lock waits for the turn until ctx ends.
func (b *Backend) lock(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Backend) unlock() { <-b.turn }

// Load reads all files and makes this backend their only writer.
func (b *Backend) Load(ctx context.Context) (map[string][]byte, error) {
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	out := make(map[string][]byte)
	for _, name := range Names(b.o.Release) {
		if err := b.claim(ctx, name); err != nil {
			return nil, b.explain("read", name, err)
		}
		for file, data := range b.seen[name].Data {
			if b.o.Release+"-state-"+places[file] == name {
				out[file] = data
			}
		}
	}
	return out, nil
}

// claim makes this backend the writer of the current version of an object. It creates a missing
// one, empty: otherwise an earlier writer could still create it.
func (b *Backend) claim(ctx context.Context, name string) (err error) {
	for range tries {
		var have, got *corev1.Secret
		have, err = b.api.get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			have = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: Type}
		case err != nil:
			return err
		case have.Type != Type:
			return foreign(have)
		}
		b.mark(have)
		if got, err = b.put(ctx, have); err == nil {
			b.seen[name] = got
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return fmt.Errorf("it changes all the time, as when two gateways take it from each other: %w", err)
}

// labels returns those of a release's Secrets.
func labels(release string) map[string]string {
	return map[string]string{labelInstance: release, labelName: "postern", labelManagedBy: "postern"}
}

// mark sets labels, writer and owner of an object.
func (b *Backend) mark(x *corev1.Secret) {
	if x.Labels == nil {
		x.Labels = map[string]string{}
	}
	maps.Copy(x.Labels, labels(b.o.Release))
	if x.Annotations == nil {
		x.Annotations = map[string]string{}
	}
	x.Annotations[WriterAnnotation] = b.o.Term
	owner := b.o.Owner
	if owner.UID == "" {
		return
	}
	x.OwnerReferences = slices.DeleteFunc(x.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == owner.Kind && r.Name == owner.Name
	})
	x.OwnerReferences = append(x.OwnerReferences, owner)
}

// Save writes one file.
func (b *Backend) Save(ctx context.Context, file string, data []byte) error {
	part, ok := places[file]
	if !ok {
		return fmt.Errorf("there is no Secret for a file %q", file)
	}
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.fenced {
		return state.ErrFenced
	}
	name := b.o.Release + "-state-" + part
	return b.settle(name, b.save(ctx, name, file, data))
}

// settle interprets the result of a write. If another gateway has taken over, it calls OnFenced
// once. The caller has the turn.
func (b *Backend) settle(name string, err error) error {
	if errors.Is(err, state.ErrFenced) {
		b.fenced = true
		b.logger.Warn("another gateway has taken over the state; stopping",
			slog.String("secret", name), slog.Any("error", err))
		if b.o.OnFenced != nil {
			b.o.OnFenced()
		}
	}
	if err != nil {
		return b.explain("write", name, err)
	}
	return nil
}

func (b *Backend) save(ctx context.Context, name, file string, data []byte) (err error) {
	for range tries {
		var next, got *corev1.Secret
		if next, err = b.with(name, file, data); err != nil {
			return err
		}
		got, err = b.put(ctx, next)
		switch {
		case err == nil:
			b.seen[name] = got
			delete(b.unsure, name) // whatever was sent before is for an older version
			return nil
		case mayHaveArrived(err):
			b.unsure[name] = true
			return err
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
			return err
		}
		if _, err := b.lookAgain(ctx, name); err != nil {
			return err
		}
	}
	return fmt.Errorf("it changes all the time, so something else writes it: %w", err)
}

// mayHaveArrived reports whether a write that failed may have taken effect: there was no answer, or
// the API server had none from its storage.
func mayHaveArrived(err error) bool {
	var answered apierrors.APIStatus
	return !errors.As(err, &answered) || answered.Status().Code >= http.StatusInternalServerError
}

// put creates an object or replaces the version that was seen.
func (b *Backend) put(ctx context.Context, x *corev1.Secret) (*corev1.Secret, error) {
	if x.ResourceVersion == "" {
		return b.api.create(ctx, x)
	}
	return b.api.update(ctx, x)
}

// with returns the last seen object, or a new one, with one file replaced; file may be "".
func (b *Backend) with(name, file string, data []byte) (*corev1.Secret, error) {
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: Type}
	if have := b.seen[name]; have != nil {
		next = have.DeepCopy()
	}
	b.mark(next)
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	if file != "" {
		next.Data[file] = bytes.Clone(data)
	}
	size := 0
	for _, v := range next.Data {
		size += len(v)
	}
	if size > corev1.MaxSecretSize {
		return nil, fmt.Errorf("%w: %s would make it %d bytes (remove peers or tickets that nobody needs, or give this gateway a spec.stateDir on a volume)", ErrTooLarge, file, size)
	}
	return next, nil
}

// lookAgain reads an object, and reports whether it lacks what it should contain. If another
// gateway writes it, the error is a state.ErrFenced. An object with our term is ours, even if this
// process has not seen it before.
func (b *Backend) lookAgain(ctx context.Context, name string) (lacks bool, err error) {
	have, err := b.api.get(ctx, name)
	old := b.seen[name]
	switch {
	case apierrors.IsNotFound(err): // deleted; it is recreated with all its contents
		if old == nil {
			return false, nil
		}
		b.seen[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: Type, Data: old.Data}
		if old.ResourceVersion != "" { // otherwise this was reported before, and it cannot be created yet
			b.made[name] = time.Now()
			b.logger.Warn("recreated a deleted Secret of the gateway's state; to remove the gateway, uninstall it",
				slog.String("code", string(catalogue.StateDeleted)), slog.String("secret", name))
		}
		return true, nil
	case err != nil:
		return false, err
	case have.Type != Type:
		return false, foreign(have)
	case have.Annotations[WriterAnnotation] != b.o.Term:
		return false, fmt.Errorf("%w: its writer is %q", state.ErrFenced, have.Annotations[WriterAnnotation])
	}
	if old != nil { // discard what someone else has changed in the data
		lacks = !maps.EqualFunc(have.Data, old.Data, bytes.Equal)
		if lacks && !b.unsure[name] { // otherwise it may be this gateway's own write
			b.made[name], b.manager = time.Now(), answers.ChangedBy(have.ManagedFields, "")
			if b.manager == answers.FieldManager { // others that only remove something have no entry
				b.manager = ""
			}
			b.logger.Warn("wrote over a Secret of the gateway's state that somebody changed; only commands of postern change the state",
				slog.String("code", string(catalogue.StateDeleted)), slog.String("secret", name), slog.String("fieldManager", b.manager))
		}
		have.Data = maps.Clone(old.Data)
	}
	b.seen[name] = have
	return lacks, nil
}

func foreign(x *corev1.Secret) error {
	return fmt.Errorf("it is of type %q and not this gateway's (delete it, or give spec.kubernetes.release another name)", x.Type)
}

// requestError is a failed request for a Secret. Its text has advice.
type requestError struct {
	error
	params catalogue.Params
}

// Unwrap returns the error without what refused the request.
func (e requestError) Unwrap() error { return e.error }

// Params says which Secret it is about, and what refuses it.
func (e requestError) Params() catalogue.Params { return e.params }

// explain adds advice to the error of a request.
func (b *Backend) explain(verb, name string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, state.ErrFenced), errors.Is(err, ErrTooLarge):
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		hint = " (the namespace is being deleted)"
	case apierrors.IsForbidden(err) && answers.Failure(err) == "":
		hint = " (the gateway's Role needs secrets get and update for this name, and create; the chart gives it)"
	case apierrors.IsUnauthorized(err):
		hint = " (see that the gateway's ServiceAccount exists)"
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		hint = " (the API server gives no answer; see that it runs)"
	}
	e := requestError{error: fmt.Errorf("%s the Secret %s: %w%s", verb, name, err, hint)}
	e.params = answers.Problem(err, resource, b.namespace).Params
	e.params.Object = "Secret " + name
	if errors.Is(err, ErrTooLarge) {
		e.params.Failure = catalogue.FailureFull
	}
	return e
}

// objects are the requests to the API server.
type objects interface {
	get(ctx context.Context, name string) (*corev1.Secret, error)
	create(ctx context.Context, x *corev1.Secret) (*corev1.Secret, error)
	update(ctx context.Context, x *corev1.Secret) (*corev1.Secret, error)
}

// remote is a real API server.
type remote struct {
	client    rest.Interface
	namespace string
}

func newRemote(c *kube.Cluster) (remote, error) {
	client, err := c.Group(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{})
	return remote{client, c.Namespace()}, err
}

func (r remote) get(ctx context.Context, name string) (*corev1.Secret, error) {
	var out corev1.Secret
	err := r.client.Get().Namespace(r.namespace).Resource(resource).Name(name).Do(ctx).Into(&out)
	return &out, err
}

func (r remote) create(ctx context.Context, x *corev1.Secret) (*corev1.Secret, error) {
	var out corev1.Secret
	err := r.client.Post().Namespace(r.namespace).Resource(resource).Body(x).Do(ctx).Into(&out)
	return &out, err
}

func (r remote) update(ctx context.Context, x *corev1.Secret) (*corev1.Secret, error) {
	var out corev1.Secret
	err := r.client.Put().Namespace(r.namespace).Resource(resource).Name(x.Name).Body(x).Do(ctx).Into(&out)
	return &out, err
}
