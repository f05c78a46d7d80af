package peers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func steadyPace() *pace {
	p := newPace()
	p.chance = func() float64 { return 0 }
	return p
}

func rttStatus(rtt string) v1alpha1.PeerStatus {
	return v1alpha1.PeerStatus{State: "connected", RTT: rtt, Path: &v1alpha1.PeerPath{Kind: "direct"}}
}

// offer does what the controller does with an object, and reports whether it was written.
func (p *pace) offer(uid types.UID, is *v1alpha1.PeerStatus, want v1alpha1.PeerStatus, now time.Time) bool {
	write, _ := p.due(uid, *is, want, now)
	if write {
		p.wrote(uid, want, now)
		*is = want
	}
	return write
}

func TestAChangedStateIsWrittenAtOnceAndAFlappingOneIsNot(t *testing.T) {
	p := steadyPace()
	var is v1alpha1.PeerStatus
	now, written := noon, 0
	states := []string{"connected", "connecting"}
	for i := range 600 { // it flaps each second for 10 min
		if p.offer("a", &is, v1alpha1.PeerStatus{State: states[i%2]}, now) {
			written++
			if i < urgentBurst && written != i+1 {
				t.Errorf("change %d was not written at once", i)
			}
		}
		now = now.Add(time.Second)
	}
	if limit := urgentBurst + int(10*time.Minute/urgentEvery) + 1; written > limit || written < urgentBurst {
		t.Errorf("%d writes in 10 min, want at most %d", written, limit)
	}
	// The final state is written.
	want := v1alpha1.PeerStatus{State: "failed"}
	for range 20 {
		p.offer("a", &is, want, now)
		now = now.Add(time.Second)
	}
	if is.State != "failed" {
		t.Errorf("the last state is not written: %+v", is)
	}
}

func TestARoundTripTimeIsWrittenSeldomAndOnlyWhenItMoves(t *testing.T) {
	p := steadyPace()
	is, now := rttStatus("10ms"), noon
	for _, c := range []struct {
		after time.Duration
		rtt   string
		want  bool
	}{
		{0, "11ms", false},           // a tenth
		{0, "13ms", true},            // a third, and nothing was written before
		{time.Minute, "26ms", false}, // too soon
		{calmEvery, "26ms", true},
		{calmEvery, "26ms", false}, {calmEvery, "22ms", false}, {calmEvery, "20ms", true},
		{time.Second, "", true}, // it became unknown, which is news
	} {
		now = now.Add(c.after)
		if got := p.offer("a", &is, rttStatus(c.rtt), now); got != c.want {
			t.Errorf("%s after %s: written %v, want %v", c.rtt, c.after, got, c.want)
		}
	}
	if rttMoved("300µs", "600µs") {
		t.Error("a doubled round trip within a machine is no news")
	}
}

func TestOneThatCanWaitDoesNotHoldUpOneThatCannot(t *testing.T) {
	p := steadyPace()
	a, b := rttStatus("10ms"), rttStatus("10ms")
	if !p.offer("a", &a, rttStatus("20ms"), noon) {
		t.Fatal("the first is not written")
	}
	if p.offer("b", &b, rttStatus("20ms"), noon.Add(time.Second)) {
		t.Error("two within a second")
	}
	lost := rttStatus("20ms")
	lost.State = "connecting"
	if !p.offer("b", &b, lost, noon.Add(time.Second)) {
		t.Error("a lost peer is not shown")
	}
}

func TestConditionsCountByTypeAndMessagesCanWait(t *testing.T) {
	x := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	was := v1alpha1.PeerStatus{Conditions: []metav1.Condition{x(v1alpha1.Ready, "Ready", "1"), x(v1alpha1.Stalled, "Ready", "2")}}
	for name, c := range map[string]struct {
		is           []metav1.Condition
		urgent, calm bool
	}{
		"the same":        {[]metav1.Condition{x(v1alpha1.Ready, "Ready", "1"), x(v1alpha1.Stalled, "Ready", "2")}, false, false},
		"another order":   {[]metav1.Condition{x(v1alpha1.Stalled, "Ready", "2"), x(v1alpha1.Ready, "Ready", "1")}, false, false},
		"other words":     {[]metav1.Condition{x(v1alpha1.Ready, "Ready", "9"), x(v1alpha1.Stalled, "Ready", "2")}, false, true},
		"another reason":  {[]metav1.Condition{x(v1alpha1.Stalled, "Ready", "2"), x(v1alpha1.Ready, "Slow", "1")}, true, false},
		"one less":        {[]metav1.Condition{x(v1alpha1.Stalled, "Ready", "2")}, true, false},
		"another of them": {[]metav1.Condition{x(v1alpha1.Ready, "Ready", "1"), x(v1alpha1.TunnelReady, "Ready", "2")}, true, false},
	} {
		is := v1alpha1.PeerStatus{Conditions: c.is}
		if got := urgent(was, is); got != c.urgent {
			t.Errorf("%s: urgent %v, want %v", name, got, c.urgent)
		}
		if got := calm(was, is); !c.urgent && got != c.calm {
			t.Errorf("%s: worth a write %v, want %v", name, got, c.calm)
		}
	}
}

func TestWhatSomebodyElseWroteIsPutRightWithinAMinute(t *testing.T) {
	p := steadyPace()
	var is v1alpha1.PeerStatus
	want := rttStatus("10ms")
	p.offer("a", &is, want, noon)
	is.State = "wrong"
	if p.offer("a", &is, want, noon.Add(trustWritten-time.Second)) {
		t.Error("a status that the watch has not delivered yet is taken for someone else's")
	}
	if !p.offer("a", &is, want, noon.Add(trustWritten)) {
		t.Error("it is left wrong")
	}
	// A failed write is repeated.
	next := rttStatus("10ms")
	next.State = "failed"
	p.due("a", is, next, noon.Add(time.Hour))
	p.wrote("a", next, noon.Add(time.Hour))
	p.failed("a", is)
	if write, _ := p.due("a", is, next, noon.Add(time.Hour+time.Second)); !write {
		t.Error("a write that failed is forgotten")
	}
	p.keep(nil)
	if len(p.objects) != 0 {
		t.Error("a deleted object is still stored")
	}
}

// Half an hour with 100 peers whose round trip times always change, checked more often than the
// controller does.
func TestAHundredPeersCostAThirdOfARequestASecond(t *testing.T) {
	p := newPace()
	const peers = 100
	r := rand.New(rand.NewPCG(1, 2)) // any source will do; this one is deterministic
	p.chance = r.Float64
	var is [peers]v1alpha1.PeerStatus
	writes := 0
	for now := noon; now.Before(noon.Add(30 * time.Minute)); now = now.Add(time.Second) {
		for i := range peers {
			want := rttStatus(fmt.Sprintf("%dms", 10+r.IntN(200)))
			if p.offer(types.UID(fmt.Sprint(i)), &is[i], want, now) && now.After(noon) {
				writes++
			}
		}
	}
	rate := float64(writes) / (30 * time.Minute).Seconds()
	t.Logf("%.2f status writes a second", rate)
	if limit := 1/calmGap.Seconds() + 0.01; rate > limit || rate < 0.1 {
		t.Errorf("%.2f writes a second, want at most %.2f", rate, limit)
	}
}

// Another controller's condition is no reason to write, and one of the gateway that is over is.
func TestOthersConditionsAreLeftAlone(t *testing.T) {
	want := v1alpha1.PeerStatus{Conditions: []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue}}}
	for kind, write := range map[string]bool{"example.net/Reviewed": false, v1alpha1.Stalled: true} {
		p, now, is := steadyPace(), noon, want
		p.offer("a", &v1alpha1.PeerStatus{}, want, now)
		is.Conditions = append([]metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}, want.Conditions...)
		if got, _ := p.due("a", is, want, now.Add(trustWritten)); got != write {
			t.Errorf("with the condition %s it is written: %v", kind, got)
		}
	}
}
