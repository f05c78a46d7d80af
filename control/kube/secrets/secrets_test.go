package secrets

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

var group = schema.GroupResource{Resource: "secrets"}

// vault is an API server's Secrets, with faults.
type vault struct {
	mu      sync.Mutex
	objects map[string]*corev1.Secret
	version int
	asked   int
	// fault returns the error of the n-th request, from 1, and whether the request takes effect
	// nevertheless. nil: no faults.
	fault func(n int) (err error, after bool)
}

func newVault() *vault { return &vault{objects: map[string]*corev1.Secret{}} }

// ask executes a request, subject to faults.
func (v *vault) ask(do func() (*corev1.Secret, error)) (*corev1.Secret, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	if v.fault != nil {
		if err, after := v.fault(v.asked); err != nil {
			if after {
				_, _ = do()
			}
			return nil, err
		}
	}
	out, err := do()
	return out.DeepCopy(), err
}

func (v *vault) keep(x *corev1.Secret) *corev1.Secret {
	v.version++
	x = x.DeepCopy()
	x.ResourceVersion = strconv.Itoa(v.version)
	v.objects[x.Name] = x
	return x
}

func (v *vault) get(_ context.Context, name string) (*corev1.Secret, error) {
	return v.ask(func() (*corev1.Secret, error) {
		if x := v.objects[name]; x != nil {
			return x, nil
		}
		return nil, apierrors.NewNotFound(group, name)
	})
}

func (v *vault) create(_ context.Context, x *corev1.Secret) (*corev1.Secret, error) {
	return v.ask(func() (*corev1.Secret, error) {
		if v.objects[x.Name] != nil {
			return nil, apierrors.NewAlreadyExists(group, x.Name)
		}
		return v.keep(x), nil
	})
}

func (v *vault) update(_ context.Context, x *corev1.Secret) (*corev1.Secret, error) {
	return v.ask(func() (*corev1.Secret, error) {
		switch have := v.objects[x.Name]; {
		case have == nil:
			return nil, apierrors.NewNotFound(group, x.Name)
		case have.ResourceVersion != x.ResourceVersion:
			return nil, apierrors.NewConflict(group, x.Name, errors.New("the object has been modified"))
		}
		return v.keep(x), nil
	})
}

// edit changes an object as someone else would.
func (v *vault) edit(name string, f func(*corev1.Secret)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x := v.objects[name].DeepCopy()
	f(x)
	v.keep(x)
}

func backend(t *testing.T, v *vault, term string) *Backend {
	t.Helper()
	b, err := newBackend(v, Options{
		Release: "postern", Term: term,
		Owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "postern", UID: "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func load(t *testing.T, b *Backend) map[string]string {
	t.Helper()
	files, err := b.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, data := range files {
		out[name] = string(data)
	}
	return out
}

func save(t *testing.T, b *Backend, file, text string) {
	t.Helper()
	if err := b.Save(t.Context(), file, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestFilesComeBackFromTheirSecrets(t *testing.T) {
	v := newVault()
	b := backend(t, v, "a")
	if got := load(t, b); len(got) != 0 {
		t.Errorf("a new release has %v", got)
	}
	for file := range places {
		save(t, b, file, "it is "+file)
	}
	got := load(t, backend(t, v, "b"))
	for file := range places {
		if got[file] != "it is "+file {
			t.Errorf("%s: got %q", file, got[file])
		}
	}
	if len(got) != len(places) || len(v.objects) != len(parts) {
		t.Errorf("%d files in %d Secrets, want %d in %d", len(got), len(v.objects), len(places), len(parts))
	}
	for name, x := range v.objects {
		if x.Type != Type || x.Labels[labelInstance] != "postern" || x.Annotations[WriterAnnotation] != "b" ||
			len(x.OwnerReferences) != 1 || x.OwnerReferences[0].UID != "1" {
			t.Errorf("%s is %+v", name, x)
		}
	}
}

func TestTheOwnerThatWasMadeAnewOwnsThem(t *testing.T) {
	v := newVault()
	load(t, backend(t, v, "a"))
	b := backend(t, v, "b")
	b.o.Owner.UID = "2"
	load(t, b)
	for name, x := range v.objects {
		if len(x.OwnerReferences) != 1 || x.OwnerReferences[0].UID != "2" {
			t.Errorf("%s belongs to %+v", name, x.OwnerReferences)
		}
	}
}

func TestWhoeverLoadsFencesWhoeverWrote(t *testing.T) {
	for file := range places {
		t.Run(file, func(t *testing.T) {
			v := newVault()
			fenced := 0
			old := backend(t, v, "a")
			old.o.OnFenced = func() { fenced++ }
			load(t, old)
			heir := backend(t, v, "b")
			load(t, heir)
			for range 2 {
				if err := old.Save(t.Context(), file, []byte("old")); !errors.Is(err, state.ErrFenced) {
					t.Errorf("got %v, want %v", err, state.ErrFenced)
				}
			}
			save(t, heir, file, "new")
			if got := load(t, backend(t, v, "c"))[file]; got != "new" || fenced != 1 {
				t.Errorf("the file is %q and the old one was told %d times", got, fenced)
			}
		})
	}
}

func TestOwnWritesWhoseAnswerWasLostAreNoOtherGateways(t *testing.T) {
	away := errors.New("connection reset by peer")
	v := newVault()
	b := backend(t, v, "a")
	load(t, b)
	v.fault = func(int) (error, bool) { return away, true }
	if err := b.Save(t.Context(), "peers.json", []byte("lost")); !errors.Is(err, away) || errors.Is(err, state.ErrFenced) {
		t.Errorf("got %v, want %v", err, away)
	}
	v.fault = nil
	save(t, b, "peers.json", "next")
	if got := load(t, backend(t, v, "b"))["peers.json"]; got != "next" {
		t.Errorf("got %q", got)
	}
}

// A container that restarts while the API server is unreachable only has its term.
func TestWritingWithoutHavingLoaded(t *testing.T) {
	v := newVault()
	b := backend(t, v, "a")
	load(t, b)
	save(t, b, "boots.json", "7")
	save(t, backend(t, v, "a"), "relays.json", "r")
	if got := load(t, b); got["boots.json"] != "7" || got["relays.json"] != "r" {
		t.Errorf("the files are %v", got)
	}
	if err := backend(t, v, "b").Save(t.Context(), "relays.json", []byte("x")); !errors.Is(err, state.ErrFenced) {
		t.Errorf("in another term: got %v, want %v", err, state.ErrFenced)
	}
}

func TestWhatOthersDoToASecret(t *testing.T) {
	const name = "postern-state-learned"
	for what, c := range map[string]struct {
		do   func(*vault)
		want string // in the error; empty: none
	}{
		"a label":  {do: func(v *vault) { v.edit(name, func(x *corev1.Secret) { x.Labels["team"] = "net" }) }},
		"contents": {do: func(v *vault) { v.edit(name, func(x *corev1.Secret) { x.Data["boots.json"] = []byte("mine") }) }},
		"deletion": {do: func(v *vault) { delete(v.objects, name) }},
		"another type": {
			do: func(v *vault) {
				v.edit(name, func(x *corev1.Secret) { x.Type = corev1.SecretTypeOpaque })
			},
			want: "not this gateway's",
		},
	} {
		t.Run(what, func(t *testing.T) {
			v := newVault()
			b := backend(t, v, "a")
			load(t, b)
			save(t, b, "boots.json", "7")
			c.do(v)
			err := b.Save(t.Context(), "relays.json", []byte("r"))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := load(t, backend(t, v, "b")); got["boots.json"] != "7" || got["relays.json"] != "r" {
				t.Errorf("the files are %v", got)
			}
			if what == "a label" && v.objects[name].Labels["team"] != "net" {
				t.Error("someone's label is gone")
			}
		})
	}
}

func TestSomebodyElsesSecretIsNotTouched(t *testing.T) {
	v := newVault()
	v.keep(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "postern-state-key"}, Type: corev1.SecretTypeOpaque})
	if _, err := backend(t, v, "a").Load(t.Context()); err == nil || !strings.Contains(err.Error(), "postern-state-key") || !strings.Contains(err.Error(), "spec.kubernetes.release") {
		t.Errorf("got %v, want an error that names it", err)
	}
	if x := v.objects["postern-state-key"]; len(x.Annotations)+len(x.Labels) > 0 {
		t.Error("it was changed")
	}
}

func TestWhatIsTooLargeIsNotSent(t *testing.T) {
	v := newVault()
	b := backend(t, v, "a")
	load(t, b)
	asked := v.asked
	err := b.Save(t.Context(), "peers.json", make([]byte, corev1.MaxSecretSize+1))
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "postern-state-peers") || v.asked != asked {
		t.Errorf("got %v after %d requests, want %v and none", err, v.asked-asked, ErrTooLarge)
	}
	if err := b.Save(t.Context(), "peers.json", make([]byte, corev1.MaxSecretSize)); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(group, "x", errors.New(`User "u" cannot get resource "secrets"`)), "the gateway's Role"},
		{apierrors.NewUnauthorized("Unauthorized"), "ServiceAccount"},
		{context.DeadlineExceeded, "API server"},
		{errors.New("dial tcp: connection refused"), "API server"},
	} {
		v := newVault()
		v.fault = func(int) (error, bool) { return c.err, false }
		_, err := backend(t, v, "a").Load(t.Context())
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "postern-state-") {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// Whichever request fails, with or without effect: after a store is opened, changed and closed,
// another finds what was acknowledged.
func TestAStoreSurvivesEveryFailingRequest(t *testing.T) {
	away := apierrors.NewServerTimeout(group, "update", 1)
	requests := 40
	for n := 1; n <= requests; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, done: %v", n, after), func(t *testing.T) {
				t.Parallel()
				v := newVault()
				v.fault = func(i int) (error, bool) {
					if i == n {
						return away, after
					}
					return nil, false
				}
				s, err := state.Open(t.TempDir(), nil, state.WithBackend(backend(t, v, "a")))
				if err != nil { // then the pod restarts
					if s, err = state.Open(t.TempDir(), nil, state.WithBackend(backend(t, v, "a2"))); err != nil {
						t.Fatal(err)
					}
				}
				key, keyErr := s.PrivateKey()
				known := map[string]bool{}
				for i := range 8 {
					name := "p" + strconv.Itoa(i%3)
					err := s.Update(func(p *state.Peers) error {
						if p.Remove(name) {
							return nil
						}
						return p.Put(state.Peer{Name: name, PublicKey: peer.PublicKey{byte(i%3 + 1)}})
					})
					if err == nil {
						known[name] = !known[name]
					}
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				v.fault = nil
				next, err := state.Open(t.TempDir(), nil, state.WithBackend(backend(t, v, "b")))
				if err != nil {
					t.Fatal(err)
				}
				defer next.Close()
				if again, err := next.PrivateKey(); keyErr == nil && (err != nil || !again.Equal(key)) {
					t.Errorf("the key is another (%v)", err)
				}
				for _, name := range []string{"p0", "p1", "p2"} {
					if _, there := next.Peers().Get(name); there != known[name] {
						t.Errorf("%s is there: %v, acknowledged: %v", name, there, known[name])
					}
				}
			})
		}
	}
}
