//go:build linux && e2e

package e2e

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
)

// proxyAddr is the address of these tests' proxy, the only one that edge's network lets out to.
const (
	proxyAddr     = scannerAddr + ":3128"
	proxyUser     = "edge-user"
	proxyPassword = "proxy-password-x7"
	// proxiedWithin is how long two gateways may take to become peers through a proxy.
	proxiedWithin = 10 * time.Second
)

// onlyTheProxy lets only TCP to the proxy out of edge's network.
func (w *world) onlyTheProxy() {
	w.t.Helper()
	w.nat.Drop(`iifname "l0" ip daddr != `+scannerAddr, `iifname "l0" meta l4proto != tcp`, `iifname "l0" tcp dport != 3128`)
}

// TestOnlyAProxyLeadsOut: an edge becomes a peer whose network's only exit is an HTTP proxy. It
// meets cloud on a relay that it reaches by CONNECT.
func TestOnlyAProxyLeadsOut(t *testing.T) {
	for _, c := range []struct {
		program string
		turn    netlab.TURNOptions
		server  api.TURNServer
		ports   []uint16
		// env: the proxy and its account are in HTTPS_PROXY instead of the file.
		env bool
		// over is the resulting transport.
		over string
	}{
		{program: "squid", turn: netlab.TURNOptions{TLSPort: 443}, server: api.TURNServer{Address: thirdAddr + ":443", Transport: "tls"}, ports: []uint16{443}, over: "tls"},
		{program: "tinyproxy", server: api.TURNServer{Address: thirdAddr + ":3478"}, ports: []uint16{3478}, env: true, over: "tcp"},
	} {
		t.Run(c.program, func(t *testing.T) {
			w := newWorld(t)
			w.onlyTheProxy()
			w.scanner.StartProxy(netlab.ProxyOptions{
				Program: c.program, Listen: netip.MustParseAddrPort(proxyAddr), Username: proxyUser, Password: proxyPassword, Ports: c.ports,
			})
			ca, err := pki.NewCA("relay")
			if err != nil {
				t.Fatal(err)
			}
			pair, err := ca.Server(thirdAddr)
			if err != nil {
				t.Fatal(err)
			}
			dir := tempDir(t)
			if c.turn.CertFile, c.turn.KeyFile, err = pair.Write(dir, "relay"); err != nil {
				t.Fatal(err)
			}
			c.turn.Listen, c.turn.Username, c.turn.Password = []netip.Addr{netip.MustParseAddr(thirdAddr)}, turnUser, turnPassword
			w.third.StartTURN(c.turn)
			c.server.Username, c.server.PasswordFile = turnUser, writeSecret(t, dir, "turn", turnPassword)
			c.server.CAFile = writeSecret(t, dir, "relay-ca.crt", string(ca.CertPEM()))

			cluster, cloud := w.clusterBehindCloud(t)
			edge := newGateway(t, w.edge, "edge", func(s *api.GatewaySpec) {
				s.Discovery.TURNServers = []api.TURNServer{c.server}
				s.Proxy = &api.Proxy{URL: "http://" + proxyAddr, Username: proxyUser, PasswordFile: writeSecret(t, dir, "proxy", "wrong-password-x7")}
			}).start()
			edge.ownCheck(t, "PST0407", "rejects this gateway's user and password")
			if n, code, stderr := edge.netCheck(); code != 1 || n.Proxy == nil || n.Proxy.Address != proxyAddr || !strings.Contains(stderr, "does not take the user and password") {
				t.Errorf("netcheck does not show that the proxy refuses: exit code %d, %+v\n%s", code, n.Proxy, stderr)
			}
			if c.env {
				edge.stop(syscall.SIGTERM)
				edge.doc.Spec.Proxy = nil
				edge.env = []string{fmt.Sprintf("HTTPS_PROXY=http://%s:%s@%s", proxyUser, proxyPassword, proxyAddr)}
				edge.writeConfig()
				edge.start()
			} else {
				writeSecret(t, dir, "proxy", proxyPassword)
				edge.reload()
			}

			start := time.Now()
			edge.must("join", cloud.invite("--name", "edge"))
			p := edge.waitPeer("cloud", "connected, with an identity", func(p api.PeerStatus) bool {
				return p.State == api.StateConnected && p.Identity != nil && p.Path.Kind != api.PathNone
			})
			late(t, "it is a peer, with an identity,", time.Since(start), proxiedWithin)
			if p.Path.Kind != api.PathRelay {
				t.Errorf("the path is %s, want over the relay", describe(p))
			}
			n, _, stderr := edge.netCheck()
			if n.Proxy == nil || len(n.Proxy.Targets) == 0 || n.Proxy.Targets[0].Error != "" || len(n.TURNServers) != 1 || n.TURNServers[0].Transport != c.over {
				t.Errorf("netcheck has the proxy %+v and the TURN servers %+v, want %s:\n%s", n.Proxy, n.TURNServers, c.over, stderr)
			}
			file := filepath.Join(dir, "cloud.kubeconfig")
			edge.must("kubeconfig", "cloud", "-f", file)
			if out, err := w.edge.Run(within(t, patience), cluster.KubectlPath(), "--kubeconfig", file, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); err != nil || out != "postern:peer:edge" {
				t.Errorf("kubectl through the tunnel is %q, %v", out, err)
			}
			edge.neverShows(t, proxyPassword, "wrong-password-x7")
		})
	}
}

// clusterBehindCloud runs an API server behind cloud, and cloud's gateway.
func (w *world) clusterBehindCloud(t *testing.T) (kubetest.Cluster, *gateway) {
	t.Helper()
	peersCA, err := pki.NewCA("cloud peers")
	if err != nil {
		t.Fatal(err)
	}
	cluster := kubetest.With(t, kube.Options{
		Dir: tempDir(t), Namespace: w.kube.Namespace(), Address: netip.MustParseAddr(kubeAddr), ClientCAs: peersCA.CertPEM(),
	})
	signer, err := peersCA.Pair()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := signer.Write(tempDir(t), "peers-ca")
	if err != nil {
		t.Fatal(err)
	}
	return cluster, newGateway(t, w.cloud, "cloud", func(s *api.GatewaySpec) {
		s.Services.APIServer = &api.APIServerService{Address: cluster.Server().String(), ServerName: kube.ServerName, CAFile: cluster.CAFile()}
		s.Services.Auth = &api.AuthService{Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: cert, KeyFile: key}}}
	}).start()
}

// ownCheck waits until the gateway's checks of itself have a code and words.
func (g *gateway) ownCheck(t *testing.T, code, words string) {
	t.Helper()
	ctx := within(t, patience)
	eventually(ctx, t, g.name+" says "+code, func() (bool, string) {
		r := g.postern(ctx, "check")
		return strings.Contains(r.stdout, code) && strings.Contains(strings.Join(strings.Fields(r.stdout), " "), words), r.stdout + r.stderr
	})
}

// neverShows checks that the secrets are in no output and in no log.
func (g *gateway) neverShows(t *testing.T, secrets ...string) {
	t.Helper()
	bundle := filepath.Join(tempDir(t), "bundle.tar.gz")
	g.must("bundle", "-f", bundle)
	unpacked, err := netlab.Run(within(t, patience), "", "", "tar", "xzOf", bundle)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{"log": g.proc.Stderr(), "bundle": unpacked}
	for _, args := range [][]string{{"status", "-o", "json"}, {"check", "-o", "json"}, {"netcheck", "-o", "json"}, {"config", "view"}} {
		r := g.postern(within(t, patience), args...)
		shown[strings.Join(args, " ")] = r.stdout + r.stderr
	}
	for where, text := range shown {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q", where, secret)
			}
		}
	}
}

// TestOutOfBandThroughAProxy requests a peer's auth outside the tunnel from a network whose only
// exit is a proxy.
func TestOutOfBandThroughAProxy(t *testing.T) {
	t.Parallel()
	d := newDirect(t, false)
	d.onlyTheProxy()
	d.edge.env = []string{"HTTPS_PROXY=http://" + proxyAddr}
	d.give("nonsense")
	d.edge.start()
	ctx := within(t, patience)
	eventually(ctx, t, "edge blames the proxy", func() (bool, string) {
		r := d.edge.postern(ctx, "check")
		return strings.Contains(r.stdout, "PST0407") && strings.Contains(r.stdout, "auth-direct  depends on this gateway's proxy"), r.stdout + r.stderr
	})
	d.scanner.StartProxy(netlab.ProxyOptions{Program: "squid", Listen: netip.MustParseAddrPort(proxyAddr), Ports: []uint16{8443, 443, 6443, d.cluster.Server().Port()}})
	d.give(strings.TrimSpace(d.cloud.must("peer", "token", "edge")))
	d.edge.reload()
	d.edge.waitPeer("cloud", "auth and API server work", func(p api.PeerStatus) bool {
		out := p.Reachability.Outbound
		return p.Identity != nil && out.Auth.Verdict == api.OK && out.APIServer.Verdict == api.OK
	})
}
