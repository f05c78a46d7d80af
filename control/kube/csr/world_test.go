//go:build linux && e2e

package csr

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/guard/guardtest"
	testkube "github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// signerProgram contains the signer.
const signerProgram = "kube-controller-manager"

// patience bounds waits; only a failing test takes that long.
const patience = 90 * time.Second

var (
	edge   = auth.Subject{Name: "edge", PublicKey: peer.PublicKey{1}}
	berlin = auth.Subject{Name: "berlin", PublicKey: peer.PublicKey{2}}
)

// userOf returns a peer's user at gateway "cloud".
func userOf(s auth.Subject) string { return auth.UserPrefix + "cloud:" + s.IdentityName() }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// world is a real API server with the signer of kube-controller-manager, and an issuer with the
// shipped role.
type world struct {
	cluster kubetest.Cluster
	roots   *x509.CertPool
	token   string
	issuer  *Issuer
	ledger  ledger

	assets, dir string
	signer      *exec.Cmd
	problems    chan []check.OwnProblem
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
	w.cluster = kubetest.With(t, testkube.Options{Dir: w.dir, ClientCAs: ca.CertPEM()})
	t.Cleanup(w.stopSigner)
	if _, err := os.Stat(filepath.Join(assets, signerProgram)); err != nil { // an older API server has none
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
	guardtest.Install(t, w.cluster.Cluster)
	w.token = w.cluster.Gateway(t, "postern")
	w.issuer = w.newIssuer(t)
	return w
}

// startSigner runs only kube-controller-manager's signing controller.
func (w *world) startSigner(t *testing.T) {
	t.Helper()
	w.signer = exec.CommandContext(context.Background(), filepath.Join(w.assets, signerProgram),
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

// newIssuer runs an issuer with the account's token, as in a pod.
func (w *world) newIssuer(t *testing.T) *Issuer {
	t.Helper()
	t.Setenv("KUBECONFIG", w.cluster.Bearer(t, "postern", w.token))
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
	return w.cluster.Run(t, stdin, args...)
}

// last returns the last report.
func (w *world) last() (list []check.OwnProblem) {
	for {
		select {
		case list = <-w.problems:
		default:
			return list
		}
	}
}

// wantCode checks for an error with a code, and its report.
func (w *world) wantCode(t *testing.T, err error, code catalogue.Code) {
	t.Helper()
	if !errors.Is(err, auth.ErrIssuer) || !strings.Contains(err.Error(), string(code)) {
		t.Errorf("got %v, want %s", err, code)
	}
	if list := w.last(); len(list) != 1 || list[0].Code != code {
		t.Errorf("reported %+v, want %s", list, code)
	}
}

// shipped returns the documents of the shipped manifest: the policy and the role.
func shipped(t *testing.T) (policy, role string) {
	t.Helper()
	b, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.SplitN(string(b), "\n---\n", 3)
	return docs[0] + "\n---\n" + docs[1], docs[2]
}

// whoami asks the API server who the owner of a certificate is.
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

// do sends a request with the gateway's own token, but without the gateway's code.
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

// ledger records in memory.
type ledger struct {
	mu   sync.Mutex
	ends map[peer.PublicKey]map[string]time.Time // by serial
}

func (l *ledger) RecordIssued(k peer.PublicKey, _, serial string, _, notAfter time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == nil {
		l.ends = map[peer.PublicKey]map[string]time.Time{}
	}
	if l.ends[k] == nil {
		l.ends[k] = map[string]time.Time{}
	}
	l.ends[k][serial] = notAfter
	return nil
}

func (l *ledger) IdentityHolder(string, peer.PublicKey, time.Time) (holder peer.PublicKey, until time.Time, ok bool) {
	return holder, until, false
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
