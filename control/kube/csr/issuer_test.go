package csr

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A real cluster is tested with the tag e2e. These tests have signers and approvers that a real
// cluster does not have.

var lone = auth.Subject{Name: "lone", PublicKey: peer.PublicKey{3}}

const loneUser = "postern:peer:cloud:lone"

// fakeAPI stores certificate requests. decide is called for each approved one.
type fakeAPI struct {
	decide func(*certificatesv1.CertificateSigningRequest)

	mu    sync.Mutex
	kept  map[string]*certificatesv1.CertificateSigningRequest
	asked []string
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const base = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	name, sub, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, base), "/"), "/")
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+sub))
	have := f.kept[name]
	var sent certificatesv1.CertificateSigningRequest
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			f.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Query().Get("dryRun") != "":
		f.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "the policy says no")
	case r.Method == http.MethodPost && f.kept[sent.Name] != nil:
		f.fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "it exists")
	case r.Method == http.MethodPost:
		sent.UID, sent.CreationTimestamp = "1", metav1.Now()
		f.kept[sent.Name] = &sent
		f.answer(w, &sent)
	case name == "":
		list := certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequestList"}}
		for _, x := range f.kept {
			list.Items = append(list.Items, *x)
		}
		f.answer(w, &list)
	case have == nil:
		f.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, name+" is not there")
	case r.Method == http.MethodDelete:
		delete(f.kept, name)
		f.answer(w, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	case r.Method == http.MethodPut:
		have.Status.Conditions = sent.Status.Conditions
		f.decide(have)
		f.answer(w, have)
	default:
		f.answer(w, have)
	}
}

func (f *fakeAPI) answer(w http.ResponseWriter, body any) {
	if x, ok := body.(*certificatesv1.CertificateSigningRequest); ok {
		x.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fakeAPI) fail(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func (f *fakeAPI) start(t *testing.T) (*Issuer, *reports) {
	t.Helper()
	f.kept = map[string]*certificatesv1.CertificateSigningRequest{}
	server := httptest.NewServer(f)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: %q}}],
users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x, namespace: postern}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	c, err := kube.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	r := &reports{}
	i, err := New(c, Options{Gateway: "cloud", Report: r.take})
	if err != nil {
		t.Fatal(err)
	}
	i.SetPeers([]auth.Subject{lone})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		server.CloseClientConnections()
		server.Close()
	})
	return i, r
}

// reports stores the last report.
type reports struct {
	mu   sync.Mutex
	last []check.OwnProblem
}

func (r *reports) take(list []check.OwnProblem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = list
}

func (r *reports) codes() (out []catalogue.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.last {
		out = append(out, p.Code)
	}
	return out
}

// condition sets a condition with a message.
func condition(x *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, message string) {
	x.Status.Conditions = append(x.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Test", Message: message,
	})
}

// sign signs a request with a template that change may modify.
func sign(t *testing.T, x *certificatesv1.CertificateSigningRequest, change func(*x509.Certificate)) {
	t.Helper()
	key := newKey(t)
	from := time.Now().Add(-time.Minute)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: loneUser}, NotBefore: from, NotAfter: from.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	request, err := auth.ExactRequest(x.Spec.Request, loneUser)
	if err != nil {
		t.Error(err)
		return
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	if err != nil {
		t.Error(err)
		return
	}
	x.Status.Certificate = pemOfCertificate(der)
}

func TestWhatSignersDo(t *testing.T) {
	for _, c := range []struct {
		name   string
		decide func(*testing.T, *certificatesv1.CertificateSigningRequest)
		code   catalogue.Code // empty: it is issued
		says   string
	}{
		{"signs", func(t *testing.T, x *certificatesv1.CertificateSigningRequest) { sign(t, x, nil) }, "", ""},
		{"is denied by another", func(_ *testing.T, x *certificatesv1.CertificateSigningRequest) {
			condition(x, certificatesv1.CertificateDenied, "not here")
		}, catalogue.CSRDenied, "Test: not here"},
		{"fails", func(_ *testing.T, x *certificatesv1.CertificateSigningRequest) {
			condition(x, certificatesv1.CertificateFailed, "no client certificates")
		}, catalogue.CSRFailed, "no client certificates"},
		{"signs for another", func(t *testing.T, x *certificatesv1.CertificateSigningRequest) {
			sign(t, x, func(c *x509.Certificate) { c.Subject.CommonName = "kubernetes-admin" })
		}, catalogue.CSRFailed, "kubernetes-admin"},
		{"adds a group", func(t *testing.T, x *certificatesv1.CertificateSigningRequest) {
			sign(t, x, func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} })
		}, catalogue.CSRFailed, "system:masters"},
		{"signs for a year", func(t *testing.T, x *certificatesv1.CertificateSigningRequest) {
			sign(t, x, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.AddDate(1, 0, 0) })
		}, catalogue.CSRFailed, "longer than"},
		{"signs for servers", func(t *testing.T, x *certificatesv1.CertificateSigningRequest) {
			sign(t, x, func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) })
		}, catalogue.CSRFailed, "more than client authentication"},
		{"gives no certificate", func(_ *testing.T, x *certificatesv1.CertificateSigningRequest) {
			x.Status.Certificate = []byte("hello")
		}, catalogue.CSRFailed, "no certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := &fakeAPI{decide: func(x *certificatesv1.CertificateSigningRequest) { c.decide(t, x) }}
			i, r := api.start(t)
			got, err := i.Issue(t.Context(), lone, requestFor(t, loneUser))
			if c.code == "" {
				if err != nil || got.Serial != "7" || len(r.codes()) != 0 {
					t.Errorf("got %+v, %v, reported %v", got, err, r.codes())
				}
				return
			}
			if !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), string(c.code)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %s with %q", err, c.code, c.says)
			}
			if codes := r.codes(); len(codes) != 1 || codes[0] != c.code {
				t.Errorf("reported %v, want %s", codes, c.code)
			}
		})
	}
}

// If no one signs, the error says so, even if the timeout ends during a poll.
func TestNobodySigns(t *testing.T) {
	enough := make(chan time.Time, 1)
	api := &fakeAPI{decide: func(*certificatesv1.CertificateSigningRequest) { enough <- time.Now() }}
	i, _ := api.start(t)
	request, err := auth.ExactRequest(requestFor(t, loneUser), loneUser)
	if err != nil {
		t.Fatal(err)
	}
	_, err = i.issue(t.Context(), lone, request, enough)
	var p *problem
	if !errors.As(err, &p) || p.code != catalogue.CSRUnsigned {
		t.Errorf("got %v, want %s", err, catalogue.CSRUnsigned)
	}
}

// Old objects are no obstacle.
func TestStaleObjectsAreHealed(t *testing.T) {
	old := metav1.NewTime(time.Now().Add(-2 * keepFor))
	for name, spoil := range map[string]func(*testing.T, *certificatesv1.CertificateSigningRequest){
		"denied long ago": func(_ *testing.T, x *certificatesv1.CertificateSigningRequest) {
			x.CreationTimestamp = old
			condition(x, certificatesv1.CertificateDenied, "then")
		},
		"failed long ago": func(_ *testing.T, x *certificatesv1.CertificateSigningRequest) {
			x.CreationTimestamp = old
			condition(x, certificatesv1.CertificateFailed, "then")
		},
		"of another lifetime": func(_ *testing.T, x *certificatesv1.CertificateSigningRequest) {
			seconds := int32(3601)
			x.Spec.ExpirationSeconds = &seconds
		},
		"with a certificate that ends": func(t *testing.T, x *certificatesv1.CertificateSigningRequest) {
			condition(x, certificatesv1.CertificateApproved, "then")
			sign(t, x, func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(-50*time.Minute), time.Now().Add(10*time.Minute)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := &fakeAPI{decide: func(x *certificatesv1.CertificateSigningRequest) { sign(t, x, nil) }}
			i, _ := api.start(t)
			csrPEM := requestFor(t, loneUser)
			request, err := auth.ExactRequest(csrPEM, loneUser)
			if err != nil {
				t.Fatal(err)
			}
			left := i.objects.wanted(lone, request).CertificateSigningRequest
			left.UID, left.CreationTimestamp = "0", metav1.Now()
			spoil(t, left)
			api.mu.Lock()
			api.kept[left.Name] = left
			api.mu.Unlock()
			got, err := i.Issue(t.Context(), lone, csrPEM)
			if err != nil || got.Again {
				t.Errorf("got %+v, %v; want a new certificate", got, err)
			}
		})
	}
}

// Someone else's object with our name is not changed.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	api := &fakeAPI{decide: func(x *certificatesv1.CertificateSigningRequest) { sign(t, x, nil) }}
	i, _ := api.start(t)
	csrPEM := requestFor(t, loneUser)
	request, err := auth.ExactRequest(csrPEM, loneUser)
	if err != nil {
		t.Fatal(err)
	}
	theirs := i.objects.wanted(lone, request).CertificateSigningRequest
	theirs.Labels = nil
	api.mu.Lock()
	api.kept[theirs.Name] = theirs
	api.mu.Unlock()
	_, err = i.Issue(t.Context(), lone, csrPEM)
	if !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), "kubectl delete csr "+theirs.Name) {
		t.Errorf("got %v", err)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if api.kept[theirs.Name] != theirs {
		t.Error("it was touched")
	}
}

func TestStrangersGetNothing(t *testing.T) {
	api := &fakeAPI{decide: func(x *certificatesv1.CertificateSigningRequest) { t.Error("approved") }}
	i, _ := api.start(t)
	if _, err := i.Issue(t.Context(), auth.Subject{Name: "lone"}, requestFor(t, loneUser)); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("another key: %v", err)
	}
	if _, err := i.Issue(t.Context(), auth.Subject{Name: "x", PublicKey: lone.PublicKey}, requestFor(t, "postern:peer:cloud:x")); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("another name: %v", err)
	}
}
