package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// finder asks the API server for the pods that have an address.
type finder struct {
	core       rest.Interface
	namespaces []string
}

// denied means that the pods of some namespaces may not be listed.
type denied struct {
	namespaces []string
	err        error // of the first
}

func (d *denied) Error() string { return d.err.Error() }
func (d *denied) Unwrap() error { return d.err }

func isDenied(err error) bool {
	_, is := errors.AsType[*denied](err)
	return is
}

// selectorOf selects the pods with an address of their own. A pod with its node's network speaks
// for everything on that node, and a finished one may have left its address to another.
func selectorOf(ip netip.Addr) string {
	return fmt.Sprintf("status.podIP=%s,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed", ip)
}

// find returns the pods that were found, with an error if some namespaces could not be looked into.
func (f finder) find(ctx context.Context, ip netip.Addr) ([]pod, error) {
	var out []pod
	var refused *denied
	for _, ns := range f.namespaces {
		list, err := listMetadata(ctx, f.core, "pods", ns, metav1.ListOptions{FieldSelector: selectorOf(ip)})
		switch {
		case apierrors.IsForbidden(err):
			if refused == nil {
				refused = &denied{err: err}
			}
			refused.namespaces = append(refused.namespaces, ns)
			continue
		case err != nil:
			return nil, err
		}
		for _, x := range list {
			out = append(out, pod{name: x.Namespace + "/" + x.Name, peers: peersOf(x.Labels), ends: x.DeletionTimestamp != nil})
		}
	}
	if refused != nil {
		return out, refused
	}
	return out, nil
}
