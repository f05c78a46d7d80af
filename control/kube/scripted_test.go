package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A real API server is tested with the tag e2e. These tests use answers that a real one does not
// give on demand.

var edgePeer = auth.Subject{Name: "edge", PublicKey: peer.PublicKey{1}}

// scripted is an API server with scripted answers. WATCH is a method here, and ALL is the list
// with which a watch begins.
type scripted struct {
	mu      sync.Mutex
	answers map[string][]answer // by method and end of the path; the last one stays
	asked   []string
}

type answer struct {
	status int
	body   any
	do     func() // before the answer; may be nil
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	what := r.Method + " " + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case r.URL.Query().Get("watch") != "":
		what = "WATCH" + strings.TrimPrefix(what, http.MethodGet)
	case r.URL.Query().Has("resourceVersion"): // before a watch
		what = "ALL" + strings.TrimPrefix(what, http.MethodGet)
	}
	s.mu.Lock()
	s.asked = append(s.asked, what)
	a := answer{status: http.StatusNotImplemented, body: failure(http.StatusNotImplemented, "", what+" is not in the script")}
	if queue := s.answers[what]; len(queue) > 0 {
		a = queue[0]
		if len(queue) > 1 {
			s.answers[what] = queue[1:]
		}
	}
	s.mu.Unlock()
	if a.do != nil {
		a.do()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body)
}

func (s *scripted) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.asked {
		if a == what {
			n++
		}
	}
	return n
}

// failure returns a Status like that of an API server.
func failure(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Causes: causes},
	}
}

func refusal(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) answer {
	return answer{status: int(code), body: failure(code, reason, message, causes...)}
}

func accountAnswer(key string) answer {
	return answer{status: http.StatusOK, body: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{
			"name": "postern-peer-edge", "namespace": "peers", "uid": "1",
			"labels": map[string]string{labelPeer: "edge", labelGateway: "cloud"}, "annotations": map[string]string{annotationKey: key},
		},
	}}
}

func tokenAnswer(token string) answer {
	return answer{status: http.StatusCreated, body: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"status": map[string]any{"token": token, "expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	}}
}

func (s *scripted) issuer(t *testing.T, out io.Writer) *TokenIssuer {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL, Timeout: requestTimeout, QPS: requestRate, Burst: requestBurst}, "default")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	i := NewTokenIssuer(c, TokenIssuerOptions{
		Gateway: "cloud", Namespace: "peers", TTL: time.Hour, Logger: slog.New(slog.NewTextHandler(out, nil)),
	})
	i.SetPeers([]auth.Subject{edgePeer})
	return i
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   []string
	}{
		"no right, in a pod": {
			refusal(403, metav1.StatusReasonForbidden, `serviceaccounts "postern-peer-edge" is forbidden: User "system:serviceaccount:postern:postern" cannot get resource "serviceaccounts" in API group "" in the namespace "peers"`),
			[]string{"kubectl create role postern-peer-accounts -n peers --verb=get,list,watch,create,delete --resource=serviceaccounts && ", "--serviceaccount=postern:postern)"},
		},
		"no right, beside the cluster": {
			refusal(403, metav1.StatusReasonForbidden, `serviceaccounts "postern-peer-edge" is forbidden: User "jane" cannot get resource "serviceaccounts" in API group "" in the namespace "peers"`), []string{"--user=jane)"},
		},
		"a user who is no word": {
			refusal(403, metav1.StatusReasonForbidden, `serviceaccounts "postern-peer-edge" is forbidden: User "x; reboot" cannot get resource "serviceaccounts" in API group "" in the namespace "peers"`), []string{"--user=USER)"},
		},
		"no right to watch": {
			refusal(403, metav1.StatusReasonForbidden, `serviceaccounts is forbidden: User "system:serviceaccount:postern:postern" cannot watch resource "serviceaccounts" in API group "" in the namespace "peers"`),
			[]string{"kubectl create role postern-peer-accounts-watch -n peers --verb=list,watch --resource=serviceaccounts && "},
		},
		"a policy": {
			refusal(403, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'x' denied request"), []string{"a policy of the cluster", "postern-peer-*", "peers"},
		},
		"a webhook that speaks of rights": {
			refusal(403, metav1.StatusReasonForbidden, `admission webhook "owner.example.net" denied the request: accounts cannot be created on a Friday`), []string{"a policy of the cluster", "postern-peer-*", "peers"},
		},
		"a webhook that is down": {
			refusal(400, metav1.StatusReasonBadRequest, `failed calling webhook "owner.example.net": connection refused`), []string{"start the webhook", "peers"},
		},
		"a namespace that goes": {
			refusal(403, metav1.StatusReasonForbidden, "being terminated", metav1.StatusCause{Type: "NamespaceTerminating"}), []string{"kubectl create namespace peers"},
		},
		"nobody": {
			refusal(401, metav1.StatusReasonUnauthorized, "Unauthorized"), []string{"http://127.0.0.1:", "KUBECONFIG"},
		},
		"something else": {
			refusal(422, metav1.StatusReasonInvalid, "the TTL does not please"), []string{"the TTL does not please"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{answers: map[string][]answer{"GET postern-peer-edge": {c.answer}}}
			_, err := s.issuer(t, io.Discard).Issue(t.Context(), edgePeer, nil)
			if !errors.Is(err, auth.ErrIssuer) {
				t.Fatalf("got %v, want %v", err, auth.ErrIssuer)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %q, want %q in it", err, w)
				}
			}
			if n := s.count("GET postern-peer-edge"); n != 1 {
				t.Errorf("asked %d times for what will not change", n)
			}
		})
	}
}

func TestAServerInTroubleIsAskedAgain(t *testing.T) {
	s := &scripted{answers: map[string][]answer{
		"GET postern-peer-edge": {refusal(500, metav1.StatusReasonInternalError, "etcd"), refusal(503, metav1.StatusReasonServiceUnavailable, "soon"), accountAnswer(edgePeer.PublicKey.String())},
		"POST token":            {refusal(409, metav1.StatusReasonConflict, "another UID"), tokenAnswer("good")},
	}}
	out, err := s.issuer(t, io.Discard).Issue(t.Context(), edgePeer, nil)
	if err != nil || out.Token != "good" {
		t.Errorf("got %v, %v; want a token", out, err)
	}
}

func TestATokenThatIsNoneIsAnError(t *testing.T) {
	s := &scripted{answers: map[string][]answer{
		"GET postern-peer-edge": {accountAnswer(edgePeer.PublicKey.String())}, "POST token": {tokenAnswer("")},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.issuer(t, io.Discard).Issue(ctx, edgePeer, nil); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("got %v, want %v", err, auth.ErrIssuer)
	}
}

// A peer may be removed while its account is being created: then the account did not exist yet
// when those of others were deleted.
func TestAPeerRemovedWhileATokenIsMadeGetsNone(t *testing.T) {
	var i *TokenIssuer
	deleted := make(chan struct{})
	ours := accountAnswer(edgePeer.PublicKey.String())
	s := &scripted{answers: map[string][]answer{
		"POST serviceaccounts":  {accountAnswer("")}, // of the preflight, as the second token
		"GET postern-peer-edge": {ours},
		"GET serviceaccounts": {
			{status: http.StatusOK, body: map[string]any{"apiVersion": "v1", "kind": "ServiceAccountList", "items": []any{}}},
			{status: http.StatusOK, body: map[string]any{"apiVersion": "v1", "kind": "ServiceAccountList", "items": []any{ours.body}}},
		},
		"DELETE postern-peer-edge": {{status: http.StatusOK, body: failure(0, "", ""), do: sync.OnceFunc(func() { close(deleted) })}},
	}}
	good := tokenAnswer("secret-token")
	good.do = func() {
		i.Revoke(edgePeer)
		<-i.wake // as Run does, before the account exists
		if err := i.reconcile(t.Context()); err != nil {
			t.Error(err)
		}
	}
	s.answers["POST token"] = []answer{good, refusal(404, metav1.StatusReasonNotFound, "nobody")}
	i = s.issuer(t, io.Discard)
	<-i.wake
	out, err := i.Issue(t.Context(), edgePeer, nil)
	if !errors.Is(err, auth.ErrIssuer) || out.Token != "" {
		t.Errorf("got %v, %v; want no token", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx) }()
	<-deleted
	cancel()
	<-done
}

// An outage causes one warning, however long it takes and whatever ports its errors contain.
func TestAnOutageIsComplainedOfOnce(t *testing.T) {
	log := &records{}
	tried := make(chan struct{}, 16)
	note := func(a answer) answer {
		a.do = func() { tried <- struct{}{} }
		return a
	}
	s := &scripted{answers: map[string][]answer{
		"POST serviceaccounts": {accountAnswer("")},
		"POST token":           {refusal(404, metav1.StatusReasonNotFound, "nobody")},
		"GET serviceaccounts": {
			note(refusal(503, metav1.StatusReasonServiceUnavailable, "port 1")), note(refusal(503, metav1.StatusReasonServiceUnavailable, "port 2")),
			note(refusal(401, metav1.StatusReasonUnauthorized, "who?")),
			note(answer{status: http.StatusOK, body: map[string]any{"apiVersion": "v1", "kind": "ServiceAccountList"}}),
		},
	}}
	i := s.issuer(t, log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx) }()
	for range 4 {
		<-tried
	}
	cancel()
	<-done
	if n := strings.Count(log.String(), `level=WARN msg="failed to delete the accounts of removed peers`); n != 2 {
		t.Errorf("%d warnings, want one for the outage and one for the refusal:\n%s", n, log.String())
	}
}

func TestAPodWithoutATokenIsToldSo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := Connect("test"); !errors.Is(err, ErrNoCluster) || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("got %v, want %v that says what to set", err, ErrNoCluster)
	}
}

func TestAPasswordInAServersURLIsNotShown(t *testing.T) {
	if got := shown("https://u:secret@host:6443/"); strings.Contains(got, "secret") || !strings.Contains(got, "host:6443") {
		t.Errorf("got %q", got)
	}
}

func TestOnlyARemovalIsWorthALook(t *testing.T) {
	s := &scripted{}
	i := s.issuer(t, io.Discard)
	other := auth.Subject{Name: "berlin", PublicKey: peer.PublicKey{2}}
	renewed := auth.Subject{Name: "edge", PublicKey: peer.PublicKey{3}}
	woken := func() bool {
		select {
		case <-i.wake:
			return true
		default:
			return false
		}
	}
	for step, c := range []struct {
		peers []auth.Subject
		want  bool
	}{
		{[]auth.Subject{edgePeer}, true}, // the first: accounts left from the last run
		{[]auth.Subject{edgePeer}, false},
		{[]auth.Subject{edgePeer, other}, false},
		{[]auth.Subject{edgePeer}, true},
		{[]auth.Subject{renewed}, true},
		{nil, true},
	} {
		if step > 0 {
			i.SetPeers(c.peers)
		}
		if got := woken(); got != c.want {
			t.Errorf("step %d: looks: %v, want %v", step, got, c.want)
		}
	}
}
