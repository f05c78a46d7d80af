package peers

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

const (
	// urgentBurst is how many changes of one peer's state are written at once; later ones at most
	// every urgentEvery.
	urgentBurst = 6
	urgentEvery = 10 * time.Second
	// calmEvery, plus up to half of it, is the interval of writes of minor changes of one peer: a
	// round trip time, wording, a renewed identity. calmGap is the minimum pause between such
	// writes of any peers.
	calmEvery = 2 * time.Minute
	calmGap   = 3 * time.Second
	// A round trip time is written if it has changed by rttShare and by rttStep.
	rttShare = 0.20
	rttStep  = time.Millisecond
	// seenEvery is by how much LastSeen must have changed to be written for that alone.
	seenEvery = 10 * time.Minute
	// trustWritten is how long after a write the written status is assumed to be the object's,
	// because the watch may not have delivered it yet.
	trustWritten = time.Minute
)

// pace decides when to write which status. It has no clock and does no I/O; it is used by one
// goroutine.
type pace struct {
	objects  map[types.UID]*paced
	calmNext time.Time
	chance   func() float64 // of [0, 1)
}

// paced is one object.
type paced struct {
	written v1alpha1.PeerStatus
	at      time.Time // of the last write; zero before the first
	urgent  *rate.Limiter
	jitter  time.Duration
}

func newPace() *pace { return &pace{objects: map[types.UID]*paced{}, chance: rand.Float64} }

// due reports whether to write want now to an object whose status is is. If not, wait is when to
// ask again; 0 means not before something changes.
func (p *pace) due(uid types.UID, is, want v1alpha1.PeerStatus, now time.Time) (write bool, wait time.Duration) {
	x := p.objects[uid]
	if x == nil {
		x = &paced{written: is, urgent: rate.NewLimiter(rate.Every(urgentEvery), urgentBurst)}
		p.objects[uid] = x
	}
	if x.at.IsZero() || now.Sub(x.at) >= trustWritten {
		x.written = is
	}
	switch {
	case urgent(x.written, want):
		if left := x.urgent.TokensAt(now); left < 1 {
			return false, time.Duration((1 - left) * float64(urgentEvery))
		}
		return true, 0
	case !calm(x.written, want):
		return false, 0
	}
	earliest := p.calmNext
	if !x.at.IsZero() && x.at.Add(calmEvery+x.jitter).After(earliest) {
		earliest = x.at.Add(calmEvery + x.jitter)
	}
	if now.Before(earliest) {
		return false, earliest.Sub(now)
	}
	return true, 0
}

// wrote records a write in progress, whether it succeeds or not: a failed one is repeated at the
// same pace.
func (p *pace) wrote(uid types.UID, want v1alpha1.PeerStatus, now time.Time) {
	x := p.objects[uid]
	if x == nil {
		return
	}
	if urgent(x.written, want) {
		x.urgent.AllowN(now, 1)
	} else {
		p.calmNext = now.Add(calmGap)
	}
	x.written, x.at = want, now
	x.jitter = time.Duration(p.chance() * float64(calmEvery/2))
}

// failed records that the last write has failed, and that the object's status is still is.
func (p *pace) failed(uid types.UID, is v1alpha1.PeerStatus) {
	if x := p.objects[uid]; x != nil {
		x.written = is
	}
}

// known returns an object's current status: the last written one, if the watch may not have
// delivered it yet, else is.
func (p *pace) known(uid types.UID, is v1alpha1.PeerStatus, now time.Time) v1alpha1.PeerStatus {
	if x := p.objects[uid]; x != nil && !x.at.IsZero() && now.Sub(x.at) < trustWritten {
		return x.written
	}
	return is
}

// keep drops all objects except these.
func (p *pace) keep(uids map[types.UID]bool) {
	maps.DeleteFunc(p.objects, func(uid types.UID, _ *paced) bool { return !uids[uid] })
}

// urgent reports whether two statuses differ in a way that people and programs wait for.
func urgent(a, b v1alpha1.PeerStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.State != b.State || a.Auth != b.Auth || a.APIServer != b.APIServer ||
		a.Code != b.Code || a.User != b.User || a.Address != b.Address || pathOf(a) != pathOf(b) || (a.RTT == "") != (b.RTT == "") ||
		(a.Identity == nil) != (b.Identity == nil) || stays(a, b) {
		return true
	}
	return slices.ContainsFunc(b.Conditions, func(y metav1.Condition) bool {
		x := meta.FindStatusCondition(a.Conditions, y.Type)
		return x == nil || differs(*x, y)
	})
}

// stays reports whether a has a condition of the gateway that b does not have. Others' are left alone.
func stays(a, b v1alpha1.PeerStatus) bool {
	return slices.ContainsFunc(a.Conditions, func(x metav1.Condition) bool {
		return slices.Contains(conditions, x.Type) && meta.FindStatusCondition(b.Conditions, x.Type) == nil
	})
}

// conditions are the types of the conditions that the gateway writes.
var conditions = []string{v1alpha1.Accepted, v1alpha1.Stalled, v1alpha1.Ready, v1alpha1.TunnelReady, v1alpha1.AuthReachable, v1alpha1.APIServerReachable, v1alpha1.IdentityIssued}

func differs(x, y metav1.Condition) bool {
	return x.Status != y.Status || x.Reason != y.Reason || x.ObservedGeneration != y.ObservedGeneration
}

// calm reports whether two statuses without urgent differences differ enough to be written.
func calm(a, b v1alpha1.PeerStatus) bool {
	if rttMoved(a.RTT, b.RTT) || !notAfter(a).Equal(notAfter(b)) || seenLater(a.LastSeen, b.LastSeen) {
		return true
	}
	return slices.ContainsFunc(b.Conditions, func(y metav1.Condition) bool {
		x := meta.FindStatusCondition(a.Conditions, y.Type)
		return x == nil || x.Message != y.Message
	})
}

func pathOf(s v1alpha1.PeerStatus) v1alpha1.PeerPath {
	if s.Path == nil {
		return v1alpha1.PeerPath{}
	}
	return *s.Path
}

func notAfter(s v1alpha1.PeerStatus) time.Time {
	if s.Identity == nil || s.Identity.NotAfter == nil {
		return time.Time{}
	}
	return s.Identity.NotAfter.Time
}

// seenLater reports whether LastSeen has changed enough to be written.
func seenLater(was, is *metav1.Time) bool {
	return is != nil && (was == nil || is.Sub(was.Time) >= seenEvery)
}

// rttMoved reports whether a round trip time has changed enough to be written.
func rttMoved(was, is string) bool {
	a, errA := time.ParseDuration(was)
	b, errB := time.ParseDuration(is)
	if errA != nil || errB != nil {
		return was != is
	}
	step := math.Abs(float64(b - a))
	return step >= float64(rttStep) && step >= rttShare*float64(a)
}
