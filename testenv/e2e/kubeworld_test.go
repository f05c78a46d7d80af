//go:build linux && e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/pki"
)

// kubeWorld is a world with a real API server behind cloud.
type kubeWorld struct {
	*world
	cloud, edge *gateway
	cluster     kubetest.Cluster
	admin       *http.Client
	// sums are the hashes of the ConfigMaps' contents by name.
	sums map[string]string
}

func newKubeWorld(t *testing.T) *kubeWorld {
	t.Helper()
	w := newWorld(t)
	ca, err := pki.NewCA("cloud peers")
	if err != nil {
		t.Fatal(err)
	}
	cluster := kubetest.With(t, kube.Options{
		Dir: tempDir(t), Namespace: w.kube.Namespace(), Address: netip.MustParseAddr(kubeAddr), ClientCAs: ca.CertPEM(),
	})
	k := &kubeWorld{world: w, cluster: cluster, admin: cluster.AdminClient(), sums: map[string]string{}}
	t.Cleanup(k.admin.CloseIdleConnections)
	k.cloud = newGateway(t, w.cloud, "cloud", func(s *api.GatewaySpec) {
		pair, err := ca.Pair()
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := pair.Write(tempDir(t), "peers-ca")
		if err != nil {
			t.Fatal(err)
		}
		s.Services.APIServer = &api.APIServerService{Address: cluster.Server().String(), ServerName: kube.ServerName, CAFile: cluster.CAFile()}
		s.Services.Auth = &api.AuthService{Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: cert, KeyFile: key}}}
	}).start()
	k.edge = newGateway(t, w.edge, "edge").start()
	k.prepare(t)
	return k
}

// prepare binds edge's future user, and fills the cluster.
func (k *kubeWorld) prepare(t *testing.T) {
	t.Helper()
	ctx := within(t, 10*time.Minute)
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %s}
---
apiVersion: v1
kind: Namespace
metadata: {name: %s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [namespaces, configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: edge-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "postern:peer:edge"}]
`, bulkNamespace, watchNamespace)
	if _, err := k.cluster.Kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	names := make(chan string)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for name := range names {
				sum, err := k.createConfigMap(ctx, bulkNamespace, name, bulkSize)
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				k.sums[name] = sum
				mu.Unlock()
			}
		})
	}
	for i := range bulkCount {
		names <- fmt.Sprintf("bulk-%04d", i)
	}
	close(names)
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("made %d ConfigMaps of %d bytes in %v", bulkCount, bulkSize, time.Since(start).Round(time.Second))
}

// createConfigMap creates a ConfigMap as the administrator, with content derived from its name.
// It returns the content's hash.
func (k *kubeWorld) createConfigMap(ctx context.Context, namespace, name string, size int) (string, error) {
	var content strings.Builder
	for block := sha256.Sum256([]byte(name)); content.Len() < size; block = sha256.Sum256(block[:]) {
		content.WriteString(base64.StdEncoding.EncodeToString(block[:]))
	}
	text := content.String()[:size]
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name}, "data": map[string]string{"content": text},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		k.cluster.URL()+"/api/v1/namespaces/"+namespace+"/configmaps", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := k.admin.Do(req)
	if err != nil {
		return "", fmt.Errorf("make ConfigMap %s: %w", name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // only for the message
		return "", fmt.Errorf("make ConfigMap %s: %s: %s", name, resp.Status, b)
	}
	return contentHash(text), nil
}

func contentHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
