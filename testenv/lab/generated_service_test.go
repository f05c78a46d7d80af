package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/exposure"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/discovery"
)

// serviceFaults are faults of cloud's Service, through which strangers reach cloud.
func serviceFaults() []endFault {
	change := func(kind watch.EventType, next func(*corev1.Service)) func(context.Context, *Lab) error {
		return func(ctx context.Context, l *Lab) error {
			c, err := l.startCluster(ctx)
			if err != nil {
				return err
			}
			return c.change(ctx, kind, next)
		}
	}
	restore := func(kind watch.EventType) func(context.Context, *Lab) error {
		return func(ctx context.Context, l *Lab) error {
			for _, s := range l.fault.servers {
				if c, ok := s.(*cluster); ok {
					return c.change(ctx, kind, func(s *corev1.Service) { *s = gatewayService() })
				}
			}
			return fmt.Errorf("there is no cluster")
		}
	}
	return []endFault{
		{name: "Service, deleted", cloud: codes(catalogue.ServiceMissing), says: "create it again with `helm upgrade`",
			do: change(watch.Deleted, func(*corev1.Service) {}), fix: restore(watch.Added)},
		{name: "Service, TCP instead of UDP", cloud: codes(catalogue.ServicePort), says: "give it a port with protocol: UDP",
			do:  change(watch.Modified, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP }),
			fix: restore(watch.Modified)},
	}
}

// gatewayService returns a Service as the chart creates it, with an address from its cloud
// provider.
func gatewayService() corev1.Service {
	return corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "postern", Namespace: "postern"},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Name: "wireguard", Protocol: corev1.ProtocolUDP, Port: gatewayPort}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: cloudAddr.String()}}}},
	}
}

// cluster is an API server with one Service, and the watcher that tells cloud about it.
type cluster struct {
	server   *httptest.Server
	stop     context.CancelFunc
	watching sync.WaitGroup
	told     chan exposure.Exposure
	events   chan metav1.WatchEvent

	mu      sync.Mutex
	version int
	service corev1.Service
	gone    bool
}

// startCluster runs cloud's gateway in a cluster, and waits until it knows its Service.
func (l *Lab) startCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{service: gatewayService(), version: 1, told: make(chan exposure.Exposure), events: make(chan metav1.WatchEvent)}
	c.server = httptest.NewServer(c)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	l.fault.servers = append(l.fault.servers, c)
	file := filepath.Join(filepath.Dir(l.Cloud.File), "kubeconfig")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: lab,
clusters: [{name: lab, cluster: {server: "%s"}}], contexts: [{name: lab, context: {cluster: lab, namespace: postern}}]}`, c.server.URL), 0o600); err != nil {
		return nil, err
	}
	connected, err := kube.ConnectContext(kubeconfig.Flags{File: file}, "lab")
	if err != nil {
		return nil, err
	}
	w, err := exposure.New(exposure.Options{Cluster: connected, Service: c.service.Name, Port: gatewayPort, APIServer: "api.example.net:6443",
		OnChange: func(e exposure.Exposure) {
			l.Cloud.expose(e)
			select {
			case c.told <- e:
			case <-watching.Done():
			}
		}})
	if err != nil {
		return nil, err
	}
	c.watching.Go(func() { w.Run(watching) })
	return c, c.awaitTold(ctx)
}

// expose tells the gateway how its cluster exposes it, as package pod does.
func (s *Site) expose(e exposure.Exposure) {
	var list []discovery.ServiceEndpoint
	for _, x := range e.Endpoints {
		list = append(list, discovery.ServiceEndpoint{Address: x.Address, From: x.From})
	}
	g := s.Running()
	g.SetServiceEndpoints(list)
	g.SetProblems("exposure", e.Problems)
}

func (c *cluster) awaitTold(ctx context.Context) error {
	select {
	case <-c.told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// change changes the Service, and waits until the gateway knows.
func (c *cluster) change(ctx context.Context, kind watch.EventType, next func(*corev1.Service)) error {
	c.mu.Lock()
	next(&c.service)
	c.gone = kind == watch.Deleted
	c.version++
	e := metav1.WatchEvent{Type: string(kind)}
	var err error
	e.Object.Raw, err = json.Marshal(c.current())
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case c.events <- e:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.awaitTold(ctx)
}

// current returns the Service; the caller must hold mu.
func (c *cluster) current() corev1.Service {
	s := *c.service.DeepCopy()
	s.ResourceVersion = fmt.Sprint(c.version)
	return s
}

// ServeHTTP serves list and watch of the Service, and nothing else.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query, resource := r.URL.Query(), path.Base(r.URL.Path)
	kinds := map[string]metav1.TypeMeta{
		"services": {APIVersion: "v1", Kind: "ServiceList"}, "nodes": {APIVersion: "v1", Kind: "NodeList"},
		"ingresses": {APIVersion: "networking.k8s.io/v1", Kind: "IngressList"},
	}
	switch kind, known := kinds[resource]; {
	case !known:
		w.WriteHeader(http.StatusNotFound)
	case query.Get("sendInitialEvents") == "true":
		w.WriteHeader(http.StatusUnprocessableEntity) // like a server that does not support such lists
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case query.Get("watch") == "true":
		c.watch(w, r, resource)
	default:
		c.mu.Lock()
		list := corev1.ServiceList{TypeMeta: kind, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(c.version)}}
		if resource == "services" && !c.gone {
			list.Items = []corev1.Service{c.current()}
		}
		c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (c *cluster) watch(w io.Writer, r *http.Request, resource string) {
	events := c.events
	if resource != "services" {
		events = nil
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case e := <-events:
			_ = json.NewEncoder(w).Encode(e)
		case <-r.Context().Done():
			return
		}
	}
}

// Close stops the watcher and the server.
func (c *cluster) Close() error {
	c.stop()
	c.watching.Wait()
	c.server.CloseClientConnections()
	c.server.Close()
	return nil
}
