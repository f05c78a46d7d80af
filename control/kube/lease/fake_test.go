package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var group = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// clerk is an API server with one lease.
type clerk struct {
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	changed  chan struct{} // closed by the next change
	requests int
}

func newClerk() *clerk { return &clerk{changed: make(chan struct{})} }

func (c *clerk) put(x *coordinationv1.Lease) *coordinationv1.Lease {
	c.version++
	if x != nil {
		x = x.DeepCopy()
		x.ResourceVersion = strconv.Itoa(c.version)
	}
	c.lease = x
	close(c.changed)
	c.changed = make(chan struct{})
	return x.DeepCopy()
}

// edit changes the lease as someone else would; f may be nil, for deletion.
func (c *clerk) edit(f func(*coordinationv1.Lease)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == nil {
		c.put(nil)
		return
	}
	x := c.lease.DeepCopy()
	f(x)
	c.put(x)
}

func (c *clerk) holder() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == nil {
		return ""
	}
	return holder(c.lease)
}

func (c *clerk) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// weather is how well one replica reaches the API server.
type weather int

const (
	fair    weather = iota
	refused         // at once
	hangs           // until the request ends
	lost            // executed, but the answer is lost
	denied          // the answer is a refusal
)

var errRefused = errors.New("connection refused")

// door is one replica's connection to the clerk.
type door struct {
	*clerk
	noWatch bool

	wmu     sync.Mutex
	now     weather
	turning chan struct{} // closed when the weather changes
}

func (d *door) set(w weather) {
	d.wmu.Lock()
	defer d.wmu.Unlock()
	d.now = w
	close(d.turning)
	d.turning = make(chan struct{})
}

func (d *door) outlook() (weather, <-chan struct{}) {
	d.wmu.Lock()
	defer d.wmu.Unlock()
	return d.now, d.turning
}

func (d *door) ask(ctx context.Context, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	w, _ := d.outlook()
	switch w {
	case refused:
		return nil, errRefused
	case hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case denied:
		return nil, apierrors.NewForbidden(group, "postern", errors.New(`User "x" cannot update resource "leases"`))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	x, err := do()
	if w == lost {
		return nil, errRefused
	}
	return x.DeepCopy(), err
}

func (d *door) get(ctx context.Context) (*coordinationv1.Lease, error) {
	return d.ask(ctx, func() (*coordinationv1.Lease, error) {
		if d.lease == nil {
			return nil, apierrors.NewNotFound(group, "postern")
		}
		return d.lease, nil
	})
}

func (d *door) create(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return d.ask(ctx, func() (*coordinationv1.Lease, error) {
		if d.lease != nil {
			return nil, apierrors.NewAlreadyExists(group, "postern")
		}
		return d.put(x), nil
	})
}

func (d *door) update(ctx context.Context, x *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return d.ask(ctx, func() (*coordinationv1.Lease, error) {
		switch {
		case d.lease == nil:
			return nil, apierrors.NewNotFound(group, "postern")
		case d.lease.ResourceVersion != x.ResourceVersion:
			return nil, apierrors.NewConflict(group, "postern", errors.New("the object has been modified"))
		}
		return d.put(x), nil
	})
}

func (d *door) watch(ctx context.Context, changed func(*coordinationv1.Lease)) error {
	seen := -1
	for {
		w, turning := d.outlook()
		if d.noWatch || w == refused || w == denied {
			return errRefused
		}
		d.mu.Lock()
		next, version, x := d.changed, d.version, d.lease.DeepCopy()
		d.mu.Unlock()
		if w == fair && version != seen && version > 0 {
			seen = version
			if x == nil {
				x = &coordinationv1.Lease{}
			}
			changed(x)
			continue
		}
		select {
		case <-next:
		case <-turning:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *door) redial() {}

// stage is a set of replicas and a record of what they did.
type stage struct {
	t     *testing.T
	clerk *clerk
	begin time.Time

	mu     sync.Mutex
	active []string // who is active now
	both   bool     // two were active at once
	log    []string
	marks  map[string]bool // the labels by pod
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{t: t, clerk: newClerk(), begin: time.Now(), marks: map[string]bool{}}
}

// note records an event; the caller holds mu.
func (s *stage) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%7.2fs ", time.Since(s.begin).Seconds())+fmt.Sprintf(format, args...))
}

// who returns the active replicas.
func (s *stage) who() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active)
}

func (s *stage) expect(when string, want ...string) {
	s.t.Helper()
	if got := s.who(); !slices.Equal(got, want) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.t.Errorf("%s: active are %v, want %v\n%q", when, got, want, s.log)
	}
}

// replica is one of the replicas.
type replica struct {
	*Lease
	door  *door
	stage *stage
	name  string
	stop  func() // a clean end, which waits
	done  chan struct{}
	// drain and loss are how long the gateway takes to end: cleanly, and after a loss of the
	// role.
	drain, loss time.Duration
	terms       []string
	causes      []error
}

// Write adds a replica's log to that of the stage.
func (r *replica) Write(b []byte) (int, error) {
	r.stage.mu.Lock()
	defer r.stage.mu.Unlock()
	r.stage.note("%s: %s", r.name, b)
	return len(b), nil
}

// Mark and Unmark record the labels.
func (r *replica) Mark(_ context.Context, active bool) error {
	if w, _ := r.door.outlook(); w != fair {
		return errRefused
	}
	r.stage.mu.Lock()
	defer r.stage.mu.Unlock()
	r.stage.marks[r.name] = active
	return nil
}

func (r *replica) Unmark(_ context.Context, identity string) error {
	if w, _ := r.door.outlook(); w != fair {
		return errRefused
	}
	r.stage.mu.Lock()
	defer r.stage.mu.Unlock()
	r.stage.marks[identity] = false
	return nil
}

// enter starts a replica. set may change its options before.
func (s *stage) enter(name string, set func(*replica, *Options)) *replica {
	s.t.Helper()
	r := &replica{
		door: &door{clerk: s.clerk, turning: make(chan struct{})}, stage: s, name: name,
		done: make(chan struct{}), drain: 5 * time.Second, loss: 100 * time.Millisecond,
	}
	o := Options{Name: "postern", Identity: name, Pods: r, Logger: slog.New(slog.NewTextHandler(r, nil))}
	if set != nil {
		set(r, &o)
	}
	var err error
	if r.Lease, err = newLease(r.door, o); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = sync.OnceFunc(func() { cancel(); <-r.done })
	go func() {
		defer close(r.done)
		if err := r.Run(ctx, r.work); err != nil {
			s.t.Error(err)
		}
	}()
	return r
}

// work is the gateway.
func (r *replica) work(ctx context.Context) error {
	s := r.stage
	s.mu.Lock()
	s.active = append(s.active, r.name)
	slices.Sort(s.active)
	s.both = s.both || len(s.active) > 1
	r.terms = append(r.terms, r.Term())
	s.note("%s is active", r.name)
	s.mu.Unlock()
	<-ctx.Done()
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrLost) {
		time.Sleep(r.loss)
	} else {
		time.Sleep(r.drain)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.causes = append(r.causes, cause)
	s.active = slices.DeleteFunc(s.active, func(n string) bool { return n == r.name })
	s.note("%s is not active: %v", r.name, cause)
	return nil
}

// kill ends a replica as if its node had died: without any further request.
func (r *replica) kill() {
	r.door.set(hangs)
	r.stage.mu.Lock()
	r.stage.active = slices.DeleteFunc(r.stage.active, func(n string) bool { return n == r.name })
	r.stage.note("%s dies", r.name)
	r.stage.mu.Unlock()
}

// Snapshots of what happened.

func (s *stage) labels() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.marks)
}

func (s *stage) marked(name string) bool { return s.labels()[name] }

// twice reports whether two were active at once.
func (s *stage) twice() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.both
}

func (s *stage) story() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// served returns the terms of a replica.
func (r *replica) served() []string {
	r.stage.mu.Lock()
	defer r.stage.mu.Unlock()
	return slices.Clone(r.terms)
}

// ends returns the causes by which its terms ended.
func (r *replica) ends() []error {
	r.stage.mu.Lock()
	defer r.stage.mu.Unlock()
	return slices.Clone(r.causes)
}
