package notices

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is a fake with given verdicts.
type gateway struct {
	mu     sync.Mutex
	report api.CheckReport
	err    error
}

func (g *gateway) Checks(context.Context) (api.CheckReport, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.report, g.err
}

func check(name, peer string, v api.Outcome, code string) api.Check {
	c := api.Check{Name: name, Peer: peer}
	c.Verdict = api.Verdict{Verdict: v, Code: code, Cause: "the cause of " + code, Fix: "the fix of " + code}
	return c
}

func TestOwnFaultsBecomeEvents(t *testing.T) {
	pending := check("service", "", api.Warning, "PST0420")
	steps := []struct {
		name   string
		checks []api.Check
		want   string
	}{
		{"all is well", []api.Check{check("clock", "", api.OK, "")}, ""},
		{"one fails, and a peer's", []api.Check{pending, check("gateway", "cloud", api.Error, "PST0101")},
			"Warning CheckWarning PST0420 service: the cause of PST0420. To fix it: the fix of PST0420"},
		{"nothing new", []api.Check{pending}, ""},
		{"with another code", []api.Check{check("service", "", api.Error, "PST0424")},
			"Warning CheckFailed PST0424 service: the cause of PST0424. To fix it: the fix of PST0424; Normal CheckCleared PST0420 service is over"},
		{"not known for a while", []api.Check{check("service", "", api.Unknown, "")}, ""},
		{"still the same", []api.Check{check("service", "", api.Error, "PST0424")}, ""},
		{"a second of its kind", []api.Check{check("service", "", api.Error, "PST0424"), check("service-PST0424", "", api.Error, "PST0424")},
			"Warning CheckFailed PST0424 service-PST0424: the cause of PST0424. To fix it: the fix of PST0424"},
		{"one of the two is gone", []api.Check{check("service", "", api.Error, "PST0424")}, "Normal CheckCleared PST0424 service-PST0424 is over"},
		{"gone", nil, "Normal CheckCleared PST0424 service is over"},
		{"well", []api.Check{check("service", "", api.OK, "")}, ""},
		{"one fails that will come and go", []api.Check{check("upstream-a", "", api.Error, "PST0310")},
			"Warning CheckFailed PST0310 upstream-a: the cause of PST0310. To fix it: the fix of PST0310"},
		{"it works for now", []api.Check{check("upstream-a", "", api.Warning, "PST0119")}, ""},
		{"it fails again, and another comes and goes", []api.Check{check("upstream-a", "", api.Error, "PST0310"), check("upstream-b", "", api.Warning, "PST0119")},
			"Warning CheckWarning PST0119 upstream-b: the cause of PST0119. To fix it: the fix of PST0119"},
		{"it works again, and the other fails", []api.Check{check("upstream-a", "", api.Warning, "PST0119"), check("upstream-b", "", api.Error, "PST0311")},
			"Warning CheckFailed PST0311 upstream-b: the cause of PST0311. To fix it: the fix of PST0311"},
		{"the other works for now", []api.Check{check("upstream-a", "", api.Warning, "PST0119"), check("upstream-b", "", api.Warning, "PST0119")}, ""},
		{"both are well", nil, "Normal CheckCleared PST0310 upstream-a is over; Normal CheckCleared PST0311 upstream-b is over"},
	}
	var got []string
	n := newNotices(Options{Gateway: &gateway{}, About: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "postern", UID: "u"}},
		func(about corev1.ObjectReference, e events.Event) bool {
			if about.Kind != "StatefulSet" || about.Name != "postern" || about.UID != "u" {
				t.Errorf("about %+v", about)
			}
			got = append(got, e.Type+" "+e.Reason+" "+e.Message)
			return true
		}, func(context.Context) {})
	for _, s := range steps {
		got = nil
		n.writeEvents(api.CheckReport{Checks: s.checks})
		if strings.Join(got, "; ") != s.want {
			t.Errorf("%s: got %q, want %q", s.name, got, s.want)
		}
	}
}

func TestChangesAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		g := &gateway{err: errors.New("stopping")}
		n := newNotices(Options{Gateway: g}, func(_ corev1.ObjectReference, e events.Event) bool {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, e.Message)
			return true
		}, func(ctx context.Context) { <-ctx.Done() })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.Run(ctx) })
		for _, code := range []string{"PST0420", "PST0424", "PST0422"} {
			g.mu.Lock()
			g.err, g.report = nil, api.CheckReport{Checks: []api.Check{check("service", "", api.Error, code)}}
			g.mu.Unlock()
			n.Changed()
			time.Sleep(calm / 2)
		}
		time.Sleep(calm)
		synctest.Wait()
		mu.Lock()
		if len(got) != 1 || !strings.HasPrefix(got[0], "PST0422") {
			t.Errorf("got %q, want the last alone", got)
		}
		mu.Unlock()
		cancel()
		running.Wait()
	})
}
