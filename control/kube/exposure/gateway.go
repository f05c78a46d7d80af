package exposure

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/postern-dev/postern/control/catalogue"
)

// pendingGrace is how long a load balancer may take to get its address before this is reported:
// clouds take 10 to 60 s, mostly less than this.
const pendingGrace = 30 * time.Second

// gateway finds what leads to the gateway's UDP port.
func (f facts) gateway(d *derived, now time.Time) {
	var found endpoints
	s, ok := named(f.services, f.service)
	switch {
	case ok:
		d.Type = string(s.Spec.Type)
		f.ofService(d, &found, s, now)
	case f.services.denied:
		d.problem(NameService, catalogue.ExposureUnknown, f.right("services", f.namespace))
	case f.services.read:
		d.problem(NameService, catalogue.ServiceMissing, f.about("Service", f.service))
	}
	f.hostPorts(d, &found)
	d.Endpoints = found
	for _, i := range f.ingresses.list {
		if backs(i, f.service) && !toTCP(i, s, f.service) {
			d.problem(NameService, catalogue.NoUDPWay, f.about("Ingress", i.Name))
		}
	}
}

// ofService adds the addresses of the Service.
func (f facts) ofService(d *derived, found *endpoints, s *corev1.Service, now time.Time) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		p := f.about("Service", s.Name)
		p.Detail = string(s.Spec.Type)
		d.problem(NameService, catalogue.NoUDPWay, p)
		return
	}
	ports := f.portsOf(s)
	if len(ports) == 0 {
		p := f.about("Service", s.Name)
		p.Detail = describePorts(s.Spec.Ports)
		d.problem(NameService, catalogue.ServicePort, p)
		return
	}
	if f.astray {
		p := f.about("Service", s.Name)
		p.Selector = labels.Set(s.Spec.Selector).String()
		d.problem(NameService, catalogue.ServicePort, p)
	}
	for _, port := range ports {
		number := strconv.Itoa(int(port.Port))
		for _, ip := range s.Spec.ExternalIPs {
			found.add(ip, number, "externalIPs of Service "+s.Name)
		}
		switch s.Spec.Type {
		case corev1.ServiceTypeLoadBalancer:
			f.loadBalancer(d, found, s, port, now)
		case corev1.ServiceTypeNodePort:
			f.nodePort(d, found, s, port)
		}
	}
}

// loadBalancer adds the addresses of the Service's load balancer.
func (f facts) loadBalancer(d *derived, found *endpoints, s *corev1.Service, port corev1.ServicePort, now time.Time) {
	from := "LoadBalancer of Service " + s.Name
	var failed []string
	some := false
	for _, in := range s.Status.LoadBalancer.Ingress {
		if why := portError(in, port); why != "" {
			failed = append(failed, why)
			continue
		}
		number := strconv.Itoa(int(port.Port))
		found.add(in.IP, number, from)
		found.add(in.Hostname, number, from)
		some = some || in.IP != "" || in.Hostname != ""
	}
	if some {
		return
	}
	d.pending = true
	since := s.CreationTimestamp.Time
	if f.pendingSince.After(since) {
		since = f.pendingSince
	}
	byNode, _ := f.nodePorts(d, found, s, port) // which it has at once, while it waits
	if told := since.Add(pendingGrace); now.Before(told) && len(failed) == 0 {
		d.again = told
		return
	}
	p := f.about("Service", s.Name)
	p.Detail, p.Candidates = strings.Join(failed, ", "), byNode
	d.since(NameService, catalogue.LoadBalancerPending, p, since)
}

// portError returns the load balancer's error about a port that it does not serve.
func portError(in corev1.LoadBalancerIngress, port corev1.ServicePort) string {
	for _, st := range in.Ports {
		if st.Port == port.Port && st.Protocol == port.Protocol && st.Error != nil {
			return *st.Error
		}
	}
	return ""
}

// nodePort adds the node port, and reports if strangers cannot use it.
func (f facts) nodePort(d *derived, found *endpoints, s *corev1.Service, port corev1.ServicePort) {
	candidates, why := f.nodePorts(d, found, s, port)
	shut := !slices.ContainsFunc(*found, func(e Endpoint) bool {
		a, err := netip.ParseAddrPort(e.Address)
		return err != nil || !private(a.Addr().String())
	})
	switch {
	case f.nodes.denied:
		d.problem(NameNodes, catalogue.ExposureUnknown, f.right("nodes", ""))
	case f.nodes.read && shut:
		p := f.about("Service", s.Name)
		p.Candidates, p.Detail = candidates, why
		d.problem(NameNodes, catalogue.NodePortPrivate, p)
	}
}

// portsOf returns the Service's ports that lead to the gateway.
func (f facts) portsOf(s *corev1.Service) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolUDP && f.leadsHere(p) {
			out = append(out, p)
		}
	}
	return out
}

// leadsHere reports whether a port's target is the gateway's. A name refers to the pod's ports;
// while no pod is known, it is assumed to match.
func (f facts) leadsHere(p corev1.ServicePort) bool {
	if p.TargetPort.Type == intstr.Int {
		target := p.TargetPort.IntVal
		if target == 0 {
			target = p.Port
		}
		return target == int32(f.port)
	}
	for _, pod := range f.pods.list {
		for _, c := range pod.Spec.Containers {
			for _, q := range c.Ports {
				if q.Name == p.TargetPort.StrVal && q.Protocol == corev1.ProtocolUDP {
					return q.ContainerPort == int32(f.port)
				}
			}
		}
	}
	return len(f.pods.list) == 0
}

// describePorts describes a Service's ports, for a message.
func describePorts(ports []corev1.ServicePort) string {
	var out []string
	for _, p := range ports {
		target := p.TargetPort.String()
		if target == "0" || target == "" {
			target = strconv.Itoa(int(p.Port))
		}
		out = append(out, fmt.Sprintf("%s %d (to %s)", p.Protocol, p.Port, target))
	}
	return strings.Join(out, ", ")
}

// hostPorts adds the hostPort of the active pod.
func (f facts) hostPorts(d *derived, found *endpoints) {
	for _, pod := range f.pods.list {
		for _, c := range pod.Spec.Containers {
			for _, p := range c.Ports {
				if p.HostPort != 0 && p.Protocol == corev1.ProtocolUDP && p.ContainerPort == int32(f.port) {
					f.hostPort(d, found, pod, p)
				}
			}
		}
	}
}

func (f facts) hostPort(d *derived, found *endpoints, pod *corev1.Pod, p corev1.ContainerPort) {
	d.wantNodes = true
	if p.HostIP != "" && p.HostIP != "0.0.0.0" && p.HostIP != "::" {
		found.add(p.HostIP, strconv.Itoa(int(p.HostPort)), fmt.Sprintf("hostPort of pod %s%s", pod.Name, note(p.HostIP)))
		return
	}
	port, from := strconv.Itoa(int(p.HostPort)), fmt.Sprintf("hostPort of pod %s on node %s", pod.Name, pod.Spec.NodeName)
	if n, ok := named(f.nodes, pod.Spec.NodeName); ok {
		for _, a := range reachable(n) {
			found.add(a.Address, port, fmt.Sprintf("%s (%s%s)", from, a.Type, locality(a.Address)))
		}
		return
	}
	for _, ip := range pod.Status.HostIPs {
		found.add(ip.IP, port, from+note(ip.IP))
	}
}

// backends returns the ports of a Service that an Ingress leads to.
func backends(i *networkingv1.Ingress, service string) []networkingv1.ServiceBackendPort {
	var out []networkingv1.ServiceBackendPort
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil && b.Service.Name == service {
			out = append(out, b.Service.Port)
		}
	}
	add(i.Spec.DefaultBackend)
	for _, r := range i.Spec.Rules {
		if r.HTTP != nil {
			for _, p := range r.HTTP.Paths {
				add(&p.Backend)
			}
		}
	}
	return out
}

// backs reports whether an Ingress leads to a Service.
func backs(i *networkingv1.Ingress, service string) bool { return len(backends(i, service)) > 0 }

// toTCP reports whether an Ingress only leads to TCP ports of the gateway's Service, which are
// for out-of-band auth. s is nil if there is no Service.
func toTCP(i *networkingv1.Ingress, s *corev1.Service, service string) bool {
	return s != nil && !slices.ContainsFunc(backends(i, service), func(b networkingv1.ServiceBackendPort) bool {
		return !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Protocol == corev1.ProtocolTCP && (b.Name != "" && b.Name == p.Name || b.Number != 0 && b.Number == p.Port)
		})
	})
}
