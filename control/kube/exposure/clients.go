package exposure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube"
)

// clients know the few types that are read.
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

// service is one Service, by its name: a right with resourceNames will do for that.
func (c clients) service(namespace, name string) source {
	return source{client: c.core, resource: "services", namespace: namespace, fields: "metadata.name=" + name}
}

// selector writes labels as a selector that wants all of them.
func selector(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}
