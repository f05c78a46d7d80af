package exposure

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node's status lists all its images, and every object the managers of its fields. What is not
// read is dropped at once.

func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func slimService(s *corev1.Service) *corev1.Service {
	out := &corev1.Service{ObjectMeta: slimMeta(s.ObjectMeta), Status: corev1.ServiceStatus{LoadBalancer: s.Status.LoadBalancer}}
	out.Annotations = maps.Clone(s.Annotations)
	out.Spec = corev1.ServiceSpec{Type: s.Spec.Type, Ports: s.Spec.Ports, ExternalIPs: s.Spec.ExternalIPs, ExternalTrafficPolicy: s.Spec.ExternalTrafficPolicy,
		Selector: s.Spec.Selector}
	return out
}

func slimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: slimMeta(n.ObjectMeta)}
	out.Status.Addresses = n.Status.Addresses
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

func slimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: slimMeta(p.ObjectMeta)}
	out.Labels = p.Labels
	out.Spec.NodeName = p.Spec.NodeName
	for _, c := range p.Spec.Containers {
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	out.Status.HostIPs = p.Status.HostIPs
	return out
}

func slimIngress(i *networkingv1.Ingress) *networkingv1.Ingress {
	out := &networkingv1.Ingress{ObjectMeta: slimMeta(i.ObjectMeta), Spec: i.Spec}
	out.Annotations = maps.Clone(i.Annotations)
	out.Status.LoadBalancer = i.Status.LoadBalancer
	return out
}
