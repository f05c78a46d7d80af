package mcs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/mirror"
	services "github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/testenv/fakeclient"
)

// A change after a quiet time is handled almost at once, however long a turn takes. Constant
// changes are handled after a pause.
func TestAChangeAfterRestIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := time.NewTimer(time.Hour)
		rest := time.Now().Add(time.Hour)
		var s session
		after := func() time.Duration {
			begin, due := time.Now(), rest
			for range 3 { // changes that come together, and go off once
				due = s.soon(next, due)
			}
			<-next.C
			return time.Since(begin)
		}
		s.calm = time.Now().Add(maxCalm)
		if took := after(); took != maxCalm {
			t.Errorf("a change right after a long look is looked at after %v, want %v", took, maxCalm)
		}
		time.Sleep(maxCalm)
		if took := after(); took != gather {
			t.Errorf("a change after some rest is looked at after %v, want %v", took, gather)
		}
	})
}

// A Role that was deleted and made again is another owner: the garbage collector deletes what
// belongs to its predecessor. So it is looked up whenever an object is to be made, and not while
// nothing is.
func TestTheOwnerIsTheRoleThatExists(t *testing.T) {
	role, status, asked := "1", http.StatusOK, 0
	s := &session{Controller: &Controller{o: Options{Release: "postern", Cluster: &kube.Cluster{}}, log: slog.New(slog.DiscardHandler), cluster: &kube.Cluster{}}}
	s.clients.rbac = fakeclient.New(func(*http.Request) (int, string) {
		asked++
		body := fmt.Sprintf(`{"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"uid": %q}}`, role)
		if status != http.StatusOK {
			body = fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q}`, status,
				map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound}[status])
		}
		return status, body
	})
	p := s.clients.place("shop", func() {})
	s.places = []*place{p}
	have := seen{owners: map[string]*metav1.OwnerReference{}}
	look := func(what string, made, others, fails bool, questions int, want string) {
		t.Helper()
		asked = 0
		got, err := s.owners(t.Context(), have, map[string]bool{"shop": made})
		uid := ""
		if o := have.owner("shop"); o != nil {
			uid = string(o.UID)
		}
		if got != others || (err != nil) != fails || asked != questions || uid != want {
			t.Errorf("%s: others: %v, error %v, %d questions, owner %q; want %v, %v, %d, %q", what, got, err, asked, uid, others, fails, questions, want)
		}
	}
	status = http.StatusServiceUnavailable
	look("the API server does not answer", false, false, true, 1, "")
	status = http.StatusOK
	look("it does", false, true, false, 1, "1")
	look("nothing is made", false, false, false, 0, "1")
	look("something is made", true, false, false, 1, "1")
	role = "2"
	look("it is another", true, true, false, 1, "2")
	status = http.StatusServiceUnavailable
	look("no answer again", true, false, false, 1, "2")
	status = http.StatusForbidden
	look("the right is gone", true, false, false, 1, "2")
	status = http.StatusNotFound
	look("there is none", true, true, false, 1, "")
}

// What was imported before a crash from a peer that is not heard again leads nowhere: it gets no
// connections if another cluster exports the service.
func TestEndpointsOfAPeerThatIsNotHeardAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		s := &session{Controller: &Controller{o: Options{Release: "postern", ID: "here"}}, began: time.Now()}
		s.writer = &writer{log: slog.New(slog.DiscardHandler), refused: map[id]refusal{}, clients: clients{
			discovery: fakeclient.New(func(r *http.Request) (int, string) {
				sent = append(sent, r.Method+" "+path.Base(r.URL.Path))
				return http.StatusOK, "{}"
			})}}
		have := seen{objects: map[id]mirror.Object{}}
		add := func(name, service, cluster string, kind services.Type) id {
			x := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: s.o.labels()}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}}
			x.Labels[v1beta1.LabelServiceName], x.Labels[v1beta1.LabelSourceCluster] = service, cluster
			if kind == services.ClusterSetIP {
				x.Labels[discoveryv1.LabelServiceName] = "derived-" + service
			}
			i := id{sliceKind, "shop", name}
			have.objects[i] = x
			return i
		}
		add("web-edge", "web", "edge", services.ClusterSetIP)
		shall := map[id]bool{
			add("web-cloud", "web", "cloud", services.ClusterSetIP): true,
			add("web-here", "web", "here", services.ClusterSetIP):   true,
			add("api-edge", "api", "edge", services.ClusterSetIP):   true, // only its grant is new
		}
		add("alone-edge", "alone", "edge", services.ClusterSetIP)
		add("db-edge", "db", "edge", services.Headless)
		var imports []services.Import
		for _, name := range []string{"web", "api", "db"} {
			imports = append(imports, services.Import{Name: services.Name{Namespace: "shop", Name: name}})
		}
		turn := func(what string, awaited []string, want ...string) {
			t.Helper()
			sent = nil
			if failed := s.writer.run(t.Context(), s.unheard(have, awaited, imports, shall)); failed || !slices.Equal(sent, want) {
				t.Errorf("%s: sent %q, want %q (failed: %v)", what, sent, want, failed)
			}
		}
		turn("at first", []string{"edge"})
		time.Sleep(unheardFor)
		turn("all are heard", nil)
		turn("one is not", []string{"edge"}, "PATCH web-edge")
	})
}

// gatewayWith is a gateway with a state.
type gatewayWith services.State

func (gatewayWith) SetExports([]services.Export)               {}
func (gatewayWith) SetNamespaces([]string)                     {}
func (gatewayWith) Reserve(map[uint16]string)                  {}
func (g gatewayWith) State() (services.State, <-chan struct{}) { return services.State(g), nil }

// sessionOf returns a session that sees these objects in the namespace shop, and a function that
// does one of its turns with a state of the gateway and compares what was sent. Nothing sent changes
// the objects.
func sessionOf(t *testing.T, o Options, lists map[kind][]any) (s *session, turn func(what string, st services.State, want ...string) time.Duration) {
	t.Helper()
	var sent []string
	client := fakeclient.New(func(r *http.Request) (int, string) {
		status, body := http.StatusOK, "{}"
		if r.Method == http.MethodGet {
			status, body = http.StatusNotFound, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}`
		} else {
			sent = append(sent, strings.TrimSpace(r.Method+" "+path.Base(path.Dir(r.URL.Path))+" "+path.Base(r.URL.Path)))
		}
		return status, body
	})
	o.Cluster = &kube.Cluster{}
	s = &session{Controller: &Controller{o: o, log: slog.New(slog.DiscardHandler), cluster: &kube.Cluster{}}, names: &names{lookup: func(context.Context, string, string) ([]netip.Addr, error) { return nil, errors.New("not used") }}, began: time.Now()}
	s.clients = clients{core: client, discovery: client, rbac: client, mcs: client, version: v1beta1.SchemeGroupVersion}
	s.writer = &writer{clients: s.clients, log: s.log, refused: map[id]refusal{}, applied: map[target]applied{}}
	p := s.clients.place("shop", func() {})
	p.known = true
	s.places = []*place{p}
	for k, m := range map[kind]interface{ Replace([]any, string) error }{serviceKind: p.services, sliceKind: p.slices, importKind: p.imports, exportKind: p.exports} {
		if err := m.Replace(lists[k], ""); err != nil {
			t.Fatal(err)
		}
	}
	return s, func(what string, st services.State, want ...string) time.Duration {
		t.Helper()
		sent = nil
		s.o.Services = gatewayWith(st)
		again, failed := s.turn(t.Context())
		slices.Sort(sent)
		if slices.Sort(want); failed || !slices.Equal(sent, want) {
			t.Errorf("%s: sent %q, want %q (failed: %v)", what, sent, want, failed)
		}
		return again
	}
}

// After the gateway's start, what several peers export stays as it is until all of them are heard, or
// for a while. Otherwise clients could not use the ports of one that is heard later than another.
func TestWhatOneOfSeveralPeersExportsStaysUntilItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, more := services.Port{Name: "http", Protocol: api.TCP, Port: 80}, services.Port{Name: "more", Protocol: api.TCP, Port: 81}
		cluster := func(id string, p services.Port, at string) services.Cluster {
			return services.Cluster{ID: id, Endpoints: []services.Endpoint{{Ports: []services.EndpointPort{{Port: p, At: netip.MustParseAddrPort(at)}}}}}
		}
		name := services.Name{Namespace: "shop", Name: "web"}
		both := services.Import{Name: name, Spec: services.Spec{Type: services.ClusterSetIP, Ports: []services.Port{web, more}, Affinity: services.Affinity{ClientIP: true, Timeout: time.Minute}, Labels: map[string]string{"tier": "front"}},
			Own: true, Clusters: []services.Cluster{cluster("east", web, "10.0.0.1:20001"), cluster("west", more, "10.0.0.1:20002")}}
		conflict := []services.Conflict{{Name: name, Reason: services.PortConflict, Message: "east has other ports"}}
		o := Options{Release: "postern", ID: "here", Address: netip.MustParseAddr("10.0.0.2")}

		// What an earlier gateway has made.
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "more", Protocol: corev1.ProtocolTCP, Port: 81}}}}
		offer := &v1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.Now()}}
		have := seen{now: time.Now(), namespaces: []string{"shop"}, owners: map[string]*metav1.OwnerReference{}, exports: []*v1beta1.ServiceExport{offer},
			services: map[types.NamespacedName]*corev1.Service{keyOf(service): service, {Namespace: "shop", Name: derivedName(name)}: {ObjectMeta: metav1.ObjectMeta{Labels: o.labels()}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7"}}}}}
		m := maker{o: o, kinds: v1beta1.SchemeGroupVersion, seen: have}
		m.share([]services.Import{both})
		m.add(both)
		lists := map[kind][]any{serviceKind: {service}, exportKind: {offer}}
		for _, x := range m.made {
			stamp(x.body)
			switch b := x.body.(type) {
			case *corev1.Service:
				b.Spec.ClusterIPs = []string{"10.96.0.7"}
			case *v1beta1.ServiceImport:
				b.Status = *x.status.(*v1beta1.ServiceImportStatus)
			}
			lists[x.kind] = append(lists[x.kind], x.body)
		}
		offer.Status = *statusesOf(exportsOf(have, discoveryv1.AddressTypeIPv4), services.State{Conflicts: conflict}, nil, have.now)[0].status.(*v1beta1.ServiceExportStatus)

		_, turn := sessionOf(t, o, lists)
		turn("all are heard", services.State{Imports: []services.Import{both}, Conflicts: conflict})

		// The next one has heard west alone, which has another listener, and not east, which decides.
		one := both
		one.Spec.Ports, one.Spec.Affinity, one.Spec.Labels = []services.Port{more}, services.Affinity{}, nil
		one.Clusters = []services.Cluster{cluster("west", more, "10.0.0.2:20002")}
		st := services.State{Imports: []services.Import{one}, Awaited: []string{"east"}}
		_, turn = sessionOf(t, o, lists)
		slice := derivedName(name) + "-" + hash("west", "IPv4") + "-0"
		if again := turn("one is not", st, "PATCH endpointslices "+slice); again > unheardFor {
			t.Errorf("it is looked at again after %v", again)
		}
		if st.Imports[0].Spec.Ports[0] != more || len(st.Imports[0].Spec.Ports) != 1 {
			t.Error("the state has been changed")
		}
		time.Sleep(unheardFor)
		turn("not for long", st, "PATCH endpointslices "+derivedName(name)+"-"+hash("east", "IPv4")+"-0", "PATCH serviceimports web", "PATCH services "+derivedName(name), "PATCH web status")
	})
}

// A derived Service without an endpoint of its IP family is made again, also while another peer that
// exports the service is awaited. The ServiceImport and the EndpointSlices stay meanwhile.
func TestAServiceOfADeadFamilyIsMadeAgain(t *testing.T) {
	both := imported(services.Name{Namespace: "shop", Name: "web"}, services.ClusterSetIP, false, 1, "east", "west")
	east := imported(both.Name, services.ClusterSetIP, false, 1, "east")
	derived := derivedName(both.Name)
	slice := func(cluster string) string { return derived + "-" + hash(cluster, "IPv4") + "-0" }
	o := Options{Release: "postern", ID: "here", Address: netip.MustParseAddr("10.0.0.1")}
	m := maker{o: o, kinds: v1beta1.SchemeGroupVersion, seen: seen{now: time.Now(), namespaces: []string{"shop"}, services: map[types.NamespacedName]*corev1.Service{
		{Namespace: "shop", Name: derived}: {ObjectMeta: metav1.ObjectMeta{Labels: o.labels()}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"fd00::7"}}}}}}
	m.share([]services.Import{both})
	m.add(both)
	lists := map[kind][]any{}
	for _, x := range m.made {
		if b, is := x.body.(*corev1.Service); is {
			b.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
		}
		stamp(x.body)
		switch b := x.body.(type) {
		case *corev1.Service:
			b.Spec.ClusterIPs = []string{"fd00::7"}
		case *discoveryv1.EndpointSlice:
			b.Endpoints[0].Addresses = []string{"10.0.0.9"} // of an earlier pod
		case *v1beta1.ServiceImport:
			b.Status = *x.status.(*v1beta1.ServiceImportStatus)
		}
		lists[x.kind] = append(lists[x.kind], x.body)
	}
	gone := maps.Clone(lists)
	gone[serviceKind] = nil
	for what, c := range map[string]struct {
		lists   map[kind][]any
		imports services.Import
		awaited []string
		after   time.Duration
		want    []string
	}{
		"all are heard":              {lists, both, nil, 0, []string{"DELETE services " + derived, "PATCH endpointslices " + slice("east"), "PATCH endpointslices " + slice("west"), "PATCH serviceimports web"}},
		"it is gone":                 {gone, both, nil, 0, []string{"PATCH services " + derived, "PATCH endpointslices " + slice("east"), "PATCH endpointslices " + slice("west"), "PATCH serviceimports web"}},
		"one is awaited":             {lists, east, []string{"west"}, 0, []string{"PATCH endpointslices " + slice("east")}},
		"one is awaited for long":    {lists, east, []string{"west"}, unheardFor, []string{"DELETE services " + derived, "PATCH endpointslices " + slice("east"), "PATCH endpointslices " + slice("west"), "PATCH serviceimports web"}},
		"it is gone, one is awaited": {gone, east, []string{"west"}, unheardFor, []string{"PATCH services " + derived, "PATCH endpointslices " + slice("east"), "PATCH endpointslices " + slice("west"), "PATCH serviceimports web"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, turn := sessionOf(t, o, c.lists)
			time.Sleep(c.after)
			turn(what, services.State{Imports: []services.Import{c.imports}, Awaited: c.awaited}, c.want...)
		})
	}
}

// Releases in two namespaces may have the same name, and both may be told to import into a namespace.
// Their objects have the same labels. Each would delete what the other makes.
func TestWhatAnotherGatewayOfTheClusterMakesIsLeftAlone(t *testing.T) {
	web := imported(services.Name{Namespace: "shop", Name: "web"}, services.ClusterSetIP, false, 1, "east")
	o := Options{Release: "postern", ID: "here", Address: netip.MustParseAddr("10.0.0.1"), Cluster: &kube.Cluster{}}
	own, other := "ClusterRole "+o.role(), "Role postern-tenant-mcs"
	for by, c := range map[string]struct {
		imports []services.Import
		want    []string
		told    string
	}{
		own:   {nil, []string{"DELETE serviceimports web"}, ""},
		other: {[]services.Import{web}, nil, "belongs to another gateway of this cluster, by its Role postern-tenant-mcs"},
	} {
		role, name, _ := strings.Cut(by, " ")
		x := &v1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Labels: o.labels(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: role, Name: name}}}}
		s, turn := sessionOf(t, o, map[kind][]any{importKind: {x}})
		turn(by+" owns it, and it is not imported", services.State{}, c.want...)
		if c.told == "" {
			continue
		}
		turn(by+" owns it, and it is imported", services.State{Imports: c.imports})
		found := s.found()
		if len(found) != 1 || found[0].Code != catalogue.NameTaken {
			t.Fatalf("the problems are %+v", found)
		}
		cause, fix := catalogue.Render(found[0].Code, found[0].Params)
		if !strings.Contains(cause, c.told) || !strings.Contains(fix.String(), "only one of the two import into namespace shop") || strings.Contains(fix.String(), "delete") {
			t.Errorf("got %s\n%s", cause, fix)
		}
	}
}

// Ports that our EndpointSlices lead to belong to the peers whose services are expected there.
func TestPortsThatObjectsLeadTo(t *testing.T) {
	s := &session{Controller: &Controller{o: Options{Release: "postern", ID: "here", Address: netip.MustParseAddr("10.0.0.2"), Cluster: &kube.Cluster{}}}}
	have := seen{objects: map[id]mirror.Object{}, services: map[types.NamespacedName]*corev1.Service{}}
	add := func(name, address, cluster string, port int32, ours bool) *discoveryv1.EndpointSlice {
		x := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{}},
			Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
		if ours {
			x.Labels = s.o.labels()
		}
		if cluster != "" {
			x.Labels[v1beta1.LabelSourceCluster] = cluster
		}
		have.objects[id{sliceKind, "shop", name}] = x
		return x
	}
	add("web-edge", "10.0.0.2", "edge", 20001, true)
	add("before", "10.0.0.7", "edge", 20002, true)
	add("someone-elses", "10.0.0.2", "edge", 20003, false)
	add("own", "10.0.0.2", "here", 20004, true)
	add("db-0", "10.0.0.2", "", 20005, true).Labels[discoveryv1.LabelServiceName] = "derived-db-0"
	have.services[types.NamespacedName{Namespace: "shop", Name: "derived-db-0"}] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta1.LabelSourceCluster: "bank"}}}
	if got, want := s.expected(have), map[uint16]string{20001: "edge", 20005: "bank"}; !maps.Equal(got, want) {
		t.Errorf("expected are %v, want %v", got, want)
	}
}
