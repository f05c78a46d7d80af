package csr

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/catalogue"
)

// guardFor is how long a successful test of the policy is valid.
const guardFor = 10 * time.Minute

// probeUsers are users for whom nothing may be signed, and who do not exist: an arbitrary user,
// and a peer of another gateway.
var probeUsers = []string{"postern-preflight", auth.UserPrefix + "postern-preflight:nobody"}

// guard tests whether something prevents this gateway's account from getting certificates for
// anyone but its peers: our policy, or another one in the cluster. It requests, with dry run,
// what must be refused.
type guard struct {
	objects objects

	mu   sync.Mutex
	good time.Time // when it was last found to be enforced
}

func (g *guard) check(ctx context.Context, now time.Time) error {
	g.mu.Lock()
	fresh := !g.good.IsZero() && now.Sub(g.good) < guardFor && !now.Before(g.good)
	g.mu.Unlock()
	if fresh {
		return nil
	}
	for _, user := range probeUsers {
		if err := g.refused(ctx, user); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.good = now
	return nil
}

// refused returns an error unless a policy refuses a request for the user.
func (g *guard) refused(ctx context.Context, user string) error {
	x, err := g.probe(user)
	if err != nil {
		return err
	}
	err = g.objects.do(ctx, g.objects.client.Post().Resource(resource).Param("dryRun", metav1.DryRunAll).Body(x.CertificateSigningRequest),
		&certificatesv1.CertificateSigningRequest{})
	switch {
	case err == nil:
		return &problem{code: catalogue.CSRUnguarded}
	case lacksRight(err):
		return missingRight(err)
	case !refusedByPolicy(err):
		return fmt.Errorf("find out whether a policy guards certificate requests: %w", err)
	}
	return nil
}

// probe returns a request that is like ours except for the user.
func (g *guard) probe(user string) (object, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return object{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}}, key)
	if err != nil {
		return object{}, fmt.Errorf("make a request: %w", err)
	}
	x := g.objects.blank(der)
	x.Name = probeUsers[0]
	return x, nil
}
