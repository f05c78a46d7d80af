package exposure

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/mirror"
)

// still is a watcher whose mirrors are filled by the test, and its calls of OnChange.
type still struct {
	*Watcher
	told []Exposure
}

func newStill(t *testing.T) *still {
	t.Helper()
	s := &still{}
	s.Watcher = &Watcher{
		o:   Options{Namespace: "ns", Service: "postern", Port: 51820, OnChange: func(e Exposure) { s.told = append(s.told, e) }},
		log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), nodesRun: true, locator: &locator{},
	}
	s.services = mirror.New(mirror.Options[*corev1.Service]{Slim: slimService, Changed: s.wake.Set})
	s.pods = mirror.New(mirror.Options[*corev1.Pod]{Slim: slimPod, Changed: s.wake.Set})
	s.nodes = mirror.New(mirror.Options[*corev1.Node]{Slim: slimNode, Changed: s.wake.Set})
	s.ingresses = mirror.New(mirror.Options[*networkingv1.Ingress]{Slim: slimIngress, Changed: s.wake.Set})
	fill(t, s.pods)
	fill(t, s.nodes)
	fill(t, s.ingresses)
	return s
}

func fill[T mirror.Object](t *testing.T, m *mirror.Mirror[T], objects ...T) {
	t.Helper()
	list := make([]any, 0, len(objects))
	for _, o := range objects {
		list = append(list, o)
	}
	if err := m.Replace(list, ""); err != nil {
		t.Fatal(err)
	}
}

// balanced makes the Service a load balancer with these addresses at a time.
func (s *still) balanced(t *testing.T, at time.Time, ips ...string) time.Time {
	t.Helper()
	var in []corev1.LoadBalancerIngress
	for _, ip := range ips {
		in = append(in, corev1.LoadBalancerIngress{IP: ip})
	}
	fill(t, s.services, service(corev1.ServiceTypeLoadBalancer, given(in...)))
	return s.update(t.Context(), at)
}

func (s *still) last() Exposure { return s.told[len(s.told)-1] }

func (s *still) codes() []catalogue.Code {
	var out []catalogue.Code
	for _, p := range s.last().Problems {
		out = append(out, p.Code)
	}
	return out
}

func TestLostAddressesAreToldForAWhile(t *testing.T) {
	s := newStill(t)
	at := now
	if again := s.balanced(t, at, "203.0.113.1"); len(s.told) != 1 || len(s.last().Problems) != 0 || !again.IsZero() {
		t.Fatalf("at first: got %+v, again %v", s.told, again)
	}
	s.balanced(t, at, "203.0.113.1")
	if len(s.told) != 1 {
		t.Errorf("nothing changed, and %d exposures were told", len(s.told))
	}
	s.balanced(t, at, "203.0.113.1", "203.0.113.2")
	if len(s.told) != 2 || len(s.last().Problems) != 0 {
		t.Errorf("an address more is no problem: %+v", s.last())
	}

	at = at.Add(time.Minute)
	again := s.balanced(t, at, "203.0.113.3")
	if !slices.Equal(s.codes(), []catalogue.Code{catalogue.ExposureMoved}) || !again.Equal(at.Add(movedFor)) {
		t.Fatalf("other addresses: got %v, again %v", s.codes(), again)
	}
	p := s.last().Problems[0].Params
	if !slices.Equal(p.Was, []string{"203.0.113.1:443", "203.0.113.2:443"}) || !slices.Equal(p.Now, []string{"203.0.113.3:443"}) || !p.Seen.Equal(at) {
		t.Errorf("got %+v", p)
	}
	if s.balanced(t, again.Add(-time.Second), "203.0.113.3"); len(s.codes()) != 1 {
		t.Errorf("a second before it is over: %v", s.codes())
	}
	if s.balanced(t, again, "203.0.113.3"); len(s.codes()) != 0 {
		t.Errorf("after %v: %v", movedFor, s.codes())
	}
}

// If the Service is missing, its missing addresses are no separate problem.
func TestAddressesThatGoWithTheirServiceAreNoProblemOfTheirOwn(t *testing.T) {
	s := newStill(t)
	s.balanced(t, now, "203.0.113.1")
	fill(t, s.services)
	s.update(t.Context(), now.Add(time.Second))
	if !slices.Equal(s.codes(), []catalogue.Code{catalogue.ServiceMissing}) {
		t.Errorf("without a Service: %v", s.codes())
	}
	if s.balanced(t, now.Add(2*time.Second), "203.0.113.1"); len(s.codes()) != 0 {
		t.Errorf("with it: %v", s.codes())
	}
}

func TestAddressesThatComeBackAreNoChange(t *testing.T) {
	s := newStill(t)
	s.balanced(t, now, "203.0.113.1")
	s.balanced(t, now.Add(time.Second))
	if !slices.Contains(s.codes(), catalogue.ExposureMoved) {
		t.Fatalf("without an address: %v", s.codes())
	}
	s.balanced(t, now.Add(2*time.Second), "203.0.113.1", "203.0.113.2")
	if len(s.codes()) != 0 {
		t.Errorf("back again: %v", s.codes())
	}
}

func TestALostLoadBalancerWaitsSinceItWasLost(t *testing.T) {
	s := newStill(t)
	s.balanced(t, now, "203.0.113.1")
	lostAt := now.Add(time.Hour)
	again := s.balanced(t, lostAt)
	if slices.Contains(s.codes(), catalogue.LoadBalancerPending) || !again.Equal(lostAt.Add(pendingGrace)) {
		t.Errorf("at once: got %v, again %v", s.codes(), again)
	}
	s.balanced(t, again)
	i := slices.IndexFunc(s.last().Problems, func(p check.OwnProblem) bool { return p.Code == catalogue.LoadBalancerPending })
	if i < 0 || !s.last().Problems[i].Since.Equal(lostAt) {
		t.Errorf("after %v: got %+v, want it pending since %v", pendingGrace, s.last().Problems, lostAt)
	}
}

// A mirror only keeps what is read: nodes list all their images.
func TestMirrorsKeepNoMoreThanIsRead(t *testing.T) {
	n := node("n1", "InternalIP 10.0.0.1")
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.example/x:1"}}}
	n.Labels = map[string]string{"a": "b"}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure})
	if got := slimNode(n); len(got.Status.Images) != 0 || len(got.Labels) != 0 || len(got.Status.Conditions) != 1 || !ready(got) || len(reachable(got)) != 1 {
		t.Errorf("node: kept %+v", got)
	}
	p := pod("n1", corev1.ContainerPort{ContainerPort: 1})
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "x"}}
	if got := slimPod(p); len(got.Spec.Containers[0].Env) != 0 || len(got.Spec.Containers[0].Ports) != 1 || got.Spec.NodeName != "n1" || len(got.Status.HostIPs) != 1 {
		t.Errorf("pod: kept %+v", got)
	}
	s := service(corev1.ServiceTypeNodePort, local)
	s.Spec.ClusterIPs = []string{"10.96.0.1"}
	if got := slimService(s); len(got.Spec.ClusterIPs) != 0 || got.Spec.ExternalTrafficPolicy != s.Spec.ExternalTrafficPolicy || len(got.Spec.Ports) != 1 {
		t.Errorf("service: kept %+v", got)
	}
	i := ingress("front", "auth", endsTLS)
	i.Labels = map[string]string{"a": "b"}
	if got := slimIngress(i); len(got.Labels) != 0 || !backs(got, "auth") || len(got.Spec.TLS) != 1 {
		t.Errorf("ingress: kept %+v", got)
	}
}
