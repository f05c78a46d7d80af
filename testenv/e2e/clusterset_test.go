//go:build linux && e2e

package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// importedWithin is how long an export may take to be usable elsewhere, withdrawnWithin how
	// long until it is no longer usable.
	importedWithin  = 10 * time.Second
	withdrawnWithin = 5 * time.Second
	// overWithin is how long a service may be unusable after the importing gateway's active pod
	// ends, until another replica serves it.
	overWithin = 10 * time.Second
	// clientPatience is how long a client waits for an answer before it asks again.
	clientPatience = 2 * time.Second
)

// clusterset is a set of clusters that export services to each other. All have the same ranges of
// pods and Services, and CoreDNS. The operator has an address in both networks.
//
//	edge 192.168.7.10 ─┬─ 192.168.7.1 nat 198.51.100.20 ── wan ─┬─ 198.51.100.10 cloud
//	                   │                                        ├─ 198.51.100.30 branch
//	                   │                                        ├─ 198.51.100.40 relay
//	                   └──────────────── operator ──────────────┘
type clusterset struct {
	edge, cloud, branch *cluster
	all                 []*cluster // the existing ones; each joins those after it
	wan                 *netlab.Network
	nat                 *netlab.NAT
	operator            *netlab.Host
	lab                 *netlab.Lab
}

const setRelay = "198.51.100.40"

// newClusterset starts edge and cloud with further images, with gateways that may export and
// import everywhere, and peers them.
func newClusterset(t *testing.T, further ...string) *clusterset {
	t.Helper()
	s := startClusterset(t, netip.Prefix{}, further, "edge", "cloud")
	s.install("mcs.enabled=true", "mcs.allNamespaces=true")
	s.peer()
	return s
}

// startClusterset starts clusters with the given names and further images. All have the same range of
// pods; the zero value is the default.
func startClusterset(t *testing.T, pods netip.Prefix, further []string, names ...string) *clusterset {
	t.Helper()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	s := &clusterset{wan: wan, nat: lab.NAT("nat", netlab.NATOptions{Kind: netlab.PortRestricted,
		WAN: wan, WANAddr: netip.MustParseAddr(cloudNATAddr), LAN: lan, LANAddr: netip.MustParseAddr(edgeGateway)}),
		operator: lab.Host("operator"), lab: lab}
	s.operator.Attach("eth0", wan, netip.MustParseAddr("198.51.100.50"))
	s.operator.Attach("eth1", lan, netip.MustParseAddr("192.168.7.50"))
	relay := lab.Host("relay")
	relay.Attach("eth0", wan, netip.MustParseAddr(setRelay))
	relay.StartTURN(netlab.TURNOptions{Listen: []netip.Addr{netip.MustParseAddr(setRelay)}, Username: turnUser, Password: turnPassword, DeniedPeers: netlab.PrivateRanges()})

	ctx := within(t, 15*time.Minute)
	helm, err := kube.Helm(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	dns, err := kube.CoreDNS(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Binaries(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	starting := map[string]*cluster{}
	for _, place := range []struct {
		one                 **cluster
		name, addr, gateway string
		network             *netlab.Network
	}{{&s.edge, "edge", edgeNode, edgeGateway, lan}, {&s.branch, "branch", branchNode, cloudNATAddr, wan}, {&s.cloud, "cloud", cloudNode, cloudNATAddr, wan}} {
		if !slices.Contains(names, place.name) {
			continue
		}
		node := lab.Host(place.name)
		node.Attach("eth0", place.network, netip.MustParseAddr(place.addr))
		node.DefaultRoute(netip.MustParseAddr(place.gateway))
		*place.one = &cluster{t: t, name: place.name, node: node, helm: helm, dns: dns, pods: pods}
		starting[place.addr], s.all = *place.one, append(s.all, *place.one)
	}
	startClusters(ctx, t, append(imageArchives(ctx, t), further...), starting)
	for _, one := range s.all {
		t.Cleanup(one.showLogOfFailure)
		for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
			one.apply(string(text), "apply", "--server-side", "-f", "-")
		}
		one.restricted(gatewayNamespace)
		one.kubectl("create", "secret", "generic", "relay", "-n", gatewayNamespace, "--from-literal=password="+turnPassword)
	}
	return s
}

// install installs the gateways with values, or changes the values.
func (s *clusterset) install(values ...string) {
	for _, one := range s.all {
		own := []string{"service.type=NodePort", fmt.Sprintf("service.nodePort=%d", cloudNodePort)}
		switch one {
		case s.edge:
			own = []string{"service.type=ClusterIP"}
		case s.cloud:
			own = append(own, "replicas=2")
		}
		one.upgrade(release, gatewayNamespace, slices.Concat(own, []string{"secretMounts[0].name=relay", "secretMounts[0].secretName=relay",
			"discovery.turnServers[0].address=" + setRelay + ":3478", "discovery.turnServers[0].username=" + turnUser,
			"discovery.turnServers[0].passwordFile=/etc/postern-secrets/relay/password"}, values)...)
	}
}

// peer peers each cluster with each other one, and makes them exchange all exports.
func (s *clusterset) peer() {
	for i, one := range s.all {
		for _, other := range s.all[i+1:] {
			one.join(other.name, other.invite(one.name, "name: "+one.name), "allow: [auth]")
		}
	}
	for _, one := range s.all {
		for _, other := range s.others(one) {
			one.waitPeer(other.name, "connected", func(p peerObject) bool { return p.Status.State == "connected" })
			one.kubectl("patch", "peer", "-n", gatewayNamespace, other.name, "--type=merge", "-p", `{"spec":{"services":{"export":["*"],"import":["*"]}}}`)
		}
	}
}

// others returns all but one.
func (s *clusterset) others(one *cluster) []*cluster {
	return slices.DeleteFunc(slices.Clone(s.all), func(c *cluster) bool { return c == one })
}

// cutDirect leaves the clusters only the relay, and waits until edge uses it. If it is edge's own
// relay, cloud sees its node's address instead: traffic to a NodePort comes from there.
func (s *clusterset) cutDirect(t *testing.T) {
	t.Helper()
	s.wan.Drop(fmt.Sprintf("ip protocol udp ip saddr %s ip daddr %s", cloudNATAddr, cloudNode), fmt.Sprintf("ip protocol udp ip saddr %s ip daddr %s", cloudNode, cloudNATAddr))
	s.edge.waitPeer(s.cloud.name, "relayed", func(p peerObject) bool { return p.Status.State == "connected" && p.Status.Path.Kind == api.PathRelay })
	s.cloud.waitPeer(s.edge.name, "connected", func(p peerObject) bool { return p.Status.State == "connected" })
}

// held opens an idle connection through an import, from a pod of a cluster. It prints when it is
// open, and how it ended.
func (c *cluster) held(t *testing.T, name string) *netlab.Process {
	t.Helper()
	p := c.node.Start(netlab.Command{Args: []string{c.KubectlPath(), "--kubeconfig", c.Kubeconfig(),
		"exec", "-n", "shop", "server", "--", "/bin/testserver", "hold", name + ".shop.svc.clusterset.local:80"}})
	if _, err := p.WaitStdout(within(t, patience), func(out string) bool { return strings.Contains(out, "open") }); err != nil {
		t.Fatal(err)
	}
	return p
}

// killGateway kills the active gateway's process.
func (c *cluster) killGateway() {
	c.t.Helper()
	pid, _ := c.process(gatewayNamespace, c.activePod(), "/postern")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
}

// shop is a service of two pods, and its export.
const shop = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: each
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: server
        image: ` + image.TestServerName + `
        imagePullPolicy: Never
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: echo, port: 9000, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: each}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: each}
`

// TestServicesAcrossClusters exports a service in the cluster behind the NAT. It is used on a
// machine without a cluster, and in the other cluster by its clusterset name, from a pod, while
// the gateway there switches to another replica, and until the export is withdrawn.
func TestServicesAcrossClusters(t *testing.T) {
	s := newClusterset(t)
	for _, one := range s.all {
		one.restricted("shop")
	}
	s.cloud.run("shop", "server", tenantServer)
	asking := func(limit time.Duration, args ...string) (string, error) {
		return s.cloud.Kubectl(within(t, limit), "", append([]string{"exec", "-n", "shop", "server", "--", "/bin/testserver"}, args...)...)
	}
	ask := func(args ...string) (string, error) { return asking(patience, args...) }
	s.edge.apply(shop, "apply", "-n", "shop", "-f", "-")
	s.edge.kubectl("rollout", "status", "-n", "shop", "statefulset/web", "--timeout="+patience.String())
	begin := time.Now()
	var first time.Duration
	answers := map[string]bool{}
	for len(answers) < 2 {
		out, err := asking(slow()*clientPatience, "get", "http://web.shop.svc.clusterset.local/")
		if err == nil {
			answers[out] = true
			first = min(cmp.Or(first, time.Hour), time.Since(begin))
		}
		if time.Since(begin) > patience {
			t.Fatalf("the service is not used whole: %v, %v", answers, err)
		}
	}
	t.Logf("both of its pods are used %v after they were ready", time.Since(begin).Round(100*time.Millisecond))
	for out := range answers {
		if !strings.Contains(out, "web-") {
			t.Errorf("somebody else answered: %s", out)
		}
	}
	late(t, "the service is used", first, importedWithin)
	if out, err := ask("udp", "web.shop.svc.clusterset.local:9000", "hello"); err != nil || !strings.Contains(out, "hello") {
		t.Errorf("by UDP: %q, %v", out, err)
	}
	for _, pod := range []string{"web-0", "web-1"} {
		if out, err := ask("get", "http://"+pod+".edge.each.shop.svc.clusterset.local:8080/"); err != nil || !strings.Contains(out, pod) {
			t.Errorf("%s alone: got %q, %v", pod, out, err)
		}
	}

	s.onMachine(t)

	usedAgain := func(what string, begun time.Time) time.Duration {
		t.Helper()
		eventually(within(t, patience), t, what, func() (bool, string) {
			out, err := asking(slow()*clientPatience, "get", "http://web.shop.svc.clusterset.local/")
			return err == nil && strings.Contains(out, "web-"), fmt.Sprint(out, err)
		})
		took := time.Since(begun)
		t.Logf("%s after %v", what, took.Round(100*time.Millisecond))
		return took
	}
	held := s.cloud.held(t, "web")
	address := s.cloud.kubectl("get", "serviceimport", "-n", "shop", "web", "-o", "jsonpath={.spec.ips[0]}")
	active := s.cloud.kubectl("get", "pod", "-n", gatewayNamespace, "-l", "postern.dev/role=active", "-o", "name")
	s.cloud.kubectl("delete", "-n", gatewayNamespace, active)
	begin = time.Now()
	late(t, "the service is used", usedAgain("the service is used through another replica", begin), overWithin)
	if _, err := held.Wait(within(t, patience)); err != nil || !strings.Contains(held.Stdout(), "ended") {
		t.Errorf("a connection that was open has not ended: %q, %v", held.Stdout(), err)
	}
	if now := s.cloud.kubectl("get", "serviceimport", "-n", "shop", "web", "-o", "jsonpath={.spec.ips[0]}"); now != address {
		t.Errorf("the service has the address %s, and had %s before another replica took over", now, address)
	}
	begin = time.Now()
	s.edge.killGateway()
	usedAgain("the service is used again, with the exporter's gateway killed,", begin)

	s.edge.kubectl("delete", "serviceexport", "-n", "shop", "--all")
	begin = time.Now()
	for s.cloud.kubectl("get", "serviceimports,services,endpointslices", "-n", "shop", "-o", "name") != "" {
		if time.Since(begin) > patience {
			t.Fatal("the import is still there")
		}
	}
	late(t, "it was withdrawn", time.Since(begin), withdrawnWithin)

	// An uninstalled release leaves nothing behind.
	s.edge.apply(shop, "apply", "-n", "shop", "-f", "-")
	waitObject(s.cloud, "/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports", "web", "imported again", func(struct{}) bool { return true })
	if _, err := s.cloud.Helm(within(t, patience), s.cloud.helm, "uninstall", release, "-n", gatewayNamespace, "--wait"); err != nil {
		t.Fatal(err)
	}
	for begin = time.Now(); ; {
		left := s.cloud.kubectl("get", "serviceimports,services,endpointslices", "-n", "shop", "-o", "name")
		if left == "" {
			break
		}
		if time.Since(begin) > patience {
			t.Fatalf("an uninstalled gateway leaves %s", left)
		}
	}
}
