package mcs

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/clusterdns"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/tunnel/wake"
)

// zonePatience is how long a refusal to read names is tolerated if they were never read.
const zonePatience = 15 * time.Second

// ZoneOptions configure which names are read. All but Namespaces are required.
type ZoneOptions struct {
	Cluster *kube.Cluster
	// Namespaces are as in [Options].
	Namespaces []string
	// Set receives each zone.
	Set    func(*clusterdns.Zone)
	Logger *slog.Logger
}

// FollowZone passes the names of all ServiceImports, whoever made them, to Set until ctx ends. Like
// CoreDNS it also reads the EndpointSlices with the API's label. It needs no gateway, so that every
// replica answers. The last zone stays while the API server is unreachable.
func FollowZone(ctx context.Context, o ZoneOptions) {
	for ctx.Err() == nil {
		if err := o.follow(ctx); ctx.Err() == nil {
			o.Logger.Debug("names of imported services cannot be read", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(kindsAgain):
		}
	}
}

// named is the mirrors from which the names of a namespace, or of all, are read.
type named struct {
	imports *mirror.Mirror[*v1beta1.ServiceImport]
	slices  *mirror.Mirror[*discoveryv1.EndpointSlice]
}

// follow does this with one version of the API, until ctx ends or the kind is missing.
func (o ZoneOptions) follow(ctx context.Context) error {
	version, err := versionOf(ctx, o.Cluster)
	if err != nil {
		return err
	}
	clients, err := newClients(o.Cluster, version)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := wake.New()
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var places []named
	for _, namespace := range namespaces {
		p := named{
			imports: mirror.New(mirror.Options[*v1beta1.ServiceImport]{
				Client: clients.mcs, Resource: importKind.resource, Namespace: namespace, List: &v1beta1.ServiceImportList{}, Changed: changed.Set, Slim: slimImport,
			}),
			slices: mirror.New(mirror.Options[*discoveryv1.EndpointSlice]{
				Client: clients.discovery, Resource: sliceKind.resource, Namespace: namespace, Labels: v1beta1.LabelServiceName,
				List: &discoveryv1.EndpointSliceList{}, Changed: changed.Set, Slim: slimNames,
			}),
		}
		places = append(places, p)
		running.Go(func() { p.imports.Run(ctx) })
		running.Go(func() { p.slices.Run(ctx) })
	}
	// A starting API server refuses everything, so what was never read gets that long.
	starting := time.NewTimer(zonePatience)
	defer starting.Stop()
	started := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-starting.C:
			started = true
		}
		began := time.Now()
		readable := true
		var services []clusterdns.Service
		for _, p := range places {
			if apierrors.IsNotFound(p.imports.Err()) {
				return missingKinds(importKind.qualified())
			}
			imports, a := p.imports.Objects()
			endpoints, b := p.slices.Objects()
			denied := p.imports.Denied() || p.slices.Denied()
			if readable = a && b || denied && started; !readable {
				break
			}
			if denied { // what it had is not to be told any more
				continue
			}
			services = append(services, servicesOf(imports, endpoints)...)
		}
		if readable {
			o.Set(clusterdns.NewZone(services, began))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(gather, calm(time.Since(began)))):
		}
	}
}

// servicesOf returns the DNS data of imports.
func servicesOf(imports []*v1beta1.ServiceImport, endpoints []*discoveryv1.EndpointSlice) []clusterdns.Service {
	of := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, x := range endpoints {
		key := types.NamespacedName{Namespace: x.Namespace, Name: x.Labels[v1beta1.LabelServiceName]}
		of[key] = append(of[key], x)
	}
	var out []clusterdns.Service
	for _, x := range imports {
		s := clusterdns.Service{Namespace: x.Namespace, Name: x.Name, Headless: x.Spec.Type == v1beta1.Headless, Addresses: addresses(x.Spec.IPs)}
		for _, p := range x.Spec.Ports {
			s.Ports = append(s.Ports, clusterdns.Port{Name: p.Name, Protocol: string(p.Protocol), Number: uint16(p.Port)})
		}
		if s.Headless {
			for _, slice := range of[keyOf(x)] {
				s.Endpoints = append(s.Endpoints, endpointsOf(slice)...)
			}
		}
		out = append(out, s)
	}
	return out
}

// endpointsOf returns the ready endpoints of an EndpointSlice.
func endpointsOf(x *discoveryv1.EndpointSlice) []clusterdns.Endpoint {
	var ports []clusterdns.Port
	for _, p := range x.Ports {
		if p.Port != nil {
			ports = append(ports, clusterdns.Port{Name: value(p.Name), Protocol: string(value(p.Protocol)), Number: uint16(*p.Port)})
		}
	}
	var out []clusterdns.Endpoint
	for _, e := range x.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, a := range addresses(e.Addresses) {
			out = append(out, clusterdns.Endpoint{Addr: a, Cluster: x.Labels[v1beta1.LabelSourceCluster], Hostname: value(e.Hostname), Ports: ports})
		}
	}
	return out
}

// addresses returns the valid addresses of a list.
func addresses(list []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range list {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// slimImport reduces a ServiceImport to what DNS needs.
func slimImport(x *v1beta1.ServiceImport) *v1beta1.ServiceImport {
	return &v1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: x.Namespace, Name: x.Name},
		Spec:       v1beta1.ServiceImportSpec{Type: x.Spec.Type, IPs: x.Spec.IPs, Ports: x.Spec.Ports},
	}
}

// slimNames reduces an EndpointSlice to what DNS needs.
func slimNames(x *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	labels := map[string]string{v1beta1.LabelServiceName: x.Labels[v1beta1.LabelServiceName], v1beta1.LabelSourceCluster: x.Labels[v1beta1.LabelSourceCluster]}
	out := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: x.Namespace, Name: x.Name, Labels: labels}, Ports: x.Ports}
	for _, e := range x.Endpoints {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname})
	}
	return out
}
