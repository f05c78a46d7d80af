package mcs

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/control/kube/objects"
	services "github.com/postern-dev/postern/control/mcs"
)

const (
	// derivedPrefix is the prefix of the names of derived Services and EndpointSlices.
	// derivedAnnotation of a ServiceImport names its derived Service (as in the API's reference
	// implementation).
	derivedPrefix     = "derived-"
	derivedAnnotation = "multicluster.kubernetes.io/derived-service"
	// maxEndpoints is the API server's limit of endpoints in an EndpointSlice.
	maxEndpoints = 1000
	// maxDerived is the maximum number of derived Services, and peerDerived that for one cluster.
	// Each takes one of the addresses that the cluster has for all its Services (often 4,096).
	maxDerived, peerDerived = 2000, 1000
)

// maker makes the objects of imports.
type maker struct {
	o       Options
	kinds   schema.GroupVersion
	seen    seen
	exports map[services.Name]services.Export
	made    []object
	derived map[id]bool            // the derived Services that there are addresses for
	held    map[services.Name]bool // see hold
	dead    map[mirror.Object]bool // derived Services to delete, see service
	// problems say which services are not imported.
	problems []services.Problem
}

// endpoint is an endpoint of an EndpointSlice.
type endpoint struct {
	addr     netip.Addr
	hostname string
	down     bool                       // another cluster gets the connections
	ports    []discoveryv1.EndpointPort // in the order of the import's
}

// add makes the objects of one import as far as possible now: those of a new import that needs the
// address of a Service follow once it has one. An import that there is stays without an address while
// its Service is made again.
func (m *maker) add(i services.Import) {
	if !slices.Contains(m.seen.namespaces, i.Name.Namespace) {
		return
	}
	derived := derivedName(i.Name)
	if m.taken(i) { // It is not written, but that is reported.
		m.serviceImport(i, derived, nil, nil, nil)
		return
	}
	type part struct {
		cluster string
		list    []endpoint
	}
	var parts []part
	var all []endpoint
	for _, c := range i.Clusters {
		parts = append(parts, part{c.ID, m.remote(i, c)})
	}
	if i.Own {
		parts = append(parts, part{m.o.ID, m.own(i)})
	}
	for _, p := range parts {
		all = append(all, p.list...)
	}
	var ips []string
	families := familiesOf(all)
	if i.Spec.Type == services.ClusterSetIP {
		if !m.derived[id{serviceKind, i.Name.Namespace, derived}] {
			return
		}
		families = nil
		if s := m.service(i, derived, nil, all); s != nil {
			ips, families = s.Spec.ClusterIPs, s.Spec.IPFamilies
		} else if m.seen.imports[types.NamespacedName(i.Name)] == nil {
			return
		}
	}
	var clusters []string
	for _, p := range parts {
		clusters = append(clusters, p.cluster)
		m.slices(i, derived, p.cluster, p.list)
	}
	if !m.held[i.Name] {
		m.serviceImport(i, derived, ips, families, clusters)
	}
}

// taken reports whether there is a ServiceImport of the same name that someone else made. Our
// EndpointSlices would become part of it.
func (m *maker) taken(i services.Import) bool {
	x := m.seen.imports[types.NamespacedName{Namespace: i.Name.Namespace, Name: i.Name.Name}]
	return x != nil && !m.o.ours(x)
}

// remote returns the endpoints of a peer: its listeners here or, for Headless, the Services that
// lead to them.
func (m *maker) remote(i services.Import, c services.Cluster) []endpoint {
	var out []endpoint
	for _, e := range c.Endpoints {
		at := map[netip.Addr][]discoveryv1.EndpointPort{}
		for _, p := range i.Spec.Ports {
			for _, have := range e.Ports {
				if same(p, have.Port) {
					addr := have.At.Addr().Unmap()
					at[addr] = append(at[addr], portOf(p, have.At.Port()))
				}
			}
		}
		var list []endpoint
		for _, addr := range slices.SortedFunc(maps.Keys(at), netip.Addr.Compare) {
			list = append(list, endpoint{addr: addr, hostname: e.Hostname, down: c.Down, ports: at[addr]})
		}
		if i.Spec.Type == services.Headless {
			list = m.stand(i, c.ID, e.Hostname, list)
		}
		out = append(out, list...)
	}
	return out
}

// stand makes a Service that represents one backend of a peer, because all backends have the same
// listener addresses.
func (m *maker) stand(i services.Import, cluster, hostname string, listeners []endpoint) []endpoint {
	derived := derivedName(i.Name, cluster, hostname)
	if len(listeners) == 0 || !m.derived[id{serviceKind, i.Name.Namespace, derived}] {
		return nil
	}
	s := m.service(i, derived, map[string]string{v1beta1.LabelSourceCluster: cluster}, listeners)
	m.endpoints(i.Name, derived, cluster, listeners, map[string]string{discoveryv1.LabelServiceName: derived})
	if s == nil {
		return nil
	}
	var out []endpoint
	for _, ip := range s.Spec.ClusterIPs {
		if addr, err := netip.ParseAddr(ip); err == nil {
			e := endpoint{addr: addr, hostname: hostname}
			for _, p := range i.Spec.Ports {
				if slices.ContainsFunc(listeners[0].ports, func(x discoveryv1.EndpointPort) bool {
					return *x.Name == p.Name && *x.Protocol == corev1.Protocol(p.Protocol)
				}) {
					e.ports = append(e.ports, portOf(p, p.Port))
				}
			}
			out = append(out, e)
		}
	}
	return out
}

// own returns the ready pods of this cluster, with the ports that its export has.
func (m *maker) own(i services.Import) []endpoint {
	own := m.exports[i.Name]
	var out []endpoint
	for _, b := range own.Backends {
		if !b.Ready {
			continue
		}
		e := endpoint{addr: b.Addr, hostname: b.Hostname}
		for _, p := range i.Spec.Ports {
			target, served := b.Ports[p.Name]
			if served && slices.ContainsFunc(own.Spec.Ports, func(x services.Port) bool { return same(p, x) }) {
				e.ports = append(e.ports, portOf(p, target))
			}
		}
		if len(e.ports) > 0 {
			out = append(out, e)
		}
	}
	return out
}

// same reports whether a port of a cluster's export is that of the import: one that lost a conflict
// may have the same name.
func same(a, b services.Port) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port
}

// textOf is the same for the same ports.
func textOf(ports []discoveryv1.EndpointPort) string {
	var out []byte
	for _, p := range ports {
		out = fmt.Appendf(out, "%s %d %s %s,", *p.Name, *p.Port, *p.Protocol, value(p.AppProtocol))
	}
	return string(out)
}

func portOf(p services.Port, number uint16) discoveryv1.EndpointPort {
	protocol, n := corev1.Protocol(p.Protocol), int32(number)
	return discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, Port: &n, AppProtocol: pointer(p.AppProtocol)}
}

// family returns the IP family of a new Service with these endpoints: that of the listeners here,
// unless there are only endpoints of another. If there are none yet and no other cluster exports the
// service, it is one that this cluster's Service has.
func (m *maker) family(i services.Import, list []endpoint) corev1.IPFamily {
	families := familiesOf(list)
	if own := m.seen.services[types.NamespacedName(i.Name)]; len(list) == 0 && len(i.Clusters) == 0 && own != nil {
		families = own.Spec.IPFamilies
	}
	if here := familyOf(m.o.Address); len(families) == 0 || slices.Contains(families, here) {
		return here
	}
	return families[0]
}

// service makes a derived Service for endpoints. It returns the existing one if that has an address
// and is ours: the name alone can be anyone's. One without any endpoint of its IP family, which cannot
// be changed, is dead: it is deleted and made again, once its import is not held any more.
func (m *maker) service(i services.Import, name string, labels map[string]string, list []endpoint) *corev1.Service {
	x := &corev1.Service{
		ObjectMeta: m.meta(i.Name.Namespace, name, merged(labels, map[string]string{v1beta1.LabelServiceName: i.Name.Name})),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}
	for _, p := range i.Spec.Ports {
		x.Spec.Ports = append(x.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: int32(p.Port), TargetPort: intstr.FromInt32(int32(p.Port)), AppProtocol: pointer(p.AppProtocol)})
	}
	x.Spec.SessionAffinity, x.Spec.SessionAffinityConfig = affinity(i.Spec.Affinity)
	there := m.seen.services[types.NamespacedName{Namespace: i.Name.Namespace, Name: name}]
	if there != nil && !m.o.ours(there) { // It is not written, but that is reported.
		m.make(serviceKind, x)
		return nil
	}
	if x.Spec.IPFamilies = []corev1.IPFamily{m.family(i, list)}; there != nil {
		x.Spec.IPFamilies = there.Spec.IPFamilies
		if !m.held[i.Name] && len(list) > 0 && len(x.Spec.IPFamilies) > 0 && !slices.ContainsFunc(familiesOf(list), func(f corev1.IPFamily) bool { return slices.Contains(x.Spec.IPFamilies, f) }) {
			m.dead[there] = true
			return nil
		}
	}
	m.make(serviceKind, x)
	if there == nil || there.DeletionTimestamp != nil || len(there.Spec.ClusterIPs) == 0 {
		return nil
	}
	return there
}

// slices makes the EndpointSlices of one cluster for DNS. Those of ClusterSetIP are also the
// derived Service's endpoints.
func (m *maker) slices(i services.Import, derived, cluster string, list []endpoint) {
	labels := map[string]string{v1beta1.LabelServiceName: i.Name.Name, v1beta1.LabelSourceCluster: cluster}
	if i.Spec.Type == services.ClusterSetIP {
		labels[discoveryv1.LabelServiceName] = derived
	}
	m.endpoints(i.Name, derived, cluster, list, labels)
}

// endpoints makes EndpointSlices, one for all endpoints with the same ports.
func (m *maker) endpoints(name services.Name, derived, cluster string, list []endpoint, labels map[string]string) {
	type group struct {
		address discoveryv1.AddressType
		ports   string
	}
	groups := map[group][]endpoint{}
	for _, e := range list {
		g := group{addressType(e.addr), textOf(e.ports)}
		groups[g] = append(groups[g], e)
	}
	number := map[discoveryv1.AddressType]int{}
	for _, g := range slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.ports, b.ports))
	}) {
		for part := range slices.Chunk(groups[g], maxEndpoints) {
			x := &discoveryv1.EndpointSlice{
				ObjectMeta:  m.meta(name.Namespace, fmt.Sprintf("%s-%s-%d", derived, hash(cluster, string(g.address)), number[g.address]), labels),
				AddressType: g.address, Ports: part[0].ports,
			}
			x.Labels[discoveryv1.LabelManagedBy] = program
			number[g.address]++
			for _, e := range part {
				ready := !e.down
				x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{e.addr.String()}, Hostname: pointer(e.hostname), Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
			}
			m.make(sliceKind, x)
		}
	}
}

func (m *maker) serviceImport(i services.Import, derived string, ips []string, families []corev1.IPFamily, clusters []string) {
	x := &v1beta1.ServiceImport{
		ObjectMeta: m.meta(i.Name.Namespace, i.Name.Name, nil),
		Spec: v1beta1.ServiceImportSpec{Type: v1beta1.ServiceImportType(i.Spec.Type), IPs: ips, Ports: []v1beta1.ServicePort{},
			IPFamilies: families, InternalTrafficPolicy: pointer(corev1.ServiceInternalTrafficPolicy(i.Spec.InternalTrafficPolicy)), TrafficDistribution: pointer(i.Spec.TrafficDistribution)},
	}
	own := x.Labels
	x.Labels, x.Annotations = maps.Clone(i.Spec.Labels), maps.Clone(i.Spec.Annotations)
	x.Labels = merged(x.Labels, own)
	if i.Spec.Type == services.ClusterSetIP {
		x.Annotations = merged(x.Annotations, map[string]string{derivedAnnotation: derived})
	}
	for _, p := range i.Spec.Ports {
		x.Spec.Ports = append(x.Spec.Ports, v1beta1.ServicePort{Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: int32(p.Port), AppProtocol: pointer(p.AppProtocol)})
	}
	x.Spec.SessionAffinity, x.Spec.SessionAffinityConfig = affinity(i.Spec.Affinity)

	was := []metav1.Condition(nil)
	if have := m.seen.imports[keyOf(x)]; have != nil {
		was = have.Status.Conditions
	}
	ready := v1beta1.NewServiceImportCondition(v1beta1.ServiceImportConditionReady, metav1.ConditionTrue, v1beta1.ServiceImportReasonReady, "the service can be used by its clusterset name")
	ready.LastTransitionTime = metav1.NewTime(m.seen.now)
	status := &v1beta1.ServiceImportStatus{EndpointSliceObjects: v1beta1.EndpointSliceObjectsPresent, Conditions: []metav1.Condition{objects.Since(was, ready)}}
	for _, c := range clusters {
		status.Clusters = append(status.Clusters, v1beta1.ClusterStatus{Cluster: c})
	}
	if m.kinds == v1alpha1.SchemeGroupVersion { // clusters that have no other know less
		x.Spec.IPFamilies, x.Spec.InternalTrafficPolicy, x.Spec.TrafficDistribution = nil, nil, nil
		status.EndpointSliceObjects, status.Conditions = "", nil
	}
	m.make(importKind, x)
	m.made[len(m.made)-1].status = status
}

// familiesOf returns the IP families of endpoints, each once, in the order of first occurrence.
func familiesOf(list []endpoint) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, e := range list {
		if f := familyOf(e.addr); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func familyOf(a netip.Addr) corev1.IPFamily { return corev1.IPFamily(addressType(a)) }

func addressType(a netip.Addr) discoveryv1.AddressType {
	if a.Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

func affinity(a services.Affinity) (corev1.ServiceAffinity, *corev1.SessionAffinityConfig) {
	if !a.ClientIP {
		return corev1.ServiceAffinityNone, nil
	}
	seconds := int32(a.Timeout.Seconds())
	return corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
}

// meta returns the metadata of an object to be made.
func (m *maker) meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: merged(maps.Clone(labels), m.o.labels())}
	if owner := m.seen.owner(namespace); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return out
}

func (m *maker) make(k kind, x mirror.Object) {
	m.made = append(m.made, object{id: id{k, x.GetNamespace(), x.GetName()}, body: x})
}

// merged returns a with b added; b takes precedence.
func merged[V any](a, b map[string]V) map[string]V {
	if a == nil {
		a = map[string]V{}
	}
	maps.Copy(a, b)
	return a
}

// derivedName returns the name of the derived Service of an import, or of one of its backends.
func derivedName(n services.Name, of ...string) string {
	return derivedPrefix + hash(append([]string{n.Namespace, n.Name}, of...)...)
}

// hash returns a part of a name, with 130 bits: peers choose the names of services and hostnames. The API's
// reference implementation has 50, for which two alike are found in a minute. Both would change one
// object forever, or one backend get the connections of another peer's.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))[:26]
}

// pointer returns a pointer to a value, or nil for the zero value.
func pointer[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
