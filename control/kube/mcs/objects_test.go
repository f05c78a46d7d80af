package mcs

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube/mirror"
	services "github.com/postern-dev/postern/control/mcs"
)

// made returns the EndpointSlices of one import whose derived Services have these addresses, as
// cluster, addresses and ports.
func made(t *testing.T, i services.Import, own *services.Export, addresses ...string) []string {
	t.Helper()
	m := maker{o: Options{Release: "postern", ID: "here"}, kinds: v1beta1.SchemeGroupVersion, exports: map[services.Name]services.Export{},
		seen: seen{namespaces: []string{"shop"}, services: map[types.NamespacedName]*corev1.Service{}}}
	if own != nil {
		m.exports[i.Name] = *own
	}
	name := types.NamespacedName{Namespace: "shop", Name: derivedName(i.Name)}
	m.seen.services[name] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name.Name, Labels: m.o.labels()}, Spec: corev1.ServiceSpec{ClusterIPs: addresses}}
	m.share([]services.Import{i})
	m.add(i)
	var out []string
	for _, o := range m.made {
		if o.kind != sliceKind {
			continue
		}
		var ports []string
		slice := o.body.(*discoveryv1.EndpointSlice)
		for _, p := range slice.Ports {
			ports = append(ports, fmt.Sprintf("%s=%d/%s", *p.Name, *p.Port, *p.Protocol))
		}
		out = append(out, fmt.Sprintf("%s %s+%d %s", slice.Labels[v1beta1.LabelSourceCluster],
			slice.Endpoints[0].Addresses[0], len(slice.Endpoints)-1, strings.Join(ports, " ")))
	}
	slices.Sort(out)
	return out
}

func TestEndpointsOfAnImport(t *testing.T) {
	name := services.Name{Namespace: "shop", Name: "web"}
	http, moved, sctp := services.Port{Name: "http", Protocol: api.TCP, Port: 80}, services.Port{Name: "http", Protocol: api.TCP, Port: 81}, services.Port{Name: "sig", Protocol: "SCTP", Port: 5}
	at := func(p services.Port, where string) services.EndpointPort {
		return services.EndpointPort{Port: p, At: netip.MustParseAddrPort(where)}
	}
	spec := services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{http, sctp}}
	many := &services.Export{Name: name, Spec: spec}
	for n := range maxEndpoints + 1 {
		many.Backends = append(many.Backends, services.Backend{Addr: netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)}), Ready: true, Ports: map[string]uint16{"http": 8080}})
	}
	for what, c := range map[string]struct {
		i    services.Import
		own  *services.Export
		want []string
	}{
		"a peer's listeners": {
			i:    services.Import{Name: name, Spec: spec, Clusters: []services.Cluster{{ID: "east", Endpoints: []services.Endpoint{{Ports: []services.EndpointPort{at(http, "10.0.0.1:20001")}}}}}},
			want: []string{"east 10.0.0.1+0 http=20001/TCP"},
		},
		"a peer whose port lost a conflict": {
			i: services.Import{Name: name, Spec: spec, Clusters: []services.Cluster{{ID: "east", Endpoints: []services.Endpoint{{Ports: []services.EndpointPort{at(moved, "10.0.0.1:20001")}}}}}},
		},
		"own pods that are ready, with other ports on some": {
			i: services.Import{Name: name, Spec: spec, Own: true},
			own: &services.Export{Name: name, Spec: spec, Backends: []services.Backend{
				{Addr: netip.MustParseAddr("10.244.0.1"), Ready: true, Ports: map[string]uint16{"http": 8080}},
				{Addr: netip.MustParseAddr("10.244.0.2"), Ports: map[string]uint16{"http": 8080}},
				{Addr: netip.MustParseAddr("10.244.0.3"), Ready: true, Ports: map[string]uint16{"http": 8081}},
				{Addr: netip.MustParseAddr("fd00::4"), Ready: true, Ports: map[string]uint16{"http": 8080}},
				{Addr: netip.MustParseAddr("10.244.0.5"), Ready: true, Ports: map[string]uint16{"other": 1}},
			}},
			want: []string{"here 10.244.0.1+0 http=8080/TCP", "here 10.244.0.3+0 http=8081/TCP", "here fd00::4+0 http=8080/TCP"},
		},
		"own pods whose port lost a conflict": {
			i:   services.Import{Name: name, Spec: spec, Own: true},
			own: &services.Export{Name: name, Spec: services.Spec{Ports: []services.Port{moved}}, Backends: []services.Backend{{Addr: netip.MustParseAddr("10.244.0.1"), Ready: true, Ports: map[string]uint16{"http": 8080}}}},
		},
		"more than a slice takes": {
			i: services.Import{Name: name, Spec: spec, Own: true}, own: many,
			want: []string{"here 10.244.0.0+999 http=8080/TCP", "here 10.244.3.232+0 http=8080/TCP"},
		},
		"a namespace that is not there": {i: services.Import{Name: services.Name{Namespace: "elsewhere", Name: "web"}, Spec: spec, Own: true}, own: many},
	} {
		if got := made(t, c.i, c.own, "10.96.0.7"); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
	if got := made(t, services.Import{Name: name, Spec: spec, Own: true}, many); len(got) > 0 {
		t.Errorf("the derived Service has no address yet, and there is %q", got)
	}
}

// imported returns an import with that many backends of each peer.
func imported(name services.Name, kind services.Type, own bool, backends int, peers ...string) services.Import {
	http := services.Port{Name: "http", Protocol: api.TCP, Port: 80}
	i := services.Import{Name: name, Spec: services.Spec{Type: kind, Ports: []services.Port{http}}, Own: own}
	for _, p := range peers {
		c := services.Cluster{ID: p}
		for n := range backends {
			c.Endpoints = append(c.Endpoints, services.Endpoint{Hostname: fmt.Sprint("db-", n), Ports: []services.EndpointPort{{Port: http, At: netip.MustParseAddrPort("10.0.0.1:20001")}}})
		}
		i.Clusters = append(i.Clusters, c)
	}
	return i
}

// A peer with more services than its share of the cluster's addresses leaves the others theirs.
func TestImportsTakeAShareOfTheAddresses(t *testing.T) {
	var list []services.Import
	add := func(name string, kind services.Type, own bool, backends int, peers ...string) {
		list = append(list, imported(services.Name{Namespace: "shop", Name: name}, kind, own, backends, peers...))
	}
	check := func(what string, made, full int) services.Problem {
		t.Helper()
		m := maker{o: Options{Release: "postern", ID: "here"}, kinds: v1beta1.SchemeGroupVersion, seen: seen{namespaces: []string{"shop"}}}
		m.share(list)
		for _, i := range list {
			m.add(i)
		}
		got := 0
		for _, o := range m.made {
			if o.kind == serviceKind {
				got++
			}
		}
		if got != made || len(m.problems) != full {
			t.Fatalf("%s: %d Services, %d problems; want %d and %d", what, got, len(m.problems), made, full)
		}
		return append(m.problems, services.Problem{})[0]
	}
	for n := range 5 {
		add(fmt.Sprint("db-", n), services.Headless, false, 199, "east")
	}
	check("backends of a peer", 995, 0)
	for n := range 10 {
		add(fmt.Sprint("web-", n), services.ClusterSetIP, false, 1, "east")
	}
	if p := check("a peer with its share", 1000, 5); p.Code != catalogue.ImportsFull || p.Peer != "east" || p.Name.Name != "web-5" {
		t.Errorf("the problem is %+v", p)
	}
	add("x", services.ClusterSetIP, true, 1, "east")
	add("y", services.ClusterSetIP, false, 1, "east", "west")
	add("z", services.ClusterSetIP, false, 1, "west")
	check("others", 1003, 5)
	add("zz", services.Headless, false, 998, "west")
	check("all", 2000, 6)
}

// A new Service is of the IP family of the gateway's listeners, or of all its endpoints if those have
// another. It stays, unless none of its endpoints has its family.
func TestServicesAreOfTheFamilyOfTheirEndpoints(t *testing.T) {
	name := services.Name{Namespace: "shop", Name: "web"}
	four, six := []corev1.IPFamily{corev1.IPv4Protocol}, []corev1.IPFamily{corev1.IPv6Protocol}
	none := imported(name, services.ClusterSetIP, false, 1, "east")
	none.Clusters[0].Endpoints[0].Ports = nil
	for what, c := range map[string]struct {
		i     services.Import
		own   []corev1.IPFamily // of this cluster's Service
		pods  string            // the address of its pod
		there []corev1.IPFamily
		want  []corev1.IPFamily // nil: it is deleted
	}{
		"a listener":              {i: imported(name, services.ClusterSetIP, true, 1, "east"), own: six, want: four},
		"no listener yet":         {i: none, want: four},
		"a backend":               {i: imported(name, services.Headless, false, 1, "east"), want: four},
		"its own":                 {i: imported(name, services.ClusterSetIP, true, 0), own: six, want: six},
		"its own pods":            {i: imported(name, services.ClusterSetIP, true, 0), own: six, pods: "fd00::5", want: six},
		"its second":              {i: imported(name, services.ClusterSetIP, true, 0), own: append(six, four...), want: four},
		"no listener, and pods":   {i: imported(name, services.ClusterSetIP, true, 0, "east"), own: six, pods: "fd00::5", want: six},
		"one that leads to pods":  {i: imported(name, services.ClusterSetIP, true, 1, "east"), own: six, pods: "fd00::5", there: six, want: six},
		"one that leads nowhere":  {i: imported(name, services.ClusterSetIP, true, 1, "east"), own: four, pods: "10.244.0.5", there: six},
		"a backend's, nowhere":    {i: imported(name, services.Headless, false, 1, "east"), there: six},
		"one without an endpoint": {i: none, there: six, want: six},
	} {
		service := func(families []corev1.IPFamily) *corev1.Service {
			return slimService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: Options{}.labels()}, Spec: corev1.ServiceSpec{IPFamilies: families, ClusterIPs: []string{"10.96.0.7"}}})
		}
		m := maker{o: Options{ID: "here", Address: netip.MustParseAddr("10.0.0.1")}, dead: map[mirror.Object]bool{}, seen: seen{namespaces: []string{"shop"}, services: map[types.NamespacedName]*corev1.Service{types.NamespacedName(name): service(c.own)}}}
		if c.pods != "" {
			m.exports = map[services.Name]services.Export{name: {Name: name, Spec: c.i.Spec, Backends: []services.Backend{{Addr: netip.MustParseAddr(c.pods), Ready: true, Ports: map[string]uint16{"http": 80}}}}}
		}
		if c.there != nil {
			for _, n := range []string{derivedName(name), derivedName(name, "east", "db-0")} {
				m.seen.services[types.NamespacedName{Namespace: "shop", Name: n}] = service(c.there)
			}
		}
		m.share([]services.Import{c.i})
		m.add(c.i)
		var got []corev1.IPFamily
		for _, o := range m.made {
			if x, is := o.body.(*corev1.Service); is {
				got = x.Spec.IPFamilies
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}

// The endpoints of a cluster that is down are not ready, so that the others get the connections.
func TestEndpointsOfAClusterThatIsDownAreNotReady(t *testing.T) {
	i := imported(services.Name{Namespace: "shop", Name: "web"}, services.ClusterSetIP, false, 1, "east", "west")
	i.Clusters[0].Down = true
	m := maker{o: Options{ID: "here"}, seen: seen{namespaces: []string{"shop"}, services: map[types.NamespacedName]*corev1.Service{
		{Namespace: "shop", Name: derivedName(i.Name)}: {ObjectMeta: metav1.ObjectMeta{Labels: Options{}.labels()}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7"}}}}}}
	m.share([]services.Import{i})
	m.add(i)
	got := map[string]bool{}
	for _, o := range m.made {
		if x, is := o.body.(*discoveryv1.EndpointSlice); is {
			got[x.Labels[v1beta1.LabelSourceCluster]] = *x.Endpoints[0].Conditions.Ready
		}
	}
	if !reflect.DeepEqual(got, map[string]bool{"east": false, "west": true}) {
		t.Errorf("ready are %v", got)
	}
}

// A peer with this cluster's name is left out: objects and names of the two could not be told
// apart.
func TestAPeerNamedAsThisClusterIsLeftOut(t *testing.T) {
	m := maker{o: Options{ID: "here"}}
	list := []services.Import{
		imported(services.Name{Namespace: "shop", Name: "all"}, services.ClusterSetIP, false, 1, "east", "here"),
		imported(services.Name{Namespace: "shop", Name: "alone"}, services.ClusterSetIP, false, 1, "here"),
		imported(services.Name{Namespace: "shop", Name: "other"}, services.ClusterSetIP, false, 1, "west"),
		imported(services.Name{Namespace: "shop", Name: "own"}, services.ClusterSetIP, true, 1, "here"),
	}
	var got []string
	for _, i := range m.apart(list) {
		for _, c := range i.Clusters {
			got = append(got, i.Name.Name+" of "+c.ID)
		}
		if i.Own {
			got = append(got, i.Name.Name)
		}
	}
	if want := []string{"all of east", "other of west", "own"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(m.problems) != 3 || m.problems[0].Code != catalogue.PeerNamedAlike || m.problems[0].Peer != "here" || len(list[0].Clusters) != 2 {
		t.Errorf("the problems are %+v, and the list is now %+v", m.problems, list[0].Clusters)
	}
}

// An import that someone else has made gets no EndpointSlices from here, and takes no addresses.
func TestAnImportOfSomeoneElseGetsNothing(t *testing.T) {
	list := []services.Import{
		imported(services.Name{Namespace: "shop", Name: "db"}, services.Headless, false, 2, "east"),
		imported(services.Name{Namespace: "shop", Name: "web"}, services.ClusterSetIP, true, 1, "east"),
	}
	m := maker{o: Options{Release: "postern", ID: "here"}, kinds: v1beta1.SchemeGroupVersion, seen: seen{namespaces: []string{"shop"}, imports: map[types.NamespacedName]*v1beta1.ServiceImport{}}}
	for _, i := range list {
		m.seen.imports[types.NamespacedName(i.Name)] = &v1beta1.ServiceImport{}
	}
	m.share(list)
	for _, i := range list {
		m.add(i)
	}
	for _, o := range m.made {
		if o.kind != importKind {
			t.Errorf("there is %s %s", o.kind.name, o.name)
		}
	}
	if len(m.made) != 2 || len(m.derived) > 0 {
		t.Errorf("%d imports are wanted, %d addresses", len(m.made), len(m.derived))
	}
}

// The names of derived Services can be computed. Whoever makes a Service of such a name first must not
// get the connections to what another cluster exports. Such a Service may have our program's label:
// another release's has it, and anyone can set it.
func TestAServiceOfSomeoneElseLeadsToNoImport(t *testing.T) {
	o := Options{Release: "postern", ID: "here", Address: netip.MustParseAddr("10.0.0.1")}
	web := imported(services.Name{Namespace: "shop", Name: "web"}, services.ClusterSetIP, false, 1, "east")
	db := imported(services.Name{Namespace: "shop", Name: "db"}, services.Headless, false, 1, "east")
	foreign := func(name string) *corev1.Service {
		return slimService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{labelManagedBy: program}}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"10.96.6.6"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}})
	}
	list := []services.Import{db, web}
	m := maker{o: o, kinds: v1beta1.SchemeGroupVersion, seen: seen{now: time.Now(), namespaces: []string{"shop"}, services: map[types.NamespacedName]*corev1.Service{}}}
	for _, name := range []string{derivedName(web.Name), derivedName(db.Name, "east", "db-0")} {
		m.seen.services[types.NamespacedName{Namespace: "shop", Name: name}] = foreign(name)
	}
	m.share(list)
	for _, i := range list {
		m.add(i)
	}
	for _, x := range m.made {
		text, err := json.Marshal(x.body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "10.96.6.6") {
			t.Errorf("the %s %s leads to someone else's Service: %s", x.kind.name, x.name, text)
		}
	}
}

func TestBackendsOfAService(t *testing.T) {
	number, yes, no := int32(8080), true, false
	pod := func(address string, c discoveryv1.EndpointConditions, hostname *string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Hostname: hostname, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}, Conditions: c}
	}
	ready, unready := discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes}, discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
	serving, done := discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}, discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
	published := discoveryv1.EndpointConditions{Ready: &yes, Serving: &no, Terminating: &yes} // publishNotReadyAddresses
	name := "db-0"
	of := func(target *corev1.ObjectReference) discoveryv1.Endpoint {
		e := pod("10.244.0.5", ready, nil)
		e.TargetRef = target
		return e
	}
	for _, c := range []struct {
		pods []discoveryv1.Endpoint
		kind services.Type
		want string
	}{
		{[]discoveryv1.Endpoint{pod("10.244.0.5", ready, &name)}, services.ClusterSetIP, "10.244.0.5  true"},
		{[]discoveryv1.Endpoint{pod("10.244.0.5", discoveryv1.EndpointConditions{}, &name)}, services.Headless, "10.244.0.5 db-0 true"},
		{[]discoveryv1.Endpoint{pod("10.244.0.5", unready, nil)}, services.Headless, "10.244.0.5 10-244-0-5 false"},
		{[]discoveryv1.Endpoint{pod("10.244.0.5", serving, nil)}, services.Headless, "10.244.0.5 10-244-0-5 false"},
		{[]discoveryv1.Endpoint{pod("10.244.0.5", published, nil)}, services.Headless, "10.244.0.5 10-244-0-5 true"},
		{[]discoveryv1.Endpoint{pod("10.244.0.5", unready, nil), pod("10.244.0.6", serving, nil), pod("10.244.0.7", done, nil)}, services.ClusterSetIP, "10.244.0.5  false, 10.244.0.6  true, 10.244.0.7  false"},
		{[]discoveryv1.Endpoint{pod("10.244.0.5", ready, nil), pod("10.244.0.6", serving, nil)}, services.ClusterSetIP, "10.244.0.5  true, 10.244.0.6  false"},
		{[]discoveryv1.Endpoint{pod("fd00::5", ready, nil)}, services.Headless, "fd00::5 fd00--5 true"},
		{[]discoveryv1.Endpoint{pod("::1:5", ready, nil)}, services.Headless, "::1:5 0--1-5 true"},
		{[]discoveryv1.Endpoint{pod("name.example.com", ready, nil)}, services.Headless, ""},
		{[]discoveryv1.Endpoint{of(nil)}, services.ClusterSetIP, ""},
		{[]discoveryv1.Endpoint{of(&corev1.ObjectReference{Kind: "Node"})}, services.ClusterSetIP, ""},
	} {
		slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: &number}}, Endpoints: c.pods}
		var got []string
		for _, b := range backendsOf([]*discoveryv1.EndpointSlice{slimSlice(slice)}, services.Spec{Type: c.kind}, discoveryv1.AddressTypeIPv4, nil) {
			got = append(got, fmt.Sprintf("%s %s %v", b.Addr, b.Hostname, b.Ready))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// The pods of a dual-stack Service are in slices of both families. Each is one backend, at an address
// that the gateway can reach.
func TestAPodOfADualStackServiceIsOneBackend(t *testing.T) {
	number, name := int32(8080), "db-0"
	slice := func(family discoveryv1.AddressType, addresses ...string) *discoveryv1.EndpointSlice {
		x := &discoveryv1.EndpointSlice{AddressType: family, Ports: []discoveryv1.EndpointPort{{Port: &number}}}
		for _, a := range addresses {
			x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Hostname: &name, TargetRef: aPod})
		}
		return x
	}
	four, six := slice(discoveryv1.AddressTypeIPv4, "10.244.0.5"), slice(discoveryv1.AddressTypeIPv6, "fd00::5")
	for what, c := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		own    discoveryv1.AddressType
		want   string
	}{
		"both, by IPv4":       {[]*discoveryv1.EndpointSlice{four, six}, discoveryv1.AddressTypeIPv4, "10.244.0.5"},
		"both, by IPv6":       {[]*discoveryv1.EndpointSlice{four, six}, discoveryv1.AddressTypeIPv6, "fd00::5"},
		"only the other":      {[]*discoveryv1.EndpointSlice{six}, discoveryv1.AddressTypeIPv4, "fd00::5"},
		"an empty own and it": {[]*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4), six}, discoveryv1.AddressTypeIPv4, "fd00::5"},
	} {
		if got := backendsOf(c.slices, services.Spec{Type: services.Headless}, c.own, nil); len(got) != 1 || got[0].Addr.String() != c.want || got[0].Hostname != name {
			t.Errorf("%s: got %+v, want %s", what, got, c.want)
		}
	}
}

// These hostnames of a peer have hashes whose first 50 bits are the same.
func TestHostnamesWithSimilarHashesAreOtherObjects(t *testing.T) {
	i := services.Import{Name: services.Name{Namespace: "shop", Name: "db"}, Spec: services.Spec{Type: services.Headless, Ports: []services.Port{{Name: "sql", Protocol: api.TCP, Port: 5432}}}}
	c := services.Cluster{ID: "cloud"}
	for n, hostname := range []string{"h96zan", "hql62r"} {
		c.Endpoints = append(c.Endpoints, services.Endpoint{Hostname: hostname, Ports: []services.EndpointPort{
			{Port: i.Spec.Ports[0], At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, 9}), uint16(20000+n))}}})
	}
	i.Clusters = []services.Cluster{c}
	m := maker{o: Options{Release: "postern", ID: "here"}, kinds: v1beta1.SchemeGroupVersion, seen: seen{namespaces: []string{"shop"}}}
	m.share([]services.Import{i})
	m.add(i)
	twice := map[id]bool{}
	for _, x := range m.made {
		if twice[x.id] {
			t.Errorf("the %s %s is made twice", x.kind.name, x.name)
		}
		twice[x.id] = true
	}
	if len(m.made) < 5 {
		t.Errorf("%d objects are made", len(m.made))
	}
}

// What another cluster exports is not exported again, whichever implementation imports it.
func TestADerivedServiceIsNotExported(t *testing.T) {
	for _, by := range []string{program, "another"} {
		labels := map[string]string{labelManagedBy: by, v1beta1.LabelServiceName: "web"}
		s := slimService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "derived-a", Labels: labels}})
		if refuse(s) == nil {
			t.Errorf("one that %s made is exported", by)
		}
	}
}

// An EndpointSlice may have 1,000 endpoints and 20,000 ports. The gateway keeps of each backend what the
// Service has, and nothing of a Service that has too many ports to be exported.
func TestBackendsHaveOnlyPortsOfTheService(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 1000 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}).String()}, TargetRef: aPod})
	}
	number := int32(8080)
	many := services.Spec{Type: services.ClusterSetIP}
	for i := range 2000 {
		name := fmt.Sprint("p-", i)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
		many.Ports = append(many.Ports, services.Port{Name: name, Protocol: api.TCP, Port: uint16(i + 1)})
	}
	one := services.Spec{Type: services.ClusterSetIP, Ports: many.Ports[7:8]}
	for what, c := range map[string]struct {
		spec services.Spec
		want map[string]uint16
	}{"one port": {one, map[string]uint16{"p-7": 8080}}, "too many": {many, map[string]uint16{}}} {
		got := backendsOf([]*discoveryv1.EndpointSlice{slice}, c.spec, discoveryv1.AddressTypeIPv4, nil)
		if len(got) != 1000 {
			t.Fatalf("%s: there are %d backends", what, len(got))
		}
		for _, b := range got {
			if !maps.Equal(b.Ports, c.want) {
				t.Fatalf("%s: a backend has %d ports, want %v", what, len(b.Ports), c.want)
			}
		}
	}
}

// Whoever may write EndpointSlices must not have a peer led to a Service: a derived one leads to the
// gateway, and so to another peer.
func TestNoBackendIsAService(t *testing.T) {
	number := int32(8080)
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	x := &v1beta1.ServiceExport{ObjectMeta: object("web")}
	of := &discoveryv1.EndpointSlice{ObjectMeta: object("web-1"), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &number}}}
	for _, a := range []string{"10.244.0.5", "10.96.0.7", "10.96.0.8", "::ffff:10.96.0.8"} {
		of.Endpoints = append(of.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, TargetRef: aPod})
	}
	have := seen{exports: []*v1beta1.ServiceExport{x}, services: map[types.NamespacedName]*corev1.Service{}, slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{keyOf(x): {of}}}
	for name, addresses := range map[string][]string{"web": {"10.96.0.7"}, "derived-a": {"fd00::8", "10.96.0.8"}, "db": {"None"}} {
		s := slimService(&corev1.Service{ObjectMeta: object(name), Spec: corev1.ServiceSpec{ClusterIP: addresses[0], ClusterIPs: addresses}})
		have.services[keyOf(s)] = s
	}
	got := exportsOf(have, discoveryv1.AddressTypeIPv4)[0].export.Backends
	if len(got) != 1 || got[0].Addr.String() != "10.244.0.5" {
		t.Errorf("the backends are %+v", got)
	}
}

// An export says which ports get a PROXY protocol header. If that is not certain, nothing is
// exported.
func TestPortsThatAreToldWhoConnects(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}, {Name: "quic", Protocol: corev1.ProtocolUDP, Port: 443},
	}}}
	for text, want := range map[string][]string{
		"http": {"http"}, "https, 80": {"https", "http"}, "443": {"https"},
		"": nil, "quic": nil, "http,8080": nil, "http,": nil, "*": nil, strings.Repeat("x", 1<<16): nil,
	} {
		x := &v1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{annotationProxy: text}}}
		got := exportsOf(seen{exports: []*v1beta1.ServiceExport{x}, services: map[types.NamespacedName]*corev1.Service{keyOf(x): service}}, discoveryv1.AddressTypeIPv4)[0]
		if !slices.Equal(got.export.Proxied, want) || (got.invalid == nil) != (want != nil) {
			t.Errorf("%.20q: %v, %v", text, got.export.Proxied, got.invalid)
		}
		if got.invalid != nil && (got.invalid.reason != reasonProxy || len(got.invalid.message) > 256) {
			t.Errorf("%.20q: it says %s: %.300s", text, got.invalid.reason, got.invalid.message)
		}
	}
	one := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 25}}}}
	x := &v1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationProxy: "25"}}}
	if got := exportsOf(seen{exports: []*v1beta1.ServiceExport{x}, services: map[types.NamespacedName]*corev1.Service{{}: one}}, discoveryv1.AddressTypeIPv4)[0]; !slices.Equal(got.export.Proxied, []string{""}) {
		t.Errorf("of a port without a name: %q, %v", got.export.Proxied, got.invalid)
	}
}

// Everything wanted must be present; additions of others are allowed.
func TestContains(t *testing.T) {
	object := func(change func(*v1beta1.ServiceImport)) *v1beta1.ServiceImport {
		policy := corev1.ServiceInternalTrafficPolicyCluster
		x := &v1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"tier": ""}},
			Spec: v1beta1.ServiceImportSpec{Type: v1beta1.ClusterSetIP, InternalTrafficPolicy: &policy, IPs: []string{"10.96.0.7"},
				Ports: []v1beta1.ServicePort{{Name: "http", Port: 80}}},
			Status: v1beta1.ServiceImportStatus{Conditions: []metav1.Condition{{Type: "Ready", LastTransitionTime: metav1.Unix(1000, 0)}}},
		}
		change(x)
		return x
	}
	other := corev1.ServiceInternalTrafficPolicyLocal
	for what, c := range map[string]struct {
		change func(*v1beta1.ServiceImport)
		is     bool
	}{
		"the same":              {func(*v1beta1.ServiceImport) {}, true},
		"another's label":       {func(x *v1beta1.ServiceImport) { x.Labels["theirs"] = "1" }, true},
		"a field that defaults": {func(x *v1beta1.ServiceImport) { x.Spec.SessionAffinity = corev1.ServiceAffinityNone }, true},
		"one in a list":         {func(x *v1beta1.ServiceImport) { x.Spec.Ports[0].Protocol = corev1.ProtocolTCP }, true},
		"part of a second":      {func(x *v1beta1.ServiceImport) { x.Status.Conditions[0].LastTransitionTime = metav1.Unix(1000, 1) }, true},
		"another value":         {func(x *v1beta1.ServiceImport) { x.Spec.Type = v1beta1.Headless }, false},
		"no label":              {func(x *v1beta1.ServiceImport) { x.Labels = nil }, false},
		"another label":         {func(x *v1beta1.ServiceImport) { x.Labels["tier"] = "front" }, false},
		"another pointer":       {func(x *v1beta1.ServiceImport) { x.Spec.InternalTrafficPolicy = &other }, false},
		"no pointer":            {func(x *v1beta1.ServiceImport) { x.Spec.InternalTrafficPolicy = nil }, false},
		"more in a list":        {func(x *v1beta1.ServiceImport) { x.Spec.IPs = append(x.Spec.IPs, "10.96.0.8") }, false},
		"less in a list":        {func(x *v1beta1.ServiceImport) { x.Spec.IPs = nil }, false},
		"another in a list":     {func(x *v1beta1.ServiceImport) { x.Spec.Ports[0].Port = 81 }, false},
		"another time":          {func(x *v1beta1.ServiceImport) { x.Status.Conditions[0].LastTransitionTime = metav1.Unix(1001, 0) }, false},
	} {
		if got := contains(object(func(*v1beta1.ServiceImport) {}), object(c.change)); got != c.is {
			t.Errorf("%s: got %v", what, got)
		}
	}
}

// An object is kept without the fields that nobody reads, and without spare capacity.
func TestAKeptObjectIsSlim(t *testing.T) {
	const text = `{"kind": "ServiceImport", "apiVersion": "multicluster.x-k8s.io/v1beta1", "metadata": {"name": "web", "namespace": "shop", "uid": "1",
		"labels": {"app.kubernetes.io/name": "postern"}, "annotations": {"postern.dev/applied": "00"},
		"ownerReferences": [{"apiVersion": "v1", "kind": "ClusterRole", "name": "postern", "uid": "2"}], "managedFields": [{"manager": "postern"}]},
		"spec": {"type": "ClusterSetIP", "ips": ["10.96.0.7"], "ports": [{"name": "http", "port": 80}, {"name": "more", "port": 81}, {"name": "most", "port": 82}]},
		"status": {"clusters": [{"cluster": "east"}], "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "it is"}]}}`
	var x, want v1beta1.ServiceImport
	for _, into := range []*v1beta1.ServiceImport{&x, &want} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	want.TypeMeta, want.ManagedFields = metav1.TypeMeta{}, nil
	got := slim(&x)
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v\nwant %+v", got, &want)
	}
	for what, room := range map[string]int{
		"owners": cap(got.OwnerReferences) - 1, "addresses": cap(got.Spec.IPs) - 1, "ports": cap(got.Spec.Ports) - 3,
		"clusters": cap(got.Status.Clusters) - 1, "conditions": cap(got.Status.Conditions) - 1,
	} {
		if room > 0 {
			t.Errorf("there is room for %d more %s", room, what)
		}
	}
	if slim(got) != got {
		t.Error("what is slim is copied")
	}
}

// A namespace with many imports leaves addresses for the others, and so do clusters in one namespace.
func TestNamespacesAndClustersTakeTurnsAtAddresses(t *testing.T) {
	m := maker{o: Options{Release: "postern", ID: "here"}, kinds: v1beta1.SchemeGroupVersion, seen: seen{namespaces: []string{"a", "shop"}, objects: map[id]mirror.Object{}}}
	var list []services.Import
	add := func(cluster, namespace, name string, kind services.Type, backends int) {
		list = append(list, imported(services.Name{Namespace: namespace, Name: name}, kind, false, backends, cluster))
	}
	for n := range 5 {
		add("east", "a", fmt.Sprint("db-", n), services.Headless, 250)
		add("west", "a", fmt.Sprint("db-", n), services.Headless, 250)
	}
	add("north", "a", "web", services.ClusterSetIP, 1)
	add("east", "shop", "db", services.Headless, 100)
	add("east", "shop", "web", services.ClusterSetIP, 1)
	m.share(list)
	for _, p := range m.problems {
		if p.Name.Namespace != "a" || p.Peer == "north" {
			t.Errorf("%s of %s has no address", p.Name, p.Peer)
		}
	}
	if len(m.derived) != maxDerived {
		t.Errorf("%d addresses are taken", len(m.derived))
	}
}

// A namespace with many imports leaves addresses for the others, and in each those stay that are
// in use.
func TestNamespacesTakeTurnsAtAddresses(t *testing.T) {
	m := maker{o: Options{Release: "postern", ID: "here"}, kinds: v1beta1.SchemeGroupVersion, seen: seen{namespaces: []string{"a", "shop"}, objects: map[id]mirror.Object{}}}
	share := func(list ...services.Import) {
		t.Helper()
		m.problems = nil
		m.share(list)
		for _, p := range m.problems {
			if p.Name.Namespace != "a" {
				t.Errorf("%s has no address", p.Name)
			}
		}
		if len(m.derived) != peerDerived {
			t.Errorf("%d addresses are taken", len(m.derived))
		}
	}
	var list []services.Import
	for n := range 5 {
		list = append(list, imported(services.Name{Namespace: "a", Name: fmt.Sprint("db-", n)}, services.Headless, false, 250, "east"))
	}
	share(list...)
	before := m.derived
	for i := range before {
		m.seen.objects[i] = &corev1.Service{}
	}
	list[3] = imported(list[3].Name, services.Headless, false, 256, "east")
	share(append([]services.Import{imported(services.Name{Namespace: "a", Name: "aa"}, services.ClusterSetIP, false, 1, "east")}, list...)...)
	if !reflect.DeepEqual(m.derived, before) {
		t.Error("new imports take the addresses of others")
	}
	share(append(list, imported(services.Name{Namespace: "shop", Name: "db"}, services.Headless, false, 100, "east"),
		imported(services.Name{Namespace: "shop", Name: "web"}, services.ClusterSetIP, false, 1, "east"))...)
}

// Endpoints of a service with many ports share what they have in common, whether they are ready or leave.
func TestManyEndpoints(t *testing.T) {
	spec := services.Spec{Type: services.ClusterSetIP}
	var ports []discoveryv1.EndpointPort
	for i := range services.MaxPorts {
		name, port := fmt.Sprint("p", i), int32(i+1)
		spec.Ports = append(spec.Ports, services.Port{Name: name, Protocol: api.TCP, Port: uint16(port)})
		ports = append(ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
	}
	list := func(n int, ready bool) []*discoveryv1.EndpointSlice {
		x := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: ports}
		leaving := !ready
		for i := range n {
			x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{TargetRef: aPod, Addresses: []string{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String()},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &leaving, Terminating: &leaving}})
		}
		return []*discoveryv1.EndpointSlice{x}
	}
	few := list(1000, true)
	if n := testing.AllocsPerRun(1, func() { backendsOf(few, spec, discoveryv1.AddressTypeIPv4, nil) }); n > 2*1000 {
		t.Errorf("%.0f allocations for 1000 endpoints with %d ports", n, len(ports))
	}
	for _, ready := range []bool{true, false} {
		if out := backendsOf(list(100, ready), spec, discoveryv1.AddressTypeIPv4, nil); len(out) != 100 || !out[0].Ready || !out[99].Ready {
			t.Errorf("%d backends of 100 endpoints", len(out))
		}
	}
}
