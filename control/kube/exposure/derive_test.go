package exposure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/postern-dev/postern/control/catalogue"
)

// made is the creation time of the tests' objects, now the time of the test.
var (
	made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now  = made.Add(time.Hour)
)

// service returns the gateway's Service with a type, changed by more.
func service(t corev1.ServiceType, more ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "postern", Namespace: "ns", CreationTimestamp: metav1.NewTime(made)}}
	s.Spec.Type = t
	s.Spec.Ports = []corev1.ServicePort{{Name: "wireguard", Protocol: corev1.ProtocolUDP, Port: 443, TargetPort: intstr.FromInt32(51820)}}
	if t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer {
		s.Spec.Ports[0].NodePort = 30820
	}
	for _, f := range more {
		f(s)
	}
	return s
}

func given(ingress ...corev1.LoadBalancerIngress) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = ingress }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// node returns a Ready node with addresses such as "ExternalIP 203.0.113.5".
func node(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, a := range addresses {
		t, address, _ := strings.Cut(a, " ")
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(t), Address: address})
	}
	return n
}

func notReady(n *corev1.Node) *corev1.Node {
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	return n
}

// pod returns the active pod, on a node.
func pod(node string, ports ...corev1.ContainerPort) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "postern-0", Namespace: "ns"}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "gateway", Ports: ports}}
	p.Status.HostIPs = []corev1.HostIP{{IP: "10.0.0.1"}}
	return p
}

func ingress(name, service string, more ...func(*networkingv1.Ingress)) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	i.Spec.Rules = []networkingv1.IngressRule{{Host: "auth.example.net"}}
	i.Spec.Rules[0].HTTP = &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
		{Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service}}}}}
	for _, f := range more {
		f(i)
	}
	return i
}

// cluster returns facts in which everything has been read.
func cluster(objects ...any) facts {
	f := facts{namespace: "ns", service: "postern", port: 51820, account: "ns:postern"}
	f.services.read, f.pods.read, f.nodes.read, f.ingresses.read, f.located.asked = true, true, true, true, true
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			f.services.list = append(f.services.list, o)
		case *corev1.Pod:
			f.pods.list = append(f.pods.list, o)
		case *corev1.Node:
			f.nodes.list = append(f.nodes.list, o)
		case *networkingv1.Ingress:
			f.ingresses.list = append(f.ingresses.list, o)
		case func(*facts):
			o(&f)
		}
	}
	return f
}

func TestWhatLeadsToTheGateway(t *testing.T) {
	failed := "quota exceeded"
	public1, public2 := node("n1", "InternalIP 10.0.0.1", "ExternalIP 203.0.113.1"), node("n2", "ExternalDNS n2.example.net", "InternalIP 10.0.0.2")
	private1, private2 := node("n1", "Hostname n1", "InternalDNS n1.local", "InternalIP 10.0.0.1"), node("n2", "InternalIP 10.0.0.2", "InternalIP fd12::2")
	hostPort := corev1.ContainerPort{Protocol: corev1.ProtocolUDP, ContainerPort: 51820, HostPort: 40000}
	nodes := corev1.ServiceTypeNodePort
	balancer := corev1.ServiceTypeLoadBalancer
	for _, c := range []struct {
		name      string
		facts     facts
		endpoints []string // "address from"
		problems  []string // "name code"
	}{
		{"nothing exposed", cluster(service(corev1.ServiceTypeClusterIP)), nil, nil},
		{"load balancer with IP and hostname", cluster(service(balancer, given(corev1.LoadBalancerIngress{IP: "203.0.113.9", Hostname: "lb.example.net"}, corev1.LoadBalancerIngress{IP: "2001:db8::9"}))),
			[]string{"203.0.113.9:443 LoadBalancer of Service postern", "lb.example.net:443 LoadBalancer of Service postern", "[2001:db8::9]:443 LoadBalancer of Service postern"}, nil},
		{"load balancer without an address", cluster(service(balancer), private1),
			[]string{"10.0.0.1:30820 NodePort 30820 on node n1 (InternalIP, private)"}, []string{"service PST0420"}},
		{"load balancer that refuses the port", cluster(service(balancer, given(corev1.LoadBalancerIngress{IP: "203.0.113.9", Ports: []corev1.PortStatus{{Port: 443, Protocol: corev1.ProtocolUDP, Error: &failed}}}))),
			nil, []string{"service PST0420"}},
		{"external IPs", cluster(service(corev1.ServiceTypeClusterIP, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.7"} })),
			[]string{"203.0.113.7:443 externalIPs of Service postern"}, nil},
		{"node port, external addresses first", cluster(service(nodes), public1, public2, notReady(node("n3", "ExternalIP 203.0.113.3"))),
			[]string{"203.0.113.1:30820 NodePort 30820 on node n1 (ExternalIP)", "n2.example.net:30820 NodePort 30820 on node n2 (ExternalDNS)"}, nil},
		{"node port with private addresses alone", cluster(service(nodes), private1, private2),
			[]string{"10.0.0.1:30820 NodePort 30820 on node n1 (InternalIP, private)", "10.0.0.2:30820 NodePort 30820 on node n2 (InternalIP, private)",
				"[fd12::2]:30820 NodePort 30820 on node n2 (InternalIP, private)"}, []string{"node-addresses PST0421"}},
		{"node port with one public address", cluster(service(nodes), private1, node("n2", "InternalIP 203.0.113.2")),
			[]string{"10.0.0.1:30820 NodePort 30820 on node n1 (InternalIP, private)", "203.0.113.2:30820 NodePort 30820 on node n2 (InternalIP)"}, nil},
		{"the active pod's node first, then external ones", cluster(service(nodes), pod("n3"), private1, public2, node("n3", "InternalIP 10.0.0.3")),
			[]string{"10.0.0.3:30820 NodePort 30820 on node n3 (InternalIP, private)", "n2.example.net:30820 NodePort 30820 on node n2 (ExternalDNS)",
				"10.0.0.1:30820 NodePort 30820 on node n1 (InternalIP, private)"}, nil},
		{"Local: the node of the active pod alone", cluster(service(nodes, local), pod("n2"), public1, public2),
			[]string{"n2.example.net:30820 NodePort 30820 on node n2 (ExternalDNS)"}, nil},
		{"Local: no active pod", cluster(service(nodes, local), public1), nil, []string{"node-addresses PST0421"}},
		{"no node is ready", cluster(service(nodes), notReady(node("n1", "ExternalIP 203.0.113.1"))), nil, []string{"node-addresses PST0421"}},
		{"nodes may not be read", cluster(service(nodes), func(f *facts) { f.nodes = known[*corev1.Node]{denied: true} }), nil, []string{"node-addresses PST0425"}},
		{"Services may not be read", cluster(func(f *facts) { f.services = known[*corev1.Service]{denied: true} }), nil, []string{"service PST0425"}},
		{"nothing is known yet", cluster(func(f *facts) { f.services.read = false }), nil, nil},
		{"no Service", cluster(), nil, []string{"service PST0422"}},
		{"TCP", cluster(service(nodes, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP }), public1), nil, []string{"service PST0423"}},
		{"another target", cluster(service(nodes, func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(9520) }), public1), nil, []string{"service PST0423"}},
		{"named target of the pod", cluster(service(balancer, given(corev1.LoadBalancerIngress{IP: "203.0.113.9"}), func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("wg") }),
			pod("n1", corev1.ContainerPort{Name: "wg", Protocol: corev1.ProtocolUDP, ContainerPort: 51820})),
			[]string{"203.0.113.9:443 LoadBalancer of Service postern"}, nil},
		{"named target of something else", cluster(service(balancer, func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("wg") }),
			pod("n1", corev1.ContainerPort{Name: "wg", Protocol: corev1.ProtocolUDP, ContainerPort: 53})), nil, []string{"service PST0423"}},
		{"port that is its own target", cluster(service(corev1.ServiceTypeClusterIP, func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"203.0.113.7"}
			s.Spec.Ports[0] = corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 51820}
		})), []string{"203.0.113.7:51820 externalIPs of Service postern"}, nil},
		{"ExternalName", cluster(service(corev1.ServiceTypeExternalName)), nil, []string{"service PST0424"}},
		{"an Ingress for the gateway", cluster(service(balancer, given(corev1.LoadBalancerIngress{IP: "203.0.113.9"})), ingress("front", "postern"), ingress("other", "auth")),
			[]string{"203.0.113.9:443 LoadBalancer of Service postern"}, []string{"service PST0424"}},
		{"an Ingress for auth, which has a port of the same Service", cluster(service(balancer, given(corev1.LoadBalancerIngress{IP: "203.0.113.9"}), func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "auth", Protocol: corev1.ProtocolTCP, Port: 8443})
		}), ingress("front", "postern", func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name = "auth" })),
			[]string{"203.0.113.9:443 LoadBalancer of Service postern"}, nil},
		{"hostPort at a node that is known", cluster(service(corev1.ServiceTypeClusterIP), pod("n1", hostPort), public1),
			[]string{"203.0.113.1:40000 hostPort of pod postern-0 on node n1 (ExternalIP)"}, nil},
		{"hostPort at a node that is not", cluster(service(corev1.ServiceTypeClusterIP), pod("n9", hostPort)),
			[]string{"10.0.0.1:40000 hostPort of pod postern-0 on node n9 (private)"}, nil},
		{"hostPort of one address", cluster(service(corev1.ServiceTypeClusterIP), pod("n9", corev1.ContainerPort{Protocol: corev1.ProtocolUDP, ContainerPort: 51820, HostPort: 40000, HostIP: "203.0.113.8"})),
			[]string{"203.0.113.8:40000 hostPort of pod postern-0"}, nil},
		{"hostPort of something else", cluster(service(corev1.ServiceTypeClusterIP), pod("n1", corev1.ContainerPort{Protocol: corev1.ProtocolTCP, ContainerPort: 51820, HostPort: 40000}), public1), nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := derive(c.facts, now)
			var got, problems []string
			for _, e := range d.Endpoints {
				got = append(got, e.Address+" "+e.From)
				if e.Source != SourceService {
					t.Errorf("%s: source %q", e.Address, e.Source)
				}
			}
			for _, p := range d.Problems {
				problems = append(problems, p.Name+" "+string(p.Code))
				cause, fix := catalogue.Render(p.Code, p.Params)
				if cause == "" || !strings.ContainsAny(fix.String(), "`.") {
					t.Errorf("%s: cause %q, fix %q", p.Code, cause, fix)
				}
			}
			if diff := cmp.Diff(c.endpoints, got); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// The node port exists at once, and peers may be connected through it.
func TestALoadBalancerThatWaitsHasANodePort(t *testing.T) {
	balancer := service(corev1.ServiceTypeLoadBalancer)
	for _, c := range []struct {
		facts facts
		want  string
	}{
		{cluster(balancer, node("n1", "ExternalIP 203.0.113.1")), "this gateway can be dialled only at its node port, 203.0.113.1:30820 (ExternalIP of node n1)"},
		{cluster(balancer), "nobody outside can dial this gateway through it"},
	} {
		d := derive(c.facts, now)
		if len(d.Problems) != 1 {
			t.Fatalf("got %+v", d.Problems)
		}
		if cause, _ := catalogue.Render(d.Problems[0].Code, d.Problems[0].Params); !strings.Contains(cause, c.want) {
			t.Errorf("got %q, want %q in it", cause, c.want)
		}
	}
}

func TestALoadBalancerIsGivenTimeForItsAddress(t *testing.T) {
	f := cluster(service(corev1.ServiceTypeLoadBalancer))
	early := made.Add(pendingGrace - time.Second)
	if d := derive(f, early); len(d.Problems) != 0 || !d.pending || !d.again.Equal(made.Add(pendingGrace)) {
		t.Errorf("after %v: %+v", early.Sub(made), d)
	}
	if d := derive(f, made.Add(pendingGrace)); len(d.Problems) != 1 || !d.Problems[0].Since.Equal(made) {
		t.Errorf("after %v: %+v", pendingGrace, d)
	}
	// One that lost its address has been pending since then, not since its creation.
	f.pendingSince = now.Add(-time.Second)
	if d := derive(f, now); len(d.Problems) != 0 || !d.again.Equal(f.pendingSince.Add(pendingGrace)) {
		t.Errorf("after a loss: %+v", d)
	}
	if d := derive(f, now.Add(time.Minute)); len(d.Problems) != 1 || !d.Problems[0].Since.Equal(f.pendingSince) {
		t.Errorf("a minute after a loss: %+v", d)
	}
}

func TestNotEveryNodeOfALargeClusterIsAnnounced(t *testing.T) {
	objects := []any{service(corev1.ServiceTypeNodePort), pod("n77")}
	for i := range 100 {
		objects = append(objects, node(fmt.Sprintf("n%02d", i), fmt.Sprintf("ExternalIP 203.0.113.%d", i)))
	}
	d := derive(cluster(objects...), now)
	want := []string{"203.0.113.77:30820", "203.0.113.0:30820", "203.0.113.1:30820", "203.0.113.2:30820"}
	if got := addresses(d.Endpoints); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
