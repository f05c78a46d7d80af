package access

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// finder asks the API server for the pods that have an address.
type finder struct {
	core       rest.Interface
	namespaces []string
}

// selectorOf selects the pods that have an address of their own: one with its node's network
// speaks for everything on that node, and one that has ended may have left its address to
// another.
func selectorOf(ip netip.Addr) string {
	return fmt.Sprintf("status.podIP=%s,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed", ip)
}

func (f finder) find(ctx context.Context, ip netip.Addr) ([]pod, error) {
	namespaces := f.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var out []pod
	for _, ns := range namespaces {
		list, err := listMetadata(ctx, f.core, "pods", ns, metav1.ListOptions{FieldSelector: selectorOf(ip)})
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			out = append(out, pod{name: x.Namespace + "/" + x.Name, peers: peersOf(x.Labels), ends: x.DeletionTimestamp != nil})
		}
	}
	return out, nil
}
