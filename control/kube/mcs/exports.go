package mcs

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/api"
	services "github.com/postern-dev/postern/control/mcs"
)

// defaultAffinity is the default timeout of session affinity (core/v1, ClientIPConfig).
const defaultAffinity = 3 * time.Hour

// annotationProxy of a ServiceExport makes connections begin with a PROXY protocol header (version
// 2). Its value lists the ports, by name or number, separated by commas.
const annotationProxy = "postern.dev/proxy-protocol-v2"

// reasonProxy is the reason of the condition Valid if the annotation cannot be followed.
const reasonProxy v1beta1.ServiceExportConditionReason = "InvalidProxyProtocol"

// export is a ServiceExport and the resulting export.
type export struct {
	object *v1beta1.ServiceExport
	export services.Export
	// invalid is why nothing is exported; nil if the service is.
	invalid *invalid
}

// invalid is a reason of the condition Valid, and its message.
type invalid struct {
	reason  v1beta1.ServiceExportConditionReason
	message string
}

// exportsOf returns the exports of the existing objects, by name. own is the gateway's IP family.
func exportsOf(s seen, own discoveryv1.AddressType) []export {
	addresses := map[netip.Addr]bool{} // of Services, which no pod has
	for _, x := range s.services {
		for _, text := range x.Spec.ClusterIPs {
			if a, err := netip.ParseAddr(text); err == nil { // not None
				addresses[a] = true
			}
		}
	}
	var out []export
	for _, x := range s.exports {
		e := export{object: x}
		service := s.services[keyOf(x)]
		if e.invalid = refuse(service); e.invalid == nil {
			e.export = services.Export{
				Name: services.Name{Namespace: x.Namespace, Name: x.Name}, UID: string(service.UID), Created: x.CreationTimestamp.Time,
				Spec: specOf(x, service),
			}
			e.export.Proxied, e.invalid = proxied(x, e.export.Spec.Ports)
			e.export.Backends = backendsOf(s.slices[keyOf(x)], e.export.Spec, own, addresses)
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b export) int {
		return cmp.Or(cmp.Compare(a.object.Namespace, b.object.Namespace), cmp.Compare(a.object.Name, b.object.Name))
	})
	return out
}

// refuse says why a Service cannot be exported.
func refuse(s *corev1.Service) *invalid {
	switch {
	case s == nil || s.DeletionTimestamp != nil:
		return &invalid{v1beta1.ServiceExportReasonNoService, "there is no Service of this name in the namespace"}
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return &invalid{v1beta1.ServiceExportReasonInvalidServiceType, "the Service is of type ExternalName, an alias in DNS: there is nothing to export"}
	case s.Labels[v1beta1.LabelServiceName] != "":
		return &invalid{v1beta1.ServiceExportReasonInvalidServiceType, "the Service is derived from an import: what another cluster exports is not exported again"}
	}
	return nil
}

// proxied returns the names of the ports whose connections begin with a PROXY protocol header. A
// server that expects the header accepts nothing else, so nothing is exported if it is not certain
// which ports are meant.
func proxied(x *v1beta1.ServiceExport, ports []services.Port) (names []string, _ *invalid) {
	text, asked := x.Annotations[annotationProxy]
	if !asked {
		return nil, nil
	}
	for _, want := range strings.Split(text, ",") {
		want = strings.TrimSpace(want)
		found := false
		for _, p := range ports {
			if p.Protocol == api.TCP && want != "" && (p.Name == want || strconv.Itoa(int(p.Port)) == want) {
				names, found = append(names, p.Name), true
			}
		}
		if !found {
			return nil, &invalid{reasonProxy, fmt.Sprintf("the annotation %s names %.63q, which is no TCP port of the Service", annotationProxy, want)}
		}
	}
	return names, nil
}

func specOf(x *v1beta1.ServiceExport, s *corev1.Service) services.Spec {
	out := services.Spec{Type: services.ClusterSetIP, Labels: services.Portable(x.Spec.ExportedLabels), Annotations: services.Portable(x.Spec.ExportedAnnotations)}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		out.Type = services.Headless
	}
	for _, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, services.Port{Name: p.Name, Protocol: api.Protocol(p.Protocol), Port: uint16(p.Port), AppProtocol: value(p.AppProtocol)})
	}
	slices.SortFunc(out.Ports, func(a, b services.Port) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.Affinity = services.Affinity{ClientIP: true, Timeout: defaultAffinity}
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			out.Affinity.Timeout = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	out.InternalTrafficPolicy = string(value(s.Spec.InternalTrafficPolicy))
	out.TrafficDistribution = value(s.Spec.TrafficDistribution)
	return out
}

// backendsOf returns the pods that are endpoints of a Service, by address. A pod may be in several
// slices, with different ports in each; only those of the Service count. Pods of a dual-stack Service
// have slices of both IP families: they count once, with their address of the gateway's own family.
// Endpoints that were written by hand and are not pods are not exported: they may be any address that
// the gateway can reach. Nor are those at the address of a Service, which may lead to the gateway, and
// so to a service of another cluster.
//
// Those that are ready count as ready. If none is, so do those that are terminating and still
// serve, except for Headless, as in kube-proxy and DNS. Kubernetes says of publishNotReadyAddresses
// that all are ready, even when they are terminating.
func backendsOf(list []*discoveryv1.EndpointSlice, spec services.Spec, own discoveryv1.AddressType, notPods map[netip.Addr]bool) []services.Backend {
	found := map[netip.Addr]services.Backend{}
	leaving := map[netip.Addr]bool{}
	hasOwn := slices.ContainsFunc(list, func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == own && len(s.Endpoints) > 0 })
	for _, s := range list {
		if hasOwn && s.AddressType != own {
			continue
		}
		ports := map[string]uint16{} // A slice may have 20,000.
		for _, p := range s.Ports {
			if p.Port != nil && len(spec.Ports) <= services.MaxPorts && slices.ContainsFunc(spec.Ports, func(x services.Port) bool { return x.Name == value(p.Name) }) {
				ports[value(p.Name)] = uint16(*p.Port)
			}
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 || value(e.TargetRef).Kind != aPod.Kind {
				continue
			}
			addr, err := netip.ParseAddr(e.Addresses[0]) // the others are the same, and are not used by Kubernetes either
			if err != nil || notPods[addr.Unmap()] {
				continue
			}
			b, known := found[addr]
			if !known {
				b = services.Backend{Addr: addr, Ports: ports}
			} else if !maps.Equal(b.Ports, ports) { // the map is that of all endpoints of its slice
				b.Ports = merged(maps.Clone(b.Ports), ports)
			}
			if spec.Type == services.Headless {
				b.Hostname = cmp.Or(value(e.Hostname), hostname(addr))
			}
			b.Ready = b.Ready || e.Conditions.Ready == nil || *e.Conditions.Ready
			if value(e.Conditions.Serving) && value(e.Conditions.Terminating) {
				leaving[addr] = true
			}
			found[addr] = b
		}
	}
	out := slices.SortedFunc(maps.Values(found), func(a, b services.Backend) int { return a.Addr.Compare(b.Addr) })
	if spec.Type != services.Headless && !slices.ContainsFunc(out, func(b services.Backend) bool { return b.Ready }) {
		for i := range out {
			out[i].Ready = leaving[out[i].Addr]
		}
	}
	return out
}

// hostname returns the name of an endpoint without one: its address with hyphens, as in CoreDNS.
func hostname(a netip.Addr) string {
	name := strings.NewReplacer(".", "-", ":", "-").Replace(a.WithZone("").String())
	if strings.HasPrefix(name, "-") {
		name = "0" + name
	}
	if strings.HasSuffix(name, "-") {
		name += "0"
	}
	return name
}

// value returns what a pointer points to, or the zero value for nil.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
