package exposure

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/predict"
)

func authOf(t corev1.ServiceType, more ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "auth", Namespace: "ns"}}
	s.Spec.Type = t
	s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 443, NodePort: 30443}}
	for _, f := range more {
		f(s)
	}
	return s
}

func annotated(key, value string) func(*networkingv1.Ingress) {
	return func(i *networkingv1.Ingress) { i.Annotations = map[string]string{key: value} }
}

func endsTLS(i *networkingv1.Ingress) { i.Spec.TLS = []networkingv1.IngressTLS{{SecretName: "tls"}} }

func TestHowAuthIsExposed(t *testing.T) {
	exposed := func(f *facts) { f.auth = "auth" }
	host := []Endpoint{{"auth.example.net:443", SourceService, "Ingress front"}}
	for _, c := range []struct {
		name  string
		facts facts
		want  Auth
	}{
		{"not out-of-band", cluster(authOf(corev1.ServiceTypeLoadBalancer)), Auth{}},
		{"of the cluster alone", cluster(exposed, authOf(corev1.ServiceTypeClusterIP)), Auth{Exposure: predict.ClusterIP}},
		{"load balancer", cluster(exposed, authOf(corev1.ServiceTypeLoadBalancer, given(corev1.LoadBalancerIngress{Hostname: "lb.example.net"}))),
			Auth{predict.LoadBalancer, []Endpoint{{"lb.example.net:443", SourceService, "LoadBalancer of Service auth"}}, ""}},
		{"node port", cluster(exposed, authOf(corev1.ServiceTypeNodePort), node("n1", "ExternalIP 203.0.113.1")),
			Auth{predict.NodePort, []Endpoint{{"203.0.113.1:30443", SourceService, "NodePort 30443 on node n1 (ExternalIP)"}}, ""}},
		{"Ingress that ends TLS", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "auth", endsTLS)), Auth{predict.Ingress, host, predict.Terminated}},
		{"Ingress that passes TLS", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "auth", annotated("nginx.ingress.kubernetes.io/ssl-passthrough", "true"))),
			Auth{predict.Ingress, host, predict.Passthrough}},
		{"Ingress that re-encrypts", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "auth", endsTLS, annotated("nginx.ingress.kubernetes.io/backend-protocol", "HTTPS"))),
			Auth{predict.Ingress, host, predict.Reencrypted}},
		{"Ingress that re-encrypts by the Service's annotation", cluster(exposed, authOf(corev1.ServiceTypeClusterIP, func(s *corev1.Service) {
			s.Annotations = map[string]string{"traefik.ingress.kubernetes.io/service.serversscheme": "https"}
		}), ingress("front", "auth", endsTLS)), Auth{predict.Ingress, host, predict.Reencrypted}},
		{"passing that is switched off", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "auth", endsTLS, annotated("haproxy.org/ssl-passthrough", "false"))),
			Auth{predict.Ingress, host, predict.Terminated}},
		{"certificate of the cloud", cluster(exposed, authOf(corev1.ServiceTypeNodePort), ingress("front", "auth", annotated("alb.ingress.kubernetes.io/certificate-arn", "arn:aws:acm:x"))),
			Auth{predict.Ingress, host, predict.Terminated}},
		{"Ingress without TLS", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "auth")),
			Auth{predict.Ingress, []Endpoint{{"auth.example.net:80", SourceService, "Ingress front"}}, TLSNone}},
		{"Ingress for any host", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "auth", endsTLS, func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].Host = ""
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "203.0.113.4"}}
		})), Auth{predict.Ingress, []Endpoint{{"203.0.113.4:443", SourceService, "Ingress front"}}, predict.Terminated}},
		{"Ingress of something else", cluster(exposed, authOf(corev1.ServiceTypeClusterIP), ingress("front", "other", endsTLS)), Auth{Exposure: predict.ClusterIP}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.services.list = append(c.facts.services.list, service(corev1.ServiceTypeClusterIP))
			got := derive(c.facts, now).Auth
			got.Endpoints = append([]Endpoint(nil), got.Endpoints...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAuthServiceThatIsMissingIsNamed(t *testing.T) {
	f := cluster(service(corev1.ServiceTypeClusterIP), func(f *facts) { f.auth = "auth" })
	d := derive(f, now)
	if len(d.Problems) != 1 || d.Problems[0].Code != "PST0422" || d.Problems[0].Params.Object != "Service auth" {
		t.Errorf("got %+v", d.Problems)
	}
}
