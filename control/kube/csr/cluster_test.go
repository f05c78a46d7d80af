//go:build linux && e2e

package csr

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	testkube "github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// signerProgram has the signer in it.
const signerProgram = "kube-controller-manager"

// patience bounds failure; nothing takes that long unless it is broken.
const patience = 90 * time.Second

var (
	edge   = auth.Subject{Name: "edge", PublicKey: peer.PublicKey{1}}
	berlin = auth.Subject{Name: "berlin", PublicKey: peer.PublicKey{2}}
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// world is a real API server with the signer of kube-controller-manager, and an issuer that
// has the shipped role.
type world struct {
	cluster *testkube.Cluster
	roots   *x509.CertPool
	token   string
	issuer  *Issuer
	ledger  ledger

	assets, dir string
	signer      *exec.Cmd
	problems    chan []check.OwnProblem
}

func TestClusterSigns(t *testing.T) {
	w := newWorld(t)
	w.refusedUnguarded(t)
	w.guard(t)
	w.issues(t)
	w.refusesEscalations(t)
	w.deniedByPolicy(t)
	w.waitsForASlowSigner(t)
	w.removes(t)
	w.lacksRights(t)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := within(t, 15*time.Minute)
	assets, err := testkube.Binaries(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA("signer")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: t.TempDir(), assets: assets, problems: make(chan []check.OwnProblem, 100)}
	pair, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := pair.Write(w.dir, "signer"); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = testkube.Start(ctx, testkube.Options{Dir: w.dir, ClientCAs: ca.CertPEM()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stopSigner()
		if err := w.cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(filepath.Join(assets, signerProgram)); err != nil { // an older API server comes alone
		t.Setenv("KUBEBUILDER_ASSETS", "")
		if w.assets, err = testkube.Binaries(ctx, t.Output()); err != nil {
			t.Fatal(err)
		}
	}
	w.startSigner(t)
	pemBytes, err := os.ReadFile(w.cluster.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(pemBytes)
	w.kubectl(t, "", "create", "namespace", "postern")
	w.kubectl(t, "", "create", "serviceaccount", "-n", "postern", "postern")
	w.token = w.kubectl(t, "", "create", "token", "-n", "postern", "postern", "--duration", "2h")
	w.issuer = w.newIssuer(t)
	return w
}

// startSigner runs kube-controller-manager's signing controller alone.
func (w *world) startSigner(t *testing.T) {
	t.Helper()
	w.signer = exec.Command(filepath.Join(w.assets, signerProgram),
		"--kubeconfig="+w.cluster.Kubeconfig(), "--controllers=csrsigning", "--leader-elect=false", "--secure-port=0",
		"--cluster-signing-cert-file="+filepath.Join(w.dir, "signer.crt"), "--cluster-signing-key-file="+filepath.Join(w.dir, "signer.key"))
	log, err := os.Create(filepath.Join(w.dir, "signer.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w.signer.Stdout, w.signer.Stderr = log, log
	if err := w.signer.Start(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) stopSigner() {
	if w.signer != nil {
		_ = w.signer.Process.Kill()
		_ = w.signer.Wait()
		w.signer = nil
	}
}

// newIssuer runs one with the account's token, as in a pod beside the cluster.
func (w *world) newIssuer(t *testing.T) *Issuer {
	t.Helper()
	file := filepath.Join(w.dir, "gateway.kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x,
clusters: [{name: x, cluster: {server: %q, certificate-authority: %q, tls-server-name: %q}}],
users: [{name: x, user: {token: %q}}], contexts: [{name: x, context: {cluster: x, user: x, namespace: postern}}]}`,
		w.cluster.URL(), w.cluster.CAFile(), testkube.ServerName, w.token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	c, err := kube.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(c, Options{Gateway: "cloud", TTL: MinTTL, Ledger: &w.ledger, Report: func(list []check.OwnProblem) { w.problems <- list }})
	if err != nil {
		t.Fatal(err)
	}
	i.SetPeers([]auth.Subject{edge, berlin})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return i
}

func (w *world) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.cluster.Kubectl(within(t, patience), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// last is what was reported last.
func (w *world) last() (list []check.OwnProblem) {
	for {
		select {
		case list = <-w.problems:
		default:
			return list
		}
	}
}

// wantCode wants an error with a code, and the report of it.
func (w *world) wantCode(t *testing.T, err error, code check.Code) {
	t.Helper()
	if !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), string(code)) {
		t.Errorf("got %v, want %s", err, code)
	}
	if list := w.last(); len(list) != 1 || list[0].Code != code {
		t.Errorf("reported %+v, want %s", list, code)
	}
}

// shipped are the documents of the shipped manifest: the policy and the role.
func shipped(t *testing.T) (policy, role string) {
	t.Helper()
	b, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.SplitN(string(b), "\n---\n", 3)
	return docs[0] + "\n---\n" + docs[1], docs[2]
}

// refusedUnguarded: rights without the policy must not be used.
func (w *world) refusedUnguarded(t *testing.T) {
	_, role := shipped(t)
	w.kubectl(t, role, "apply", "-f", "-")
	_, err := w.issuer.Issue(within(t, patience), edge, requestFor(t, edge.User()))
	w.wantCode(t, err, check.CSRUnguarded)
	if list := w.kubectl(t, "", "get", "csr", "-o", "name"); list != "" {
		t.Errorf("there are %s", list)
	}
}

// guard applies the policy, and waits until the API server has noticed.
func (w *world) guard(t *testing.T) {
	policy, _ := shipped(t)
	w.kubectl(t, policy, "apply", "-f", "-")
	deadline := time.Now().Add(patience)
	for w.issuer.guard.check(within(t, patience), time.Now()) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the policy is not in force")
		}
		<-time.After(100 * time.Millisecond)
	}
}

// whoami asks the API server with a certificate.
func (w *world) whoami(t *testing.T, certPEM []byte, key *ecdsa.PrivateKey) (user string, groups []string) {
	t.Helper()
	block, _ := pem.Decode(certPEM)
	if block == nil {
		t.Fatalf("no certificate: %q", certPEM)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: w.roots, ServerName: testkube.ServerName,
		Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: key}},
	}}}
	defer client.CloseIdleConnections()
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	req, err := http.NewRequestWithContext(within(t, patience), http.MethodPost, w.cluster.URL()+"/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out.Status.UserInfo.Username, out.Status.UserInfo.Groups
}

func (w *world) issues(t *testing.T) {
	key := newKey(t)
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: edge.User()}}, key)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	got, err := w.issuer.Issue(within(t, patience), edge, inPEM(raw))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("issued in %v", time.Since(start).Round(time.Millisecond))
	if user, groups := w.whoami(t, got.CertificatePEM, key); user != "postern:peer:edge" || len(groups) != 1 || groups[0] != "system:authenticated" {
		t.Errorf("the bearer is %q in %v", user, groups)
	}
	if life := time.Until(got.NotAfter); life > MinTTL+time.Minute || life < MinTTL-time.Minute || got.Serial == "" || got.Again {
		t.Errorf("got %v until %v", got.Serial, got.NotAfter)
	}
	if list := w.last(); len(list) != 0 {
		t.Errorf("reported %+v", list)
	}
	again, err := w.issuer.Issue(within(t, patience), edge, inPEM(raw))
	if err != nil || !again.Again || again.Serial != got.Serial || !bytes.Equal(again.CertificatePEM, got.CertificatePEM) {
		t.Errorf("again: %v, %v; want the same", again.Serial, err)
	}
	renewed, err := w.issuer.Issue(within(t, patience), edge, requestFor(t, edge.User()))
	if err != nil || renewed.Serial == got.Serial {
		t.Errorf("renewed: %v, %v; want another than %v", renewed.Serial, err, got.Serial)
	}
	if user, _ := w.whoami(t, got.CertificatePEM, key); user != "postern:peer:edge" {
		t.Errorf("after the renewal the first is %q", user)
	}
	if n, _ := w.ledger.LastIssued(edge.PublicKey, time.Now()); n != 2 {
		t.Errorf("%d are noted, want 2", n)
	}
	for name, csrPEM := range map[string][]byte{
		"another's name": requestFor(t, berlin.User()), "an administrator": requestFor(t, "kubernetes-admin"), "nobody": requestFor(t, ""),
	} {
		if _, err := w.issuer.Issue(within(t, patience), edge, csrPEM); !errors.Is(err, auth.ErrCSR) && !errors.Is(err, auth.ErrCSRSubject) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// do asks the API server with the gateway's own token, past its code.
func (w *world) do(t *testing.T, method, path string, body any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots, ServerName: testkube.ServerName}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(within(t, patience), method, w.cluster.URL()+"/apis/certificates.k8s.io/v1/certificatesigningrequests"+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+w.token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// refusesEscalations plays a gateway whose token was stolen.
func (w *world) refusesEscalations(t *testing.T) {
	make := func(name string, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		x := w.issuer.objects.blank(der(t, pkix.Name{CommonName: edge.User()})).CertificateSigningRequest
		x.Name = name
		if change != nil {
			change(x)
		}
		return x
	}
	asks := func(n pkix.Name) func(*certificatesv1.CertificateSigningRequest) {
		return func(x *certificatesv1.CertificateSigningRequest) { x.Spec.Request = inPEM(der(t, n)) }
	}
	text := func(s string) func(*certificatesv1.CertificateSigningRequest) {
		return func(x *certificatesv1.CertificateSigningRequest) { x.Spec.Request = []byte(s) }
	}
	seconds := func(n int32) func(*certificatesv1.CertificateSigningRequest) {
		return func(x *certificatesv1.CertificateSigningRequest) { x.Spec.ExpirationSeconds = &n }
	}
	good, evil := string(requestFor(t, edge.User())), string(requestFor(t, "kubernetes-admin"))
	const begin = "-----BEGIN CERTIFICATE REQUEST-----\n"
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"masters":     asks(pkix.Name{CommonName: "x", Organization: []string{"system:masters"}}),
		"peermasters": asks(pkix.Name{CommonName: edge.User(), Organization: []string{"system:masters"}}),
		"group":       asks(pkix.Name{CommonName: edge.User(), Organization: []string{"cluster-admins"}}),
		"controller":  asks(pkix.Name{CommonName: "system:kube-controller-manager"}),
		"node":        asks(pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}),
		"admin":       asks(pkix.Name{CommonName: "kubernetes-admin"}),
		"behind":      text(good + evil),
		"before":      text(evil + good),
		"header":      text(begin + good[len(begin):len(begin)+60] + ": x\n\n" + evil[len(begin):]),
		"kubelet": func(x *certificatesv1.CertificateSigningRequest) {
			x.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		},
		"unknown": func(x *certificatesv1.CertificateSigningRequest) {

			x.Spec.SignerName = "example.com/signer"
		},
		"server": func(x *certificatesv1.CertificateSigningRequest) {
			x.Spec.Usages = append(x.Spec.Usages, certificatesv1.UsageServerAuth)
		},
		"year":    func(x *certificatesv1.CertificateSigningRequest) { x.Spec.ExpirationSeconds = nil },
		"twodays": seconds(2 * 86400),
	} {
		code, body := w.do(t, http.MethodPost, "", make("evil-"+name, change))
		if code != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403: %.300s", name, code, body)
		}
	}
	if code, body := w.do(t, http.MethodPost, "?dryRun=All", make("good", nil)); code != http.StatusCreated {
		t.Errorf("the good one: got %d: %.300s", code, body)
	}
	// Somebody else's request, which asks for what a peer may have.
	theirs := make("theirs", nil)
	theirs.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	b, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	w.kubectl(t, string(b), "create", "-f", "-")
	var have certificatesv1.CertificateSigningRequest
	if err := json.Unmarshal([]byte(w.kubectl(t, "", "get", "csr", "theirs", "-o", "json")), &have); err != nil {
		t.Fatal(err)
	}
	have.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "x"}}
	for what, got := range map[string]func() (int, string){
		"approve another's":       func() (int, string) { return w.do(t, http.MethodPut, "/theirs/approval", have) },
		"delete another's":        func() (int, string) { return w.do(t, http.MethodDelete, "/theirs", nil) },
		"write another's status":  func() (int, string) { return w.do(t, http.MethodPut, "/theirs/status", have) },
		"change another's object": func() (int, string) { return w.do(t, http.MethodPut, "/theirs", have) },
	} {
		if code, body := got(); code != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403: %.300s", what, code, body)
		}
	}
	w.kubectl(t, "", "delete", "csr", "theirs")
}

// deniedByPolicy: what another policy of the cluster says reaches the operator.
func (w *world) deniedByPolicy(t *testing.T) {
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-berlin}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [certificates.k8s.io], apiVersions: ["*"], operations: [CREATE], resources: [certificatesigningrequests]}]}
  validations: [{expression: "!has(object.metadata.labels) || !('postern.dev/peer' in object.metadata.labels) || object.metadata.labels['postern.dev/peer'] != 'berlin'", message: berlin is not wanted}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-berlin}
spec: {policyName: no-berlin, validationActions: [Deny]}
`
	w.kubectl(t, policy, "apply", "-f", "-")
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		_, err = w.issuer.Issue(within(t, patience), berlin, requestFor(t, berlin.User()))
	}
	w.wantCode(t, err, check.CSRDenied)
	if err == nil || !strings.Contains(err.Error(), "berlin is not wanted") {
		t.Errorf("got %v, want the policy's words", err)
	}
	w.issuer.SetPeers([]auth.Subject{edge})
	if list := w.last(); len(list) != 0 {
		t.Errorf("after berlin was removed: %+v", list)
	}
}

// waitsForASlowSigner: a request that nobody signs is an error with a code, and the same
// request gets the certificate once there is one.
func (w *world) waitsForASlowSigner(t *testing.T) {
	w.stopSigner()
	csrPEM := requestFor(t, edge.User())
	start := time.Now()
	_, err := w.issuer.Issue(within(t, patience), edge, csrPEM)
	w.wantCode(t, err, check.CSRUnsigned)
	if took := time.Since(start); took > issueTimeout+5*time.Second {
		t.Errorf("it took %v", took)
	}
	before := w.kubectl(t, "", "get", "csr", "-o", "name")
	w.startSigner(t)
	got, err := w.issuer.Issue(within(t, patience), edge, csrPEM)
	if err != nil {
		t.Fatal(err)
	}
	if after := w.kubectl(t, "", "get", "csr", "-o", "name"); after != before || !got.Again {
		t.Errorf("it was made anew: before %q, after %q", before, after)
	}
	if list := w.last(); len(list) != 0 {
		t.Errorf("still reported: %+v", list)
	}
}

func (w *world) removes(t *testing.T) {
	if list := w.kubectl(t, "", "get", "csr", "-o", "name"); list == "" {
		t.Error("there is nothing to delete")
	}
	r := w.issuer.Revoke(edge)
	if r.Recalled || r.Outstanding < 2 || time.Until(r.NotAfter) < MinTTL/2 {
		t.Errorf("revoked: %+v, want certificates that are left until they expire", r)
	}
	deadline := time.Now().Add(patience)
	for {
		list := w.kubectl(t, "", "get", "csr", "-o", "name")
		if list == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %s", list)
		}
		<-time.After(100 * time.Millisecond)
	}
	if _, err := w.issuer.Issue(within(t, patience), edge, requestFor(t, edge.User())); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("after removal: %v", err)
	}
}

func (w *world) lacksRights(t *testing.T) {
	w.kubectl(t, "", "delete", "clusterrolebinding", "postern-csr")
	w.issuer.SetPeers([]auth.Subject{edge})
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err = w.issuer.Issue(within(t, patience), edge, requestFor(t, edge.User())); err != nil {
			break
		}
	}
	w.wantCode(t, err, check.CSRForbidden)
}

// ledger remembers in memory.
type ledger struct {
	mu   sync.Mutex
	ends map[peer.PublicKey][]time.Time
}

func (l *ledger) RecordIssued(k peer.PublicKey, _ string, _, notAfter time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == nil {
		l.ends = map[peer.PublicKey][]time.Time{}
	}
	l.ends[k] = append(l.ends[k], notAfter)
	return nil
}

func (l *ledger) LastIssued(k peer.PublicKey, _ time.Time) (count int, notAfter time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.ends[k] {
		if e.After(notAfter) {
			notAfter = e
		}
	}
	return len(l.ends[k]), notAfter
}
