package exposure

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// locateAfter is the interval of requests for the API server's location: it hardly ever
	// changes, and a watch would cost more.
	locateAfter = 10 * time.Minute
	// locateRetry is the same after a failure.
	locateRetry = 30 * time.Second
	// locateTimeout bounds one round.
	locateTimeout = 10 * time.Second
)

// controlPlane is the label of control plane nodes (kubeadm, k3s, kind).
const controlPlane = "node-role.kubernetes.io/control-plane"

// locator periodically requests the API server's location from the cluster.
type locator struct {
	core    rest.Interface
	changed func()

	mu  sync.Mutex
	now location
}

func (l *locator) location() location {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// run sends requests until ctx ends.
func (l *locator) run(ctx context.Context) {
	for {
		wait := locateAfter
		if next, err := locate(ctx, l.core); err == nil {
			l.set(next)
		} else {
			wait = locateRetry // what was known stays in force
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (l *locator) set(next location) {
	l.mu.Lock()
	other := l.now != next
	l.now = next
	l.mu.Unlock()
	if other {
		l.changed()
	}
}

// locate reads cluster-info, or else the control plane nodes. If neither exists, or may be read,
// that is an answer as well; an error means no answer.
func locate(ctx context.Context, core rest.Interface) (location, error) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	var denied string
	var info corev1.ConfigMap
	err := core.Get().Namespace(metav1.NamespacePublic).Resource("configmaps").Name("cluster-info").Do(ctx).Into(&info)
	switch {
	case err == nil:
		if e, err := ofClusterInfo(info.Data["kubeconfig"]); err == nil {
			return location{Endpoint: e, asked: true}, nil
		}
		denied = "cluster-info has no kubeconfig that can be read"
	case apierrors.IsForbidden(err):
		denied = "cluster-info may not be read by this gateway"
	case !apierrors.IsNotFound(err):
		return location{}, fmt.Errorf("read kube-public's cluster-info: %w", err)
	}
	var nodes corev1.NodeList
	o := metav1.ListOptions{LabelSelector: controlPlane, ResourceVersion: "0"}
	err = core.Get().Resource("nodes").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&nodes)
	switch {
	case apierrors.IsForbidden(err):
		return location{asked: true, denied: "nodes may not be listed by this gateway"}, nil
	case err != nil:
		return location{}, fmt.Errorf("list the nodes of the control plane: %w", err)
	}
	return location{Endpoint: ofControlPlane(nodes.Items), asked: true, denied: denied}, nil
}
