package exposure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/predict"
)

// Labels of the chart's objects.
const (
	labelName = "app.kubernetes.io/name"
	labelRole = "postern.dev/role"
	ourName   = "postern"
	active    = "active"
)

// defaultPort is the gateway's UDP port unless its Service has another.
const defaultPort = 51820

// ReadOptions say what to read of a cluster. All may be empty.
type ReadOptions struct {
	// Name is the cluster's name in the prediction, a DNS label; empty means the namespace's.
	Name string
	// Service is the gateway's; empty means the chart's in the cluster's namespace.
	Service string
	// AuthService is auth's Service, if it is exposed out-of-band.
	AuthService string
}

// Read reads how a cluster exposes the gateway, auth and its API server, with the rights of the
// cluster's kubeconfig. If these do not suffice for something, it is unknown and a problem with
// its code. A cluster without a gateway exposes none. The error means that the API server does
// not answer.
func Read(ctx context.Context, c *kube.Cluster, o ReadOptions) (predict.Exposure, []check.OwnProblem, error) {
	clients, err := newClients(c)
	if err != nil {
		return predict.Exposure{}, nil, err
	}
	f, err := clients.facts(ctx, c.Namespace(), o)
	if err != nil {
		return predict.Exposure{}, nil, fmt.Errorf("read how the cluster at %s is exposed: %w", c.Server(), err)
	}
	installed := f.service != "" || f.services.denied
	d := derive(f, time.Now())
	if !installed {
		d.Exposure = Exposure{APIServer: d.APIServer, Auth: d.Auth}
	}
	refused, err := refusals(ctx, c, c.Namespace())
	if err != nil {
		return predict.Exposure{}, nil, fmt.Errorf("read how the cluster at %s is exposed: %w", c.Server(), err)
	}
	d.Problems = append(d.Problems, refused...)
	if o.Name == "" {
		o.Name = c.Namespace()
	}
	out := d.Predict(o.Name)
	if out.APIServer.Exposure == "" {
		out.APIServer = ofServer(c.Server())
	}
	return out, d.Problems, nil
}

// ofServer returns the address in the operator's own kubeconfig, for clusters that do not publish
// one themselves: managed clusters put theirs there.
func ofServer(server string) predict.Service {
	host, address, err := ofURL(server)
	if err != nil || private(host) || host == "localhost" {
		return predict.Service{}
	}
	return predict.Service{Exposure: predict.Provider, Address: address}
}

// facts reads everything once.
func (c clients) facts(ctx context.Context, namespace string, o ReadOptions) (facts, error) {
	f := facts{namespace: namespace, service: o.Service, auth: o.AuthService, port: defaultPort}
	var services corev1.ServiceList
	var err error
	if f.services.denied, err = list(ctx, c.core, "services", namespace, "", &services); err != nil {
		return f, err
	}
	f.services.read = !f.services.denied
	for i := range services.Items {
		s := slimService(&services.Items[i])
		f.services.list = append(f.services.list, s)
		if f.service == "" && services.Items[i].Labels[labelName] == ourName && udp(s) {
			f.service = s.Name
		}
	}
	var pods corev1.PodList
	if f.pods.denied, err = list(ctx, c.core, "pods", namespace, labelName+"="+ourName+","+labelRole+"="+active, &pods); err != nil {
		return f, err
	}
	for i := range pods.Items {
		f.pods.list = append(f.pods.list, slimPod(&pods.Items[i]))
	}
	var nodes corev1.NodeList
	if f.nodes.denied, err = list(ctx, c.core, "nodes", "", "", &nodes); err != nil {
		return f, err
	}
	f.nodes.read = !f.nodes.denied
	for i := range nodes.Items {
		f.nodes.list = append(f.nodes.list, slimNode(&nodes.Items[i]))
	}
	var ingresses networkingv1.IngressList
	if f.ingresses.denied, err = list(ctx, c.networking, "ingresses", namespace, "", &ingresses); err != nil {
		return f, err
	}
	for i := range ingresses.Items {
		f.ingresses.list = append(f.ingresses.list, slimIngress(&ingresses.Items[i]))
	}
	if s, ok := named(f.services, f.service); ok {
		f.port = targetOf(s, f.port)
	}
	f.located, err = locate(ctx, c.core)
	return f, err
}

// list lists objects. A refusal is no error.
func list(ctx context.Context, client rest.Interface, resource, namespace, labels string, into runtime.Object) (denied bool, err error) {
	o := metav1.ListOptions{LabelSelector: labels, ResourceVersion: "0"}
	err = client.Get().Namespace(namespace).Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(into)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", resource, err)
	}
	return false, nil
}

func udp(s *corev1.Service) bool {
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
}

// targetOf returns the target of the Service's UDP port. It is taken for the gateway's port if
// the gateway itself cannot be asked.
func targetOf(s *corev1.Service, otherwise uint16) uint16 {
	for _, p := range s.Spec.Ports {
		if p.Protocol == corev1.ProtocolUDP && p.TargetPort.IntVal > 0 {
			return uint16(p.TargetPort.IntVal)
		}
	}
	return otherwise
}

// enforce is a namespace's label for which pods it admits (Pod Security Admission). Neither
// baseline nor restricted admits a hostPort.
const enforce = "pod-security.kubernetes.io/enforce"

// refusals returns the problems of gateways' StatefulSets that the namespace prevents from having
// pods.
func refusals(ctx context.Context, c *kube.Cluster, namespace string) ([]check.OwnProblem, error) {
	clients, err := newClients(c)
	if err != nil {
		return nil, err
	}
	apps, err := c.Group(appsv1.SchemeGroupVersion, &appsv1.StatefulSet{}, &appsv1.StatefulSetList{})
	if err != nil {
		return nil, err
	}
	var ns corev1.Namespace
	err = clients.core.Get().Resource("namespaces").Name(namespace).Do(ctx).Into(&ns)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	level := ns.Labels[enforce]
	if level != "baseline" && level != "restricted" {
		return nil, nil
	}
	var sets appsv1.StatefulSetList
	if denied, err := list(ctx, apps, "statefulsets", namespace, labelName+"="+ourName, &sets); denied || err != nil {
		return nil, err
	}
	var out []check.OwnProblem
	for _, s := range sets.Items {
		if ports := hostPortsOf(s.Spec.Template.Spec); len(ports) > 0 {
			p := check.OwnProblem{Name: NameService, Code: catalogue.HostPortRefused}
			p.Params.Namespace, p.Params.Object = namespace, "StatefulSet "+s.Name
			p.Params.Detail = fmt.Sprintf("%s=%s, hostPort %s", enforce, level, strings.Join(ports, ", "))
			out = append(out, p)
		}
	}
	return out, nil
}

func hostPortsOf(p corev1.PodSpec) []string {
	var out []string
	for _, c := range p.Containers {
		for _, q := range c.Ports {
			if q.HostPort != 0 {
				out = append(out, fmt.Sprint(q.HostPort))
			}
		}
	}
	return out
}
