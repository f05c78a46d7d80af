package mcs

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	restfake "k8s.io/client-go/rest/fake"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/mirror"
	services "github.com/postern-dev/postern/control/mcs"
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
	s := &session{Controller: &Controller{o: Options{Release: "postern"}, log: slog.New(slog.DiscardHandler), cluster: &kube.Cluster{}}}
	s.clients.rbac = &restfake.RESTClient{NegotiatedSerializer: scheme.Codecs, Client: restfake.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
		asked++
		body := fmt.Sprintf(`{"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"uid": %q}}`, role)
		if status != http.StatusOK {
			body = fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q}`, status,
				map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound}[status])
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})}
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
			discovery: &restfake.RESTClient{NegotiatedSerializer: scheme.Codecs, Client: restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, r.Method+" "+path.Base(r.URL.Path))
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
			})}}}
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
