package mcs

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	restfake "k8s.io/client-go/rest/fake"

	"github.com/postern-dev/postern/control/kube"
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
