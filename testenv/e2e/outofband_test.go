//go:build linux && e2e

package e2e

import (
	"bytes"
	"log"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"io"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// outsideWorld is a world in which edge uses cloud's auth and API server outside the tunnel.
// There is no tunnel: neither gateway knows an address of the other.
type outsideWorld struct {
	*world
	cloud, edge *gateway
	cluster     kubetest.Cluster
	cloudKey    peer.PrivateKey
	edgeKey     peer.PrivateKey
	// authorities signed auth's certificate and the API server's.
	authorities string
	token       string
}

const outsidePort = "8443"

// newDirect starts cloud, with TLS at auth or at a proxy in front of it, and prepares edge.
func newDirect(t *testing.T, behindProxy bool) *outsideWorld {
	t.Helper()
	d := &outsideWorld{world: newWorld(t)}
	peersCA, err := pki.NewCA("cloud peers")
	if err != nil {
		t.Fatal(err)
	}
	d.cluster = kubetest.With(t, kube.Options{
		Dir: tempDir(t), Namespace: d.world.cloud.Namespace(), Address: netip.MustParseAddr(cloudAddr), ClientCAs: peersCA.CertPEM(),
	})
	// Without controllers the role "view" is empty.
	d.cluster.Run(t, "", "create", "clusterrole", "reader", "--verb=get,list", "--resource=configmaps")
	d.cluster.Run(t, "", "create", "clusterrolebinding", "edge", "--clusterrole=reader", "--user=postern:peer:edge")
	outsideCA, err := pki.NewCA("cloud outside")
	if err != nil {
		t.Fatal(err)
	}
	d.cloudKey, d.edgeKey = newPrivateKey(t), newPrivateKey(t)
	dir := tempDir(t)
	clusterCA, err := os.ReadFile(d.cluster.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	d.authorities = writeSecret(t, dir, "authorities.crt", string(outsideCA.CertPEM())+string(clusterCA))
	d.token = filepath.Join(dir, "token")
	signer, err := peersCA.Pair()
	if err != nil {
		t.Fatal(err)
	}
	signerCert, signerKey, err := signer.Write(dir, "peers-ca")
	if err != nil {
		t.Fatal(err)
	}
	address := cloudAddr + ":" + outsidePort
	outside := &api.OutOfBand{Listen: ":" + outsidePort}
	if behindProxy {
		address = thirdAddr + ":443"
		d.proxy(t, outsideCA)
	} else {
		pair, err := outsideCA.Server(cloudAddr)
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := pair.Write(dir, "auth")
		if err != nil {
			t.Fatal(err)
		}
		outside.TLS = &api.TLSFile{CertFile: cert, KeyFile: key}
	}
	d.cloud = newGateway(t, d.world.cloud, "cloud", func(s *api.GatewaySpec) {
		s.PrivateKeyFile = writeSecret(t, dir, "cloud.key", d.cloudKey.Base64())
		s.Services.APIServer = &api.APIServerService{Address: d.cluster.Server().String(), ServerName: kube.ServerName, CAFile: d.cluster.CAFile()}
		s.Services.Auth = &api.AuthService{OutOfBand: outside, Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: signerCert, KeyFile: signerKey}}}
		s.Peers = []api.Peer{{Name: "edge", PublicKey: d.edgeKey.Public().String(), Allow: []string{"auth", "apiServer"}}}
	}).start()
	d.edge = newGateway(t, d.world.edge, "edge", func(s *api.GatewaySpec) {
		s.PrivateKeyFile = writeSecret(t, dir, "edge.key", d.edgeKey.Base64())
		s.Peers = []api.Peer{{Name: "cloud", PublicKey: d.cloudKey.Public().String(), Mode: api.ModeOutOfBand, OutOfBand: &api.PeerOutOfBand{
			AuthURL: "https://" + address, APIServerURL: d.cluster.URL(), CAFile: d.authorities, TokenFile: d.token,
		}}}
	})
	return d
}

func newPrivateKey(t *testing.T) peer.PrivateKey {
	t.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func writeSecret(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// proxy is like an Ingress: it terminates TLS at third, and forwards to cloud without TLS.
func (d *outsideWorld) proxy(t *testing.T, ca *pki.CA) {
	t.Helper()
	pair, err := ca.Server(thirdAddr)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := pair.Write(tempDir(t), "ingress")
	if err != nil {
		t.Fatal(err)
	}
	file, err := auth.LoadCertificate(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := d.third.Listen(within(t, patience), netip.MustParseAddrPort(thirdAddr+":443"))
	if err != nil {
		t.Fatal(err)
	}
	backend := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: cloudAddr + ":" + outsidePort})
	backend.Transport = &http.Transport{DialContext: d.third.DialContext}
	server := &http.Server{Handler: backend, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(file.Listen(ln)) }()
	t.Cleanup(func() { server.Close(); <-done })
}

// give puts a token where edge reads it.
func (d *outsideWorld) give(token string) {
	d.t.Helper()
	if err := os.WriteFile(d.token, []byte(token+"\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func TestOutOfBand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		behind bool
	}{{"direct", false}, {"behind what ends TLS", true}} {
		t.Run(c.name, func(t *testing.T) {
			d := newDirect(t, c.behind)
			d.give("nonsense")
			d.edge.start()
			d.edge.says(t, "PST0222", "does not accept the token")

			tokens, err := auth.NewDirectTokens(d.cloudKey)
			if err != nil {
				t.Fatal(err)
			}
			old, _, err := tokens.Make(d.edgeKey.Public(), time.Now().Add(-2*time.Hour), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			d.give(string(old))
			d.edge.reload()
			d.edge.says(t, "PST0222", "valid until")

			good := strings.TrimSpace(d.cloud.must("peer", "token", "edge"))
			d.give(good)
			d.edge.reload()
			p := d.edge.waitPeer("cloud", "an identity from outside the tunnel", func(p api.PeerStatus) bool { return p.Identity != nil })
			if p.Mode != api.ModeOutOfBand || p.Path.Kind != api.PathNone {
				t.Errorf("mode %s, path %s: want out-of-band and no tunnel", p.Mode, p.Path.Kind)
			}
			d.edge.waitPeer("cloud", "auth and API server work", func(p api.PeerStatus) bool {
				out := p.Reachability.Outbound
				return out.Auth.Verdict == api.OK && out.Auth.Via == "direct" && out.APIServer.Verdict == api.OK && out.APIServer.Via == "direct"
			})
			d.kubectl(t)
			d.keepsSecrets(t, good, string(old))

			d.cloud.doc.Spec.Peers = nil
			d.cloud.writeConfig()
			d.cloud.reload()
			d.edge.says(t, "PST0222", "does not accept the token")
		})
	}
}

// says waits until edge's check has a verdict with a code and words.
func (g *gateway) says(t *testing.T, code, words string) {
	t.Helper()
	ctx := within(t, patience)
	eventually(ctx, t, g.name+" says "+code, func() (bool, string) {
		r := g.postern(ctx, "check", "cloud")
		return strings.Contains(r.stdout, code) && strings.Contains(r.stdout, words), r.stdout + r.stderr
	})
}

// kubectl uses cloud's API server as its users do, from edge.
func (d *outsideWorld) kubectl(t *testing.T) {
	file := filepath.Join(tempDir(t), "cloud.kubeconfig")
	d.edge.must("kubeconfig", "cloud", "-f", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("server: "+d.cluster.URL())) {
		t.Errorf("the kubeconfig leads elsewhere than to %s:\n%s", d.cluster.URL(), text)
	}
	kubectl := func(args ...string) (string, error) {
		return d.world.edge.Run(within(t, patience), append([]string{d.cluster.KubectlPath(), "--kubeconfig", file}, args...)...)
	}
	if out, err := kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); err != nil || out != "postern:peer:edge" {
		t.Errorf("kubectl is %q, %v; want postern:peer:edge", out, err)
	}
	if out, err := kubectl("get", "configmaps", "-A"); err != nil {
		t.Errorf("kubectl get configmaps: %v\n%s", err, out)
	}
	if out, err := kubectl("get", "secrets", "-A"); err == nil {
		t.Errorf("secrets are given: %s", out)
	}
}

// keepsSecrets checks that no token is in either log.
func (d *outsideWorld) keepsSecrets(t *testing.T, tokens ...string) {
	for _, g := range []*gateway{d.cloud, d.edge} {
		for _, token := range tokens {
			if strings.Contains(g.proc.Stderr()+g.proc.Stdout(), token) {
				t.Errorf("a token is in the log of %s", g.name)
			}
		}
	}
}
