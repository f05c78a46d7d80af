package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/kube"
)

const (
	// DefaultDuration is how long a standby waits for a silent active replica.
	DefaultDuration = 8 * time.Second
	// MinDuration is the minimum: requests get a quarter of it.
	MinDuration = 3 * time.Second
	// DefaultWithoutAPI is how long a replica stays active without an answer from the API server
	// while there is a standby.
	DefaultWithoutAPI = 15 * time.Minute
	// endTimeout bounds the requests at a clean end.
	endTimeout = 3 * time.Second
)

// ErrLost is the cause (context.Cause) with which the context of the active role ends when the role
// is lost: everything must be closed at once, without draining, since another replica may be
// active.
var ErrLost = errors.New("the role of the active gateway was lost")

// Pods labels pods (package role).
type Pods interface {
	// Mark labels our own pod as active or not.
	Mark(ctx context.Context, active bool) error
	// Unmark removes the label from the pod with that identity.
	Unmark(ctx context.Context, identity string) error
}

// Options configure a Lease. Cluster, Name and Identity are required.
type Options struct {
	Cluster *kube.Cluster
	// Name of the Lease, in the cluster's own namespace.
	Name string
	// Identity distinguishes this pod from all others, and stays the same when the container
	// restarts (role.Pod.Identity).
	Identity string
	// Duration is rounded up to whole seconds; 0 is DefaultDuration.
	Duration time.Duration
	// WithoutAPI: 0 means DefaultWithoutAPI; a negative value means for ever, which also applies
	// while no standby has been seen.
	WithoutAPI time.Duration
	// Owner is the lease's owner, the StatefulSet. Without a UID there is none.
	Owner metav1.OwnerReference
	// Pods may be nil.
	Pods Pods
	// OnLabelRefused is called when the API server keeps refusing to label the pods, and with nil
	// when they are labelled. Meanwhile Services lead elsewhere or nowhere. It may be nil, and must
	// not block.
	OnLabelRefused func(error)
	// Logger may be nil.
	Logger *slog.Logger
}

// Role of a replica.
type Role string

// Roles.
const (
	Standby Role = "standby"
	Active  Role = "active"
)

// Status is a snapshot.
type Status struct {
	Role Role
	// Since is when the role began.
	Since time.Time
	// Holder is the holder of the lease, as far as known.
	Holder string
	// Answered is when the API server last answered about the lease.
	Answered time.Time
}

// Lease is one replica's part in the election. Its methods are safe for concurrent use; Run may
// only run once at a time.
type Lease struct {
	o      Options
	api    leases
	t      timing
	logger *slog.Logger

	mu     sync.Mutex
	status Status
	term   string
	// lose ends the current role; nil while there is none.
	lose context.CancelCauseFunc
	// contested: another replica could have taken the lease since it was last written.
	contested bool
	// claimed are the highest starts that each peer has reported, disproved those reported before
	// the API server last confirmed that this replica has the lease.
	claimed, disproved map[string]uint64
	owner              metav1.OwnerReference
	// publicKey is the gateway's key in the lease.
	publicKey string
}

// New returns a lease. It sends no request yet.
func New(o Options) (*Lease, error) {
	if o.Cluster == nil {
		return nil, errors.New("make a lease: no cluster given")
	}
	api, err := newRemote(o.Cluster, o.Name)
	if err != nil {
		return nil, err
	}
	return newLease(api, o)
}

func newLease(api leases, o Options) (*Lease, error) {
	if o.Name == "" || o.Identity == "" {
		return nil, errors.New("make a lease: a name and an identity are needed")
	}
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.Duration < MinDuration {
		return nil, fmt.Errorf("make a lease of %v: it needs %v at least (spec.kubernetes.leaseSeconds)", o.Duration, MinDuration)
	}
	o.Duration = (o.Duration + time.Second - 1).Truncate(time.Second)
	if o.WithoutAPI == 0 {
		o.WithoutAPI = DefaultWithoutAPI
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Lease{o: o, api: api, t: timed(o.Duration), logger: o.Logger, status: Status{Role: Standby, Since: time.Now()}, claimed: map[string]uint64{}, disproved: map[string]uint64{}, owner: o.Owner}, nil
}

// Status returns the current state.
func (l *Lease) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Term names the current time in the active role: nobody else can have had it since that term
// began. It is empty on a standby.
func (l *Lease) Term() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Supersede reports, by whatever sign, that another replica is active: the role is lost at once. On
// a standby it does nothing.
func (l *Lease) Supersede(sign string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose != nil {
		l.lose(fmt.Errorf("%w: %s", ErrLost, sign))
	}
}

// Own gives the lease an owner that was unknown before, with the next write.
func (l *Lease) Own(owner metav1.OwnerReference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = owner
}

// PublicKey returns the key of the gateway that last had the lease, if it is known; else empty.
func (l *Lease) PublicKey() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.publicKey
}

// SetPublicKey writes the gateway's key to the lease, with the next write. There it survives a
// loss of the gateway's state.
func (l *Lease) SetPublicKey(k string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publicKey = k
}

func (l *Lease) ownedBy() metav1.OwnerReference {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner
}

// PeerSawNewer handles a peer's claim that it has heard a later start of this gateway than the
// current one. Peers may claim anything, so it only counts if another replica can be active: at the
// last write one was ready to take over, and the API server has not answered for longer than the
// lease's duration.
// It does not count if the peer claimed the same before the API server's last answer. If it
// counts, it is like [Lease.Supersede].
func (l *Lease) PeerSawNewer(peer string, start uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose == nil || start <= l.disproved[peer] {
		return
	}
	l.claimed[peer] = max(start, l.claimed[peer])
	silent := time.Since(l.status.Answered)
	if !l.contested || silent <= l.t.duration {
		return
	}
	l.lose(fmt.Errorf("%w: peer %s has heard a later start of this gateway, and the API server has not answered here for %v",
		ErrLost, peer, silent.Round(time.Second)))
}

// Run is a standby until it gets the lease, and then calls active with a context that ends when ctx
// does or when the role is lost (its cause is then [ErrLost]). active must return soon after that;
// until then it has the role. After a loss the replica becomes a standby again. Run returns when
// ctx ends, or when active returns by itself, and then returns the result of active, if that was
// running. If it has the lease, it releases it.
func (l *Lease) Run(ctx context.Context, active func(context.Context) error) error {
	label := newLabels(l.o.Pods, l.logger, l.o.OnLabelRefused)
	defer label.close()
	label.want(false, "")
	var notBefore time.Time
	for {
		got, err := l.standBy(ctx, notBefore)
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		lost, err := l.serve(ctx, got, label, active)
		if !lost {
			return err
		}
		if err != nil {
			l.logger.Warn("gateway did not stop cleanly after losing its role", slog.Any("error", err))
		}
		notBefore = time.Now().Add(l.t.reclaiming)
		if ctx.Err() != nil {
			label.drop()
			return nil
		}
	}
}

// enter records a role. lose is nil for a standby.
func (l *Lease) enter(r Role, term string, lose context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status.Role != r {
		l.status.Role, l.status.Since = r, time.Now()
	}
	l.term, l.lose = term, lose
}

// written records a write of our own at that time, and whether another replica could take over
// from then on.
func (l *Lease) written(now time.Time, contested bool) {
	l.answered(now, l.o.Identity)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contested = contested
}

// answered records an answer of the API server.
func (l *Lease) answered(now time.Time, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.Answered, l.status.Holder = now, holder
	if l.lose != nil && holder == l.o.Identity {
		maps.Copy(l.disproved, l.claimed)
	}
}
