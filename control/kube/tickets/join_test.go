package tickets

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
)

// An inviter counts the attempts, and one by another key raises an alarm.
func TestARefusedJoinIsNotTriedForEver(t *testing.T) {
	c := &Controller{}
	o := &v1alpha1.Ticket{ObjectMeta: metav1.ObjectMeta{Name: "cloud", Namespace: "postern", Generation: 1}}
	for name, x := range map[string]struct {
		err   error
		tries int // after which it has failed; 0: never
	}{
		"what the operator must change": {admin.Usage("join: not a ticket", ""), 1},
		"a refusal":                     {admin.Failed("join cloud: the ticket was already used", ""), maxRefusals},
		"the gateway is stopping":       {errors.New("context canceled"), 0},
	} {
		j := &joining{}
		var s v1alpha1.TicketStatus
		failed := 0
		for n := 1; n <= 10 && failed == 0; n++ {
			s = c.notJoined(o, statusFor(o), j, x.err)
			if s.Phase == v1alpha1.TicketFailed {
				failed = n
			} else if wait := time.Until(j.after); wait < refusalRetry/2 || s.Phase != v1alpha1.TicketPending || s.Conditions[0].Status != metav1.ConditionFalse {
				t.Errorf("%s: it is tried again in %v: %+v", name, wait, s)
			}
		}
		if failed != x.tries {
			t.Errorf("%s: it failed for good after %d tries, want %d", name, failed, x.tries)
		}
	}
}

func TestStatusIsTheSameOrNot(t *testing.T) {
	base := func() v1alpha1.TicketStatus {
		return v1alpha1.TicketStatus{Phase: "Open", ExpiresAt: at(time.Unix(1000, 5)), SecretRef: &v1alpha1.SecretKey{Name: "a", Key: "b"},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Open", LastTransitionTime: metav1.Now()}}}
	}
	other := base()
	other.ExpiresAt = at(time.Unix(1000, 9))
	if !same(base(), other) {
		t.Error("a fraction of a second, which is not stored, makes a difference")
	}
	for what, change := range map[string]func(*v1alpha1.TicketStatus){
		"phase": func(s *v1alpha1.TicketStatus) { s.Phase = "Redeemed" }, "secret": func(s *v1alpha1.TicketStatus) { s.SecretRef = nil },
		"message": func(s *v1alpha1.TicketStatus) { s.Message = "x" }, "reason": func(s *v1alpha1.TicketStatus) { s.Conditions[0].Reason = "x" },
		"expiry": func(s *v1alpha1.TicketStatus) { s.ExpiresAt = nil },
	} {
		s := base()
		change(&s)
		if same(base(), s) {
			t.Errorf("another %s makes none", what)
		}
	}
}
