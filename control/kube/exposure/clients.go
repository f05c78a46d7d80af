package exposure

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/mirror"
)

// clients only know the types that are read.
type clients struct {
	core, networking rest.Interface
}

func newClients(c *kube.Cluster) (clients, error) {
	core, err := c.Group(corev1.SchemeGroupVersion,
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{},
		&corev1.Pod{}, &corev1.PodList{}, &corev1.ConfigMap{}, &corev1.Namespace{})
	if err != nil {
		return clients{}, fmt.Errorf("exposure: %w", err)
	}
	networking, err := c.Group(networkingv1.SchemeGroupVersion, &networkingv1.Ingress{}, &networkingv1.IngressList{})
	if err != nil {
		return clients{}, fmt.Errorf("exposure: %w", err)
	}
	return clients{core, networking}, nil
}

// service mirrors one Service by name, for which a permission with resourceNames is enough.
func (c clients) service(namespace, name string, changed func()) mirror.Options[*corev1.Service] {
	return mirror.Options[*corev1.Service]{
		Client: c.core, Resource: "services", Namespace: namespace, Fields: "metadata.name=" + name,
		List: &corev1.ServiceList{}, Slim: slimService, Changed: changed,
	}
}
