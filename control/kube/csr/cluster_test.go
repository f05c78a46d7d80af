//go:build linux && e2e

package csr

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
)

// A real API server with the real signer, and the shipped role and policy.
func TestClusterSigns(t *testing.T) {
	w := newWorld(t)
	w.refusedUnguarded(t)
	w.guard(t)
	w.issues(t)
	w.grantsNothingByName(t)
	w.keepsGatewaysApart(t)
	w.refusesEscalations(t)
	w.deniedByPolicy(t)
	w.waitsForASlowSigner(t)
	w.removes(t)
	w.lacksRights(t)
}

// refusedUnguarded: without the policy nothing is issued.
func (w *world) refusedUnguarded(t *testing.T) {
	_, role := shipped(t)
	w.kubectl(t, role, "apply", "-f", "-")
	_, err := w.issuer.Issue(within(t, patience), edge, requestFor(t, userOf(edge)))
	w.wantCode(t, err, catalogue.CSRUnguarded)
	if list := w.kubectl(t, "", "get", "csr", "-o", "name"); list != "" {
		t.Errorf("there are %s", list)
	}
}

// guard applies the policy, and waits until the API server enforces it.
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

func (w *world) issues(t *testing.T) {
	key := newKey(t)
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: userOf(edge)}}, key)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	got, err := w.issuer.Issue(within(t, patience), edge, inPEM(raw))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("issued in %v", time.Since(start).Round(time.Millisecond))
	if user, groups := w.whoami(t, got.CertificatePEM, key); user != userOf(edge) || len(groups) != 1 || groups[0] != "system:authenticated" {
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
	renewed, err := w.issuer.Issue(within(t, patience), edge, requestFor(t, userOf(edge)))
	if err != nil || renewed.Serial == got.Serial {
		t.Errorf("renewed: %v, %v; want another than %v", renewed.Serial, err, got.Serial)
	}
	if user, _ := w.whoami(t, got.CertificatePEM, key); user != userOf(edge) {
		t.Errorf("after the renewal the first is %q", user)
	}
	if n, _ := w.ledger.LastIssued(edge.PublicKey, time.Now()); n != 2 {
		t.Errorf("%d are noted, want 2", n)
	}
	for name, csrPEM := range map[string][]byte{
		"another's name": requestFor(t, userOf(berlin)), "an administrator": requestFor(t, "kubernetes-admin"), "nobody": requestFor(t, ""),
	} {
		if _, err := w.issuer.Issue(within(t, patience), edge, csrPEM); !errors.Is(err, auth.ErrCSR) && !errors.Is(err, auth.ErrCSRSubject) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// grantsNothingByName: a peer that named itself after an existing binding does not get its
// rights, and one that an operator named does.
func (w *world) grantsNothingByName(t *testing.T) {
	w.kubectl(t, "", "create", "clusterrolebinding", "left-behind", "--clusterrole=cluster-admin", "--user="+userOf(edge))
	named := edge
	for name, s := range map[string]auth.Subject{
		"named by an operator": edge,
		"named by itself":      {Name: "edge", Identity: auth.SelfNamed("edge", edge.PublicKey), PublicKey: edge.PublicKey},
	} {
		w.issuer.SetPeers([]auth.Subject{s, berlin})
		key := newKey(t)
		raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: userOf(s)}}, key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.issuer.Issue(within(t, patience), s, inPEM(raw))
		if err != nil {
			t.Fatal(err)
		}
		user, _ := w.whoami(t, got.CertificatePEM, key)
		can, _ := w.cluster.Kubectl(within(t, patience), "", "auth", "can-i", "get", "secrets", "--as="+user) // "no" is an error
		want := "no"
		if s == named {
			want = "yes"
		}
		if strings.TrimSpace(can) != want || user != userOf(s) {
			t.Errorf("%s: the user %s may read Secrets: %q, want %s", name, user, can, want)
		}
	}
	w.issuer.SetPeers([]auth.Subject{edge, berlin})
}

// keepsGatewaysApart: a second gateway of the cluster, with the shipped policy for its account
// and name, can get certificates for its own peers and none for the first gateway's.
func (w *world) keepsGatewaysApart(t *testing.T) {
	w.kubectl(t, "", "create", "serviceaccount", "-n", "postern", "paris")
	policy, role := shipped(t)
	second := strings.NewReplacer("name: postern-csr", "name: paris-csr", "policyName: postern-csr", "policyName: paris-csr",
		"serviceaccount:postern:postern", "serviceaccount:postern:paris", `"'cloud'"`, `"'paris'"`, "name: postern\n", "name: paris\n")
	w.kubectl(t, second.Replace(policy+"\n---\n"+role), "apply", "-f", "-")
	first := w.token
	defer func() { w.token = first }()
	w.token = w.kubectl(t, "", "create", "token", "-n", "postern", "paris")
	ask := func(user string) int {
		x := w.issuer.objects.blank(der(t, pkix.Name{CommonName: user})).CertificateSigningRequest
		x.Name = "paris-asks"
		code, _ := w.do(t, http.MethodPost, "?dryRun=All", x)
		return code
	}
	deadline := time.Now().Add(patience)
	for ask("nobody") != http.StatusForbidden || ask("postern:peer:paris:edge") != http.StatusCreated {
		if time.Now().After(deadline) {
			t.Fatal("the second gateway's policy is not in force")
		}
		<-time.After(100 * time.Millisecond)
	}
	for _, user := range []string{userOf(edge), userOf(berlin), edge.User(), "postern:peer:paris2:edge"} {
		if code := ask(user); code != http.StatusForbidden {
			t.Errorf("paris asks for %s: got %d, want 403", user, code)
		}
	}
}

// refusesEscalations acts as a gateway whose token was stolen.
func (w *world) refusesEscalations(t *testing.T) {
	make := func(name string, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		x := w.issuer.objects.blank(der(t, pkix.Name{CommonName: userOf(edge)})).CertificateSigningRequest
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
	good, evil := string(requestFor(t, userOf(edge))), string(requestFor(t, "kubernetes-admin"))
	const begin = "-----BEGIN CERTIFICATE REQUEST-----\n"
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"masters":     asks(pkix.Name{CommonName: "x", Organization: []string{"system:masters"}}),
		"peermasters": asks(pkix.Name{CommonName: userOf(edge), Organization: []string{"system:masters"}}),
		"paris":       asks(pkix.Name{CommonName: "postern:peer:paris:edge"}),
		"gatewayless": asks(pkix.Name{CommonName: edge.User()}),
		"group":       asks(pkix.Name{CommonName: userOf(edge), Organization: []string{"cluster-admins"}}),
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
	// Someone else's request, for what a peer may have.
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

// deniedByPolicy: the message of another policy of the cluster reaches the operator.
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
		_, err = w.issuer.Issue(within(t, patience), berlin, requestFor(t, userOf(berlin)))
	}
	w.wantCode(t, err, catalogue.CSRDenied)
	if err == nil || !strings.Contains(err.Error(), "berlin is not wanted") {
		t.Errorf("got %v, want the policy's words", err)
	}
	w.issuer.SetPeers([]auth.Subject{edge})
	if list := w.last(); len(list) != 0 {
		t.Errorf("after berlin was removed: %+v", list)
	}
}

// waitsForASlowSigner: an unsigned request is an error with a code, and repeating it returns the
// certificate once there is one.
func (w *world) waitsForASlowSigner(t *testing.T) {
	w.stopSigner()
	csrPEM := requestFor(t, userOf(edge))
	_, err := w.issuer.Issue(within(t, patience), edge, csrPEM)
	w.wantCode(t, err, catalogue.CSRUnsigned)
	before := w.kubectl(t, "", "get", "csr", "-o", "name")
	w.startSigner(t)
	got, err := w.issuer.Issue(within(t, patience), edge, csrPEM)
	if err != nil {
		t.Fatal(err)
	}
	if after := w.kubectl(t, "", "get", "csr", "-o", "name"); after != before || !got.Again {
		t.Errorf("it was recreated: before %q, after %q", before, after)
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
	if _, err := w.issuer.Issue(within(t, patience), edge, requestFor(t, userOf(edge))); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("after removal: %v", err)
	}
}

func (w *world) lacksRights(t *testing.T) {
	w.kubectl(t, "", "delete", "clusterrolebinding", "postern-csr")
	w.issuer.SetPeers([]auth.Subject{edge})
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err = w.issuer.Issue(within(t, patience), edge, requestFor(t, userOf(edge))); err != nil {
			break
		}
	}
	w.wantCode(t, err, catalogue.CSRForbidden)
}
