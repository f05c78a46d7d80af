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
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/postern-dev/postern/control/api"
)

var update = flag.Bool("update", false, "write the shipped policy")

const policyFile = "../../../cmd/postern/deploy/rbac/csr-policy.yaml"

// The shipped policy is made from the rules, and nobody edits it by hand.
func TestShippedPolicyIsTheGeneratedOne(t *testing.T) {
	tmpl, err := template.ParseFiles("testdata/csr-policy.yaml.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	begins, even := expressions()
	var want bytes.Buffer
	if err := tmpl.Execute(&want, map[string]string{"Begins": begins, "Even": even}); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(policyFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what the rules make (run go test ./control/kube/csr -update)", policyFile)
	}
}

// The patterns are large: they are compiled once.
var (
	beginsAsAPeer = regexp.MustCompile(requestPattern())
	isOdd         = regexp.MustCompile(oddPattern())
)

// admits is what the policy's two expressions say of a request.
func admits(text []byte) bool {
	request := base64.StdEncoding.EncodeToString(text)
	return beginsAsAPeer.MatchString(request) && len(request) > 2*pemEdge && !isOdd.MatchString(request[pemEdge:len(request)-pemEdge])
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

// Every name that a peer can have passes, many times over: signatures differ in length.
func TestPolicyAdmitsEveryPeer(t *testing.T) {
	for n := 1; n <= api.MaxNameLength; n++ {
		for _, first := range "a0m9z" {
			name := string(first) + strings.Repeat("-", max(0, n-2)) + strings.Repeat("x", min(1, n-1))
			if err := api.CheckName(name); err != nil {
				t.Fatal(err)
			}
			for range 8 {
				if !admits(requestFor(t, "postern:peer:"+name)) {
					t.Fatalf("%q is refused", name)
				}
			}
		}
	}
}

func TestPolicyRefusesAllElse(t *testing.T) {
	good := der(t, pkix.Name{CommonName: "postern:peer:edge"})
	evil := inPEM(der(t, pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}))
	body := base64.StdEncoding.EncodeToString(good)
	const begin, end = "-----BEGIN CERTIFICATE REQUEST-----\n", "-----END CERTIFICATE REQUEST-----\n"
	subject := func(n pkix.Name) []byte { return inPEM(der(t, n)) }
	parts := func(list ...pkix.AttributeTypeAndValue) []byte { return subject(pkix.Name{ExtraNames: list}) }
	commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
	organization := asn1.ObjectIdentifier{2, 5, 4, 10}
	for name, text := range map[string][]byte{
		"an administrator":              subject(pkix.Name{CommonName: "kubernetes-admin"}),
		"a controller":                  subject(pkix.Name{CommonName: "system:kube-controller-manager"}),
		"a node":                        subject(pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}),
		"a group":                       subject(pkix.Name{Organization: []string{"system:masters"}}),
		"a peer in a group":             subject(pkix.Name{CommonName: "postern:peer:edge", Organization: []string{"system:masters"}}),
		"a group behind the peer":       parts(pkix.AttributeTypeAndValue{Type: commonName, Value: "postern:peer:edge"}, pkix.AttributeTypeAndValue{Type: organization, Value: "system:masters"}),
		"a user behind the peer":        parts(pkix.AttributeTypeAndValue{Type: commonName, Value: "postern:peer:edge"}, pkix.AttributeTypeAndValue{Type: commonName, Value: "kubernetes-admin"}),
		"nobody":                        subject(pkix.Name{}),
		"no peer's name":                subject(pkix.Name{CommonName: "postern:peer:"}),
		"a user beside peers":           subject(pkix.Name{CommonName: "postern:peerx:edge"}),
		"a user like a peer":            subject(pkix.Name{CommonName: "postern:peer;edge"}),
		"the probe":                     subject(pkix.Name{CommonName: probeUser}),
		"a name that is too long":       subject(pkix.Name{CommonName: "postern:peer:" + strings.Repeat("a", 41)}),
		"another before it":             append(bytes.Clone(evil), inPEM(good)...),
		"another behind it":             append(inPEM(good), evil...),
		"the beginning as a header":     []byte(begin + body[:60] + ": x\n\n" + strings.TrimPrefix(string(evil), begin)),
		"a broken one, then another":    []byte(begin + body[:60] + "\n!!\n" + end + string(evil)),
		"a broken one without end":      []byte(begin + body[:60] + "\n" + string(evil)),
		"a line break in front":         append([]byte("\n"), inPEM(good)...),
		"a line break in the beginning": []byte(begin + body[:3] + "\n" + body[3:] + "\n" + end),
		"a blank in the beginning":      []byte(begin + body[:3] + " " + body[3:] + "\n" + end),
		"another kind of block":         pem.EncodeToMemory(&pem.Block{Type: "NEW CERTIFICATE REQUEST", Bytes: good}),
		"a header":                      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Headers: map[string]string{"A": "B"}, Bytes: good}),
		"nothing":                       nil,
		"no more than the header":       []byte(begin),
		"the lengths of a longer name":  inPEM(patched(good, 7+3, 1)),
		"a set of two":                  inPEM(patched(good, 7+5, 1)),
	} {
		if admits(text) {
			t.Errorf("%s is admitted:\n%s", name, text)
		}
	}
	if !admits(inPEM(good)) {
		t.Error("the good one is refused")
	}
}

// patched is a copy with one byte greater.
func patched(b []byte, at int, by byte) []byte {
	out := bytes.Clone(b)
	out[at] += by
	return out
}

// Whatever the policy admits and Go's readers (which the API server and the signer use) can
// read is the request of a peer, and of nobody else.
func FuzzPolicy(f *testing.F) {
	good := requestFor(f, "postern:peer:edge")
	evil := requestFor(f, "kubernetes-admin")
	f.Add(good)
	f.Add(evil)
	f.Add(append(bytes.Clone(good), evil...))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !admits(text) {
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
		if !strings.HasPrefix(got.Subject.CommonName, "postern:peer:") || len(got.Subject.Names) != 1 {
			t.Errorf("admitted %q", got.Subject)
		}
	})
}

func pemOfCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
