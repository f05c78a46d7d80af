package peers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/objects"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

const (
	// secretFresh is the age at which a Secret is read again, secretRetry the same for one that
	// could not be read or is invalid, and secretGap the minimum pause before a repeated read.
	// There is no watch, so the gateway needs no permission to list its namespace's Secrets. 100
	// of them cost 0.2 requests a second.
	secretFresh = time.Minute
	secretRetry = 10 * time.Second
	secretGap   = 5 * time.Second
	// secretTimeout bounds one request.
	secretTimeout = 5 * time.Second
	// secretUse is the label value of Secrets for Peers.
	secretUse = "peer"
)

// secrets caches the Secrets that objects refer to. It is used by one goroutine.
type secrets struct {
	client    rest.Interface
	namespace string
	now       func() time.Time
	read      map[string]*secret
	lastRead  time.Time
	wanted    map[string]bool // since the last sweep
}

type secret struct {
	data map[string][]byte
	at   time.Time
	// err is why there is none; useless says that its contents are invalid.
	err     error
	useless bool
}

func newSecrets(client rest.Interface, namespace string) *secrets {
	return &secrets{client: client, namespace: namespace, now: time.Now, read: map[string]*secret{}, wanted: map[string]bool{}}
}

// get returns a value. A cached one is kept while the API server does not answer.
func (s *secrets) get(ctx context.Context, ref v1alpha1.SecretKey) ([]byte, error) {
	s.wanted[ref.Name] = true
	have := s.read[ref.Name]
	if have == nil {
		have = s.fetch(ctx, ref.Name)
	}
	if have.err != nil {
		return nil, have.err
	}
	value, ok := have.data[ref.Key]
	if !ok {
		return nil, fmt.Errorf("it has no such key (it has %v)", slices.Sorted(maps.Keys(have.data)))
	}
	return value, nil
}

// fetch reads a Secret. It stores nothing of one that a Peer may not use.
func (s *secrets) fetch(ctx context.Context, name string) *secret {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	var x corev1.Secret
	err := s.client.Get().Namespace(s.namespace).Resource("secrets").Name(name).Do(ctx).Into(&x)
	next := &secret{data: x.Data, at: s.now(), err: err}
	var answered apierrors.APIStatus
	if have := s.read[name]; err != nil && have != nil && have.err == nil && (!errors.As(err, &answered) || !apierrors.IsNotFound(err)) {
		next = &secret{data: have.data, at: s.now()}
	}
	if err == nil {
		if err := objects.MayName(&x, secretUse); err != nil {
			next = &secret{at: s.now(), err: err}
		}
	}
	s.read[name], s.lastRead = next, s.now()
	return next
}

// refresh reads the Secret that is due first, if any, and returns when to call it again; 0 if
// there is none. It drops those that are no longer wanted.
func (s *secrets) refresh(ctx context.Context) (next time.Duration) {
	first, at := "", time.Time{}
	for name, x := range s.read {
		if !s.wanted[name] {
			delete(s.read, name)
			continue
		}
		if due := x.due(); first == "" || due.Before(at) {
			first, at = name, due
		}
	}
	if first == "" {
		return 0
	}
	if gap := s.lastRead.Add(secretGap); at.Before(gap) {
		at = gap
	}
	if wait := at.Sub(s.now()); wait > 0 {
		return wait
	}
	s.fetch(ctx, first)
	return secretGap
}

// due returns when to read a Secret again.
func (x *secret) due() time.Time {
	if x.err != nil || x.useless {
		return x.at.Add(secretRetry)
	}
	return x.at.Add(secretFresh)
}

// begin starts a round of get, which records the wanted Secrets.
func (s *secrets) begin() { s.wanted = map[string]bool{} }

// doubt makes a Secret be read again sooner, because its contents are invalid.
func (s *secrets) doubt(name string) {
	if x := s.read[name]; x != nil {
		x.useless = true
	}
}

// forget makes Secrets be read again.
func (s *secrets) forget(refs ...*v1alpha1.SecretKey) {
	for _, ref := range refs {
		if ref != nil {
			delete(s.read, ref.Name)
		}
	}
}
