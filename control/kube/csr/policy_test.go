package csr

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
)

const policyFile = "../../../cmd/postern/deploy/rbac/csr-policy.yaml"

// rule is an expression of the shipped policy.
type rule struct {
	Name, Expression string
	program          cel.Program
}

// policy is the shipped policy as the API server evaluates it, without the parts that need a
// cluster.
type policy struct{ variables, validations []rule }

// perCallLimit is the API server's cost limit for one expression (k8s.io/apiserver/pkg/apis/cel).
const perCallLimit = 1000000

var shippedPolicy = sync.OnceValues(func() (*policy, error) {
	b, err := os.ReadFile(policyFile)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Spec struct{ Variables, Validations []rule }
	}
	if err := yaml.NewDecoder(bytes.NewReader(b)).Decode(&doc); err != nil {
		return nil, err
	}
	// Of Kubernetes' additions to CEL the policy only uses findAll.
	env, err := cel.NewEnv(ext.Strings(ext.StringsVersion(2)), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType),
		cel.Function("findAll", cel.MemberOverload("string_find_all", []*cel.Type{cel.StringType, cel.StringType}, cel.ListType(cel.StringType),
			cel.BinaryBinding(func(text, form ref.Val) ref.Val {
				return types.NewStringList(types.DefaultTypeAdapter, regexp.MustCompile(form.Value().(string)).FindAllString(text.Value().(string), -1))
			}))))
	if err != nil {
		return nil, err
	}
	p := &policy{doc.Spec.Variables, doc.Spec.Validations}
	for _, list := range [][]rule{p.variables, p.validations} {
		for i := range list {
			ast, issues := env.Compile(list[i].Expression)
			if issues.Err() != nil {
				return nil, issues.Err()
			}
			if list[i].program, err = env.Program(ast, cel.CostLimit(perCallLimit)); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
})

// admits returns the decision of gateway "cloud"'s policy on a request for a certificate.
func admits(t testing.TB, text []byte) bool {
	t.Helper()
	p, err := shippedPolicy()
	if err != nil {
		t.Fatal(err)
	}
	const account = "system:serviceaccount:postern:postern"
	variables := map[string]any{}
	in := map[string]any{
		"request": map[string]any{"operation": "CREATE", "userInfo": map[string]any{"username": account}},
		"object": map[string]any{"spec": map[string]any{
			"request": base64.StdEncoding.EncodeToString(text), "username": account, "signerName": "kubernetes.io/kube-apiserver-client",
			"usages": []string{"client auth"}, "expirationSeconds": 3600,
		}},
		"oldObject": nil, "variables": variables,
	}
	for _, v := range p.variables { // an error only counts where the variable is used
		if out, _, err := v.program.Eval(in); err == nil {
			variables[v.Name] = out
		}
	}
	for _, v := range p.validations {
		if out, _, err := v.program.Eval(in); err != nil || out != types.True {
			return false
		}
	}
	return true
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func der(t testing.TB, subject pkix.Name) []byte {
	t.Helper()
	out, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func inPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func requestFor(t testing.TB, user string) []byte {
	t.Helper()
	return inPEM(der(t, pkix.Name{CommonName: user}))
}

// Every possible name of a peer is admitted, with a signature of each length.
func TestPolicyAdmitsEveryPeer(t *testing.T) {
	for n := 1; n <= auth.MaxIdentityName; n++ {
		name := string("a0m9z"[n%5]) + strings.Repeat("-", max(0, n-2)) + strings.Repeat("x", min(1, n-1))
		lengths := map[int]bool{}
		for range 8 {
			request := der(t, pkix.Name{CommonName: "postern:peer:cloud:" + name})
			if lengths[len(request)] {
				continue
			}
			lengths[len(request)] = true
			if !admits(t, inPEM(request)) {
				t.Fatalf("%q is refused", name)
			}
		}
	}
	// The longest user still has the encoding that the policy expects.
	if n := len(auth.UserPrefix) + api.MaxNameLength + 1 + auth.MaxIdentityName; n >= 117 {
		t.Errorf("users have up to %d characters", n)
	}
}

func TestPolicyRefusesAllElse(t *testing.T) {
	good := der(t, pkix.Name{CommonName: "postern:peer:cloud:edge"})
	evil := inPEM(der(t, pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}))
	body := base64.StdEncoding.EncodeToString(good)
	const begin, end = "-----BEGIN CERTIFICATE REQUEST-----\n", "-----END CERTIFICATE REQUEST-----\n"
	subject := func(n pkix.Name) []byte { return inPEM(der(t, n)) }
	parts := func(list ...pkix.AttributeTypeAndValue) []byte { return subject(pkix.Name{ExtraNames: list}) }
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	organization := asn1.ObjectIdentifier{2, 5, 4, 10}
	for name, text := range map[string][]byte{
		"an administrator":               subject(pkix.Name{CommonName: "kubernetes-admin"}),
		"a controller":                   subject(pkix.Name{CommonName: "system:kube-controller-manager"}),
		"a node":                         subject(pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}),
		"a group":                        subject(pkix.Name{Organization: []string{"system:masters"}}),
		"a peer in a group":              subject(pkix.Name{CommonName: "postern:peer:cloud:edge", Organization: []string{"system:masters"}}),
		"a group behind the peer":        parts(pkix.AttributeTypeAndValue{Type: commonName, Value: "postern:peer:cloud:edge"}, pkix.AttributeTypeAndValue{Type: organization, Value: "system:masters"}),
		"a user behind the peer":         parts(pkix.AttributeTypeAndValue{Type: commonName, Value: "postern:peer:cloud:edge"}, pkix.AttributeTypeAndValue{Type: commonName, Value: "kubernetes-admin"}),
		"nobody":                         subject(pkix.Name{}),
		"no peer's name":                 subject(pkix.Name{CommonName: "postern:peer:cloud:"}),
		"a user beside peers":            subject(pkix.Name{CommonName: "postern:peerx:cloud:edge"}),
		"a user like a peer":             subject(pkix.Name{CommonName: "postern:peer:cloud;edge"}),
		"another gateway's peer":         subject(pkix.Name{CommonName: "postern:peer:paris:edge"}),
		"a gateway whose name begins so": subject(pkix.Name{CommonName: "postern:peer:cloud2:edge"}),
		"a peer without a gateway":       subject(pkix.Name{CommonName: "postern:peer:edge"}),
		"a peer called as the gateway":   subject(pkix.Name{CommonName: "postern:peer:cloud"}),
		"a peer of a peer":               subject(pkix.Name{CommonName: "postern:peer:cloud:edge:x"}),
		"a line break in the name":       subject(pkix.Name{CommonName: "postern:peer:cloud:edge\nx"}),
		"a zero behind the name":         subject(pkix.Name{CommonName: "postern:peer:cloud:edge\x00"}),
		"the probe":                      subject(pkix.Name{CommonName: probeUsers[0]}),
		"the other probe":                subject(pkix.Name{CommonName: probeUsers[1]}),
		"a name that is too long":        subject(pkix.Name{CommonName: "postern:peer:cloud:" + strings.Repeat("a", 98)}),
		"another before it":              append(bytes.Clone(evil), inPEM(good)...),
		"another behind it":              append(inPEM(good), evil...),
		"the beginning as a header":      []byte(begin + body[:60] + ": x\n\n" + strings.TrimPrefix(string(evil), begin)),
		"a broken one, then another":     []byte(begin + body[:60] + "\n!!\n" + end + string(evil)),
		"a broken one without end":       []byte(begin + body[:60] + "\n" + string(evil)),
		"a line break in front":          append([]byte("\n"), inPEM(good)...),
		"a blank in the beginning":       []byte(begin + body[:3] + " " + body[3:] + "\n" + end),
		"another kind of block":          pem.EncodeToMemory(&pem.Block{Type: "NEW CERTIFICATE REQUEST", Bytes: good}),
		"a header":                       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Headers: map[string]string{"A": "B"}, Bytes: good}),
		"nothing":                        nil,
		"no more than the header":        []byte(begin),
		"the lengths of a longer name":   inPEM(patched(good, 7+3, 1)),
		"a set of two":                   inPEM(patched(good, 7+5, 1)),
	} {
		if admits(t, text) {
			t.Errorf("%s is admitted:\n%s", name, text)
		}
	}
	if !admits(t, inPEM(good)) {
		t.Error("the good one is refused")
	}
}

// patched returns a copy with one byte increased.
func patched(b []byte, at int, by byte) []byte {
	out := bytes.Clone(b)
	out[at] += by
	return out
}

// If the policy admits a request and Go's parsers (those of the API server and the signer) can
// parse it, its subject is a peer's user.
func FuzzPolicy(f *testing.F) {
	good := requestFor(f, "postern:peer:cloud:edge")
	evil := requestFor(f, "kubernetes-admin")
	f.Add(good)
	f.Add(evil)
	f.Add(append(bytes.Clone(good), evil...))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !admits(t, text) {
			return
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return
		}
		got, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return
		}
		if !strings.HasPrefix(got.Subject.CommonName, "postern:peer:cloud:") || len(got.Subject.Names) != 1 {
			t.Errorf("admitted %q", got.Subject)
		}
	})
}

func pemOfCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
