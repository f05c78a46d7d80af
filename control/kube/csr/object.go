package csr

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/kube"
)

const (
	// The labels of our objects. Requests have no namespace, so the gateway's namespace is one of
	// the labels: gateways with the same name in two namespaces are different.
	labelPeer      = "postern.dev/peer"
	labelGateway   = "postern.dev/gateway"
	labelNamespace = "postern.dev/namespace"
	// annotationKey is the peer's public key in base64, which a label cannot contain.
	annotationKey = "postern.dev/public-key"
	// namePrefix is the prefix of every object's name.
	namePrefix = "postern-"

	resource = "certificatesigningrequests"
	// hashBytes is the length of the hash in names, which distinguishes requests.
	hashBytes = 10
	// pageSize is the size of a list's pages.
	pageSize = 500
)

// object is a CertificateSigningRequest.
type object struct {
	*certificatesv1.CertificateSigningRequest
}

// objects are the requests of one gateway.
type objects struct {
	client             rest.Interface
	gateway, namespace string
	seconds            int32
}

func newObjects(c *kube.Cluster, o Options) (objects, error) {
	client, err := c.Group(certificatesv1.SchemeGroupVersion,
		&certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{})
	if err != nil {
		return objects{}, err
	}
	return objects{client: client, gateway: o.Gateway, namespace: c.Namespace(), seconds: int32(math.Ceil(o.TTL.Seconds()))}, nil
}

// wanted returns the object for a request.
func (o objects) wanted(s auth.Subject, request *x509.CertificateRequest) object {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n", o.namespace, o.gateway, s.IdentityName(), s.PublicKey)
	h.Write(request.RawSubjectPublicKeyInfo)
	x := o.blank(request.Raw)
	x.Name = namePrefix + s.Name + "-" + hex.EncodeToString(h.Sum(nil)[:hashBytes])
	x.Labels = map[string]string{labelPeer: s.Name, labelGateway: o.gateway, labelNamespace: o.namespace}
	x.Annotations = map[string]string{annotationKey: s.PublicKey.String()}
	return x
}

// user returns the user that a request has to be for: UserPrefix GATEWAY:IDENTITY.
func (o objects) user(s auth.Subject) string {
	return auth.UserPrefix + o.gateway + ":" + s.IdentityName()
}

// blank returns an object for a request. The request is encoded again, without anything else in
// the peer's text.
func (o objects) blank(der []byte) object {
	seconds := o.seconds
	return object{&certificatesv1.CertificateSigningRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			ExpirationSeconds: &seconds,
		},
	}}
}

func (o objects) ours(x object) bool {
	return x.Labels[labelGateway] == o.gateway && x.Labels[labelNamespace] == o.namespace && x.Labels[labelPeer] != ""
}

// same reports whether two objects request the same.
func (x object) same(y object) bool {
	a, b := x.Spec, y.Spec
	return bytes.Equal(a.Request, b.Request) && a.SignerName == b.SignerName && slices.Equal(a.Usages, b.Usages) &&
		a.ExpirationSeconds != nil && b.ExpirationSeconds != nil && *a.ExpirationSeconds == *b.ExpirationSeconds
}

func (x object) age() time.Duration { return time.Since(x.CreationTimestamp.Time) }

// state is the state of an object.
type state int

const (
	statePending state = iota // to be approved
	stateApproved
	stateSigned
	stateDenied
	stateFailed
)

// state returns the state, with the message of a refusal.
func (x object) state() (state, string) {
	s := statePending
	for _, c := range x.Status.Conditions {
		if c.Status == corev1.ConditionFalse || c.Status == corev1.ConditionUnknown {
			continue
		}
		why := c.Reason
		if c.Message != "" {
			why += ": " + c.Message
		}
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return stateDenied, why
		case certificatesv1.CertificateFailed:
			return stateFailed, why
		case certificatesv1.CertificateApproved:
			s = stateApproved
		}
	}
	if s == stateApproved && len(x.Status.Certificate) > 0 {
		s = stateSigned
	}
	return s, ""
}

// errForeign: an object has the required name, and is not ours.
var errForeign = errors.New("it is not this gateway's")

// ensure returns the object of a request, and creates it if necessary. An object of an earlier
// configuration, with different contents, is replaced.
func (o objects) ensure(ctx context.Context, want object) (have *object, created bool, err error) {
	got := object{&certificatesv1.CertificateSigningRequest{}}
	err = o.do(ctx, o.client.Get().Resource(resource).Name(want.Name), got.CertificateSigningRequest)
	switch {
	case apierrors.IsNotFound(err):
		err = o.do(ctx, o.client.Post().Resource(resource).Body(want.CertificateSigningRequest), got.CertificateSigningRequest)
		return &got, err == nil, err
	case err != nil:
		return nil, false, err
	case !o.ours(got):
		return nil, false, errForeign
	case !got.same(want):
		return nil, false, errors.Join(errReplaced, o.delete(ctx, &got))
	}
	return &got, false, nil
}

// errReplaced: the object was in the way, and is recreated.
var errReplaced = errors.New("an object that asks for something else is deleted")

// approve approves exactly the version that was seen: the API server refuses if the object has
// changed.
func (o objects) approve(ctx context.Context, x *object) error {
	next := x.DeepCopy()
	next.TypeMeta = metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"}
	now := metav1.Now()
	next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "PosternPeer",
		Message: "peer " + x.Labels[labelPeer] + " of gateway " + o.gateway, LastUpdateTime: now, LastTransitionTime: now,
	})
	return o.do(ctx, o.client.Put().Resource(resource).Name(x.Name).SubResource("approval").Body(next), &certificatesv1.CertificateSigningRequest{})
}

// delete deletes exactly the object that was seen. A missing one is no error.
func (o objects) delete(ctx context.Context, x *object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := o.client.Delete().Resource(resource).Name(x.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &x.UID}}).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// list returns the objects of this gateway.
func (o objects) list(ctx context.Context) ([]object, error) {
	var out []object
	next := ""
	for {
		var page certificatesv1.CertificateSigningRequestList
		err := o.do(ctx, o.client.Get().Resource(resource).
			Param("labelSelector", labelGateway+"="+o.gateway+","+labelNamespace+"="+o.namespace+","+labelPeer).
			Param("limit", fmt.Sprint(pageSize)).Param("continue", next), &page)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if x := (object{&page.Items[i]}); o.ours(x) {
				out = append(out, x)
			}
		}
		if next = page.Continue; next == "" {
			return out, nil
		}
	}
}

// do sends one request, with a timeout.
func (objects) do(ctx context.Context, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return r.Do(ctx).Into(into)
}
