package exposure

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/predict"
)

// authService finds how auth is exposed out-of-band. An Ingress comes first: its Service is then
// a ClusterIP, or a NodePort for use by the Ingress.
func (f facts) authService(d *derived) {
	if f.auth == "" {
		return
	}
	s, ok := named(f.services, f.auth)
	if !ok {
		if f.services.read {
			d.problem(NameService, catalogue.ServiceMissing, f.about("Service", f.auth))
		}
		return
	}
	var found endpoints
	for _, i := range f.ingresses.list {
		if backs(i, f.auth) {
			d.Auth.Exposure, d.Auth.TLS = predict.Ingress, tlsOf(i, s)
			ofIngress(&found, i, f.auth, d.Auth.TLS)
		}
	}
	if d.Auth.Exposure == "" {
		f.authDirect(d, &found, s)
	}
	d.Auth.Endpoints = found
}

// authDirect handles auth without an Ingress.
func (f facts) authDirect(d *derived, found *endpoints, s *corev1.Service) {
	d.Auth.Exposure = predict.ClusterIP
	for _, port := range s.Spec.Ports {
		if port.Protocol != corev1.ProtocolTCP {
			continue
		}
		number := strconv.Itoa(int(port.Port))
		for _, ip := range s.Spec.ExternalIPs {
			found.add(ip, number, "externalIPs of Service "+s.Name)
		}
		switch s.Spec.Type {
		case corev1.ServiceTypeLoadBalancer:
			d.Auth.Exposure = predict.LoadBalancer
			for _, in := range s.Status.LoadBalancer.Ingress {
				found.add(in.IP, number, "LoadBalancer of Service "+s.Name)
				found.add(in.Hostname, number, "LoadBalancer of Service "+s.Name)
			}
		case corev1.ServiceTypeNodePort:
			d.Auth.Exposure = predict.NodePort
			f.nodePorts(d, found, s, port)
		}
	}
}

// ofIngress adds the hosts of the rules that lead to a Service. Without hosts, any host will do,
// and it adds the Ingress's addresses.
func ofIngress(found *endpoints, i *networkingv1.Ingress, service, tls string) {
	port, from := "443", "Ingress "+i.Name
	if tls == TLSNone {
		port = "80"
	}
	named := false
	for _, r := range i.Spec.Rules {
		one := networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{r}}}
		if r.Host != "" && !strings.HasPrefix(r.Host, "*") && backs(&one, service) {
			found.add(r.Host, port, from)
			named = true
		}
	}
	if named {
		return
	}
	for _, in := range i.Status.LoadBalancer.Ingress {
		found.add(in.IP, port, from)
		found.add(in.Hostname, port, from)
	}
}

// annotation is an annotation about TLS for an Ingress controller.
type annotation struct {
	key    string
	values []string // any of them, in lower case; empty = any value
}

// passing, encrypting and ending are the annotations of common controllers: ingress-nginx,
// HAProxy Technologies', haproxy-ingress, Traefik, AWS Load Balancer Controller, OpenShift. With
// the first two, auth gets TLS, either unchanged or re-encrypted; with the last, TLS is
// terminated before.
func passing() []annotation {
	yes := []string{"true"}
	return []annotation{
		{"nginx.ingress.kubernetes.io/ssl-passthrough", yes},
		{"haproxy.org/ssl-passthrough", yes},
		{"haproxy-ingress.github.io/ssl-passthrough", yes},
		{"ingress.kubernetes.io/ssl-passthrough", yes},
		{"traefik.ingress.kubernetes.io/router.tls.passthrough", yes},
		{"route.openshift.io/termination", []string{"passthrough"}},
	}
}

func encrypting() []annotation {
	https := []string{"https", "h2", "h2-ssl", "grpcs"}
	return []annotation{
		{"nginx.ingress.kubernetes.io/backend-protocol", https},
		{"haproxy-ingress.github.io/backend-protocol", https},
		{"haproxy-ingress.github.io/secure-backends", []string{"true"}},
		{"haproxy.org/server-ssl", []string{"true"}},
		{"alb.ingress.kubernetes.io/backend-protocol", https},
		{"traefik.ingress.kubernetes.io/service.serversscheme", https},
		{"route.openshift.io/termination", []string{"reencrypt"}},
	}
}

func ending() []annotation {
	return []annotation{
		{"alb.ingress.kubernetes.io/certificate-arn", nil},
		{"traefik.ingress.kubernetes.io/router.tls", []string{"true"}},
		{"route.openshift.io/termination", []string{"edge"}},
	}
}

// tlsOf returns what an Ingress does with TLS on the way to a Service. Traefik reads some
// annotations of the Service.
func tlsOf(i *networkingv1.Ingress, s *corev1.Service) string {
	has := func(list []annotation) bool {
		return slices.ContainsFunc(list, func(a annotation) bool {
			for _, of := range []map[string]string{i.Annotations, s.Annotations} {
				if v, ok := of[a.key]; ok && (len(a.values) == 0 || slices.Contains(a.values, strings.ToLower(v))) {
					return true
				}
			}
			return false
		})
	}
	takesTLS := len(i.Spec.TLS) > 0 || has(ending())
	switch {
	case has(passing()):
		return predict.Passthrough
	case has(encrypting()):
		return predict.Reencrypted
	case takesTLS:
		return predict.Terminated
	}
	return TLSNone
}
