//go:build linux && e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// fleetSize is how many gateways become peers of cloud at once, only by objects.
	fleetSize = 20
	// fleetWithin is how long that may take until both sides say that all are connected.
	fleetWithin = time.Minute
	// fleetLabel is the label of their Peers.
	fleetLabel = "fleet=lab"
	// fleetPort is the UDP port of the first gateway, fleetHTTP that of its metrics and fleetAPI
	// that of its listener for cloud's API server. The other gateways' ports follow.
	fleetPort, fleetHTTP, fleetAPI = 52000, 9600, 7500
)

// fleetGateway is a gateway on a host without a cluster, which has cloud in its file.
type fleetGateway struct {
	*gateway
	key   peer.PrivateKey
	psk   string // the file with the preshared key for cloud; only the first has one
	admin *admin.Client
	api   netip.AddrPort
}

// newFleet writes configurations without starting the gateways.
func newFleet(t *testing.T, host *netlab.Host, hub string) []*fleetGateway {
	t.Helper()
	var all []*fleetGateway
	for i := range fleetSize {
		dir, port := tempDir(t), uint16(fleetPort+i)
		f := &fleetGateway{key: newPrivateKey(t), api: netip.MustParseAddrPort(fmt.Sprint("127.0.0.1:", fleetAPI+i))}
		entry := api.Peer{Name: "cloud", PublicKey: hub, Endpoints: []string{fmt.Sprintf("%s:%d", cloudNode, cloudNodePort)},
			Local: &api.PeerLocal{APIServer: f.api.String()}}
		if i == 0 {
			f.psk = writeSecret(t, dir, "psk", newPresharedKey(t))
			entry.PresharedKeyFile = f.psk
		}
		f.gateway = newGateway(t, host, fmt.Sprintf("fleet-%02d", i), func(s *api.GatewaySpec) {
			s.PrivateKeyFile = writeSecret(t, dir, "key", f.key.Base64())
			s.Listen.Port = &port
			s.HTTP.Address = fmt.Sprint("127.0.0.1:", fleetHTTP+i)
			s.Peers = []api.Peer{entry}
		})
		f.admin = admin.NewClient(f.socket())
		t.Cleanup(f.admin.Close)
		all = append(all, f)
	}
	return all
}

func newPresharedKey(t *testing.T) string {
	t.Helper()
	k, err := peer.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.Base64()
}

// fleetManifest returns the Peers of all, and the Secret with the first one's preshared key.
func fleetManifest(all []*fleetGateway, secret, psk string) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "apiVersion: v1\nkind: Secret\nmetadata: {name: %s, labels: {postern.dev/use: peer, fleet: lab}}\ndata: {psk: %s}\n",
		secret, base64.StdEncoding.EncodeToString([]byte(psk)))
	for i, f := range all {
		ref := ""
		if i == 0 {
			ref = fmt.Sprintf(", presharedKeySecretRef: {name: %s, key: psk}", secret)
		}
		fmt.Fprintf(text, "---\napiVersion: postern.dev/v1alpha1\nkind: Peer\nmetadata: {name: %s, labels: {fleet: lab}}\nspec: {publicKey: %q, allow: [auth, apiServer]%s}\n",
			f.name, f.key.Public(), ref)
	}
	return text.String()
}

// testFleet makes 20 gateways peers of cloud by manifests, without a ticket. As with a
// repository, all are applied at once, applied again, changed, and deleted.
func testFleet(t *testing.T, c *clusters) {
	cloud := c.cloud
	var hub api.Status
	out, err := cloud.postern("status", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &hub); err != nil {
		t.Fatal(err)
	}
	all := newFleet(t, c.fleet, hub.Gateway.PublicKey)
	psk := newPresharedKey(t)
	all[0].give(t, psk)
	manifest := fleetManifest(all, "fleet-psk", psk)
	onTime(t, func(late lateness) {
		cloud.kubectl("delete", "peers", "-n", gatewayNamespace, "-l", fleetLabel)
		for _, f := range all {
			if f.proc != nil {
				f.stop(syscall.SIGTERM)
			}
			f.launch()
		}
		start := time.Now()
		cloud.apply(manifest, "apply", "-n", gatewayNamespace, "-f", "-")
		cloud.waitFleet(all)
		took := time.Since(start)
		t.Logf("%d Peers: all are connected by both sides %v after kubectl apply began", fleetSize, took.Round(100*time.Millisecond))
		late("until all gateways were connected", took, fleetWithin)
	})
	watch := all[0].watch(t, cloud)
	watch.sees(cloud, "before")
	cloud.applyFleetAgain(all, manifest)
	watch.sees(cloud, "after-apply")

	// Another preshared key, by another Secret and the other side's file.
	next := newPresharedKey(t)
	all[0].give(t, next)
	if err := all[0].proc.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	cloud.apply(fleetManifest(all, "fleet-psk-2", next), "apply", "-n", gatewayNamespace, "-f", "-")
	watch.sees(cloud, "after-psk")
	watch.end()
	// The next handshake uses the new key.
	all[0].stop(syscall.SIGKILL)
	all[0].launch()
	cloud.waitFleet(all[:1])
	watch = all[0].watch(t, cloud)
	watch.sees(cloud, "after-restart")

	cloud.revokeFleet(all, watch)
}

// give writes the preshared key for cloud.
func (f *fleetGateway) give(t *testing.T, psk string) {
	writeSecret(t, filepath.Dir(f.psk), filepath.Base(f.psk), psk)
}

// cloudPeer returns a gateway's status of cloud.
func (f *fleetGateway) cloudPeer() (api.PeerStatus, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	s, err := f.admin.Status(ctx)
	if err != nil {
		return api.PeerStatus{}, err
	}
	if len(s.Peers) != 1 {
		return api.PeerStatus{}, fmt.Errorf("%s has %d peers, want cloud alone", f.name, len(s.Peers))
	}
	return s.Peers[0], nil
}

// waitFleet waits until both sides say that they are connected and the granted services work.
func (c *cluster) waitFleet(all []*fleetGateway) {
	c.t.Helper()
	wanted := map[string]*fleetGateway{}
	for _, f := range all {
		wanted[f.name] = f
	}
	err := c.WaitFor(within(c.t, patience), ownObjects("peers")+"?labelSelector=fleet%3Dlab", func(b []byte) bool {
		var p peerObject
		if json.Unmarshal(b, &p) == nil && p.Status.State == "connected" {
			delete(wanted, p.Metadata.Name)
		}
		return len(wanted) == 0
	})
	if err != nil {
		c.t.Fatalf("%d Peers are not connected: %v", len(wanted), err)
	}
	for _, f := range all {
		eventually(within(c.t, patience), c.t, f.name+" is connected to cloud", func() (bool, string) {
			p, err := f.cloudPeer()
			return err == nil && p.State == api.StateConnected, fmt.Sprintf("%+v, %v", p, err)
		})
	}
}

// applyFleetAgain applies the same manifest: no object is written, and all stay connected.
func (c *cluster) applyFleetAgain(all []*fleetGateway, manifest string) {
	c.t.Helper()
	identities := func() string {
		return c.kubectl("get", "peers", "-n", gatewayNamespace, "-l", fleetLabel, "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.generation} {.status.observedGeneration}{\"\\n\"}{end}")
	}
	had := identities()
	out := c.apply(manifest, "apply", "-n", gatewayNamespace, "-f", "-")
	if got := strings.Count(out, " unchanged"); got != fleetSize+1 {
		c.t.Errorf("applied again, %d of %d objects are unchanged:\n%s", got, fleetSize+1, out)
	}
	if got := identities(); got != had || strings.Count(got, "\n") != fleetSize-1 {
		c.t.Errorf("applied again, the Peers are\n%s\nand were\n%s", got, had)
	}
	for _, f := range all {
		if p, err := f.cloudPeer(); err != nil || p.State != api.StateConnected {
			c.t.Errorf("applied again, cloud is %s at %s: %v; want it connected", p.State, f.name, err)
		}
	}
}

// revokeFleet deletes all Peers. Their connections end, nothing of them is left here, and each
// other side says that cloud does not answer.
func (c *cluster) revokeFleet(all []*fleetGateway, flow *fleetWatch) {
	c.t.Helper()
	t, start := c.t, time.Now()
	c.kubectl("delete", "peers", "-n", gatewayNamespace, "-l", fleetLabel, "--timeout="+patience.String())
	flow.ends()
	t.Logf("what flowed has ended %v after the Peers were deleted", time.Since(start).Round(100*time.Millisecond))
	eventually(within(t, patience), t, "cloud has forgotten the fleet", func() (bool, string) {
		out, err := c.postern("peer", "list")
		return err == nil && !strings.Contains(out, "fleet-"), fmt.Sprint(out, err)
	})
	eventually(within(t, patience), t, "nothing of the fleet is left at cloud", func() (bool, string) {
		left := c.kubectl("get", "services,secrets,networkpolicies", "-n", gatewayNamespace, "-o", "name", "-l", "postern.dev/peer") + " " + c.accountUIDs()
		return !strings.Contains(left, "fleet-"), left
	})
	for _, f := range all {
		eventually(within(t, 6*time.Minute), t, f.name+" says that cloud does not answer", func() (bool, string) {
			p, err := f.cloudPeer()
			return err == nil && p.State != api.StateConnected && p.Reachability.Outbound.Gateway.Verdict == api.Error &&
				p.Reachability.Outbound.Gateway.Fix != "", fmt.Sprintf("%+v, %v", p, err)
		})
	}
	t.Logf("all of the fleet know that they are out %v after the Peers were deleted", time.Since(start).Round(100*time.Millisecond))
	c.kubectl("delete", "secrets", "-n", gatewayNamespace, "-l", fleetLabel)
	for _, f := range all {
		f.stop(syscall.SIGTERM)
	}
}

// fleetWatch is a watch of the tenant's ConfigMaps in cloud through a gateway's tunnel.
type fleetWatch struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
	idle  func()
}

// watch begins a watch with the identity that cloud has issued.
func (f *fleetGateway) watch(t *testing.T, cloud *cluster) *fleetWatch {
	t.Helper()
	transport := cloud.anonymous().(*http.Transport)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return f.host.DialContext(ctx, "tcp", f.api.String())
	}
	w := &fleetWatch{t: t, idle: transport.CloseIdleConnections}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	eventually(within(t, patience), t, f.name+" watches", func() (bool, string) {
		credential, err := f.admin.Credential(ctx, "cloud")
		if err != nil {
			return false, err.Error()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cloud/api/v1/namespaces/"+tenant+"/configmaps?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+credential.Token)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return false, err.Error()
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return false, resp.Status
		}
		w.body, w.lines = resp.Body, bufio.NewScanner(resp.Body)
		w.lines.Buffer(nil, 1<<20)
		return true, ""
	})
	t.Cleanup(w.end)
	return w
}

// sees creates a ConfigMap and waits until the watch reports it.
func (w *fleetWatch) sees(c *cluster, name string) {
	w.t.Helper()
	c.kubectl("create", "configmap", "-n", tenant, "fleet-"+name)
	deadline := time.AfterFunc(patience, w.end)
	defer deadline.Stop()
	for w.lines.Scan() {
		if strings.Contains(w.lines.Text(), `"name":"fleet-`+name+`"`) {
			return
		}
	}
	w.t.Fatalf("the watch has ended before it told of %s: %v", name, w.lines.Err())
}

// ends waits until the other side has ended the watch.
func (w *fleetWatch) ends() {
	w.t.Helper()
	deadline := time.AfterFunc(patience, w.end)
	for w.lines.Scan() {
	}
	if !deadline.Stop() {
		w.t.Error("a connection of a deleted Peer goes on")
	}
}

func (w *fleetWatch) end() {
	_ = w.body.Close()
	w.idle()
}
