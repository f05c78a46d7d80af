//go:build linux && e2e

package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/mcs-api/config/crd"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// importedWithin is how long an export may take to be usable elsewhere, withdrawnWithin
	// until it is not any more.
	importedWithin  = 10 * time.Second
	withdrawnWithin = 5 * time.Second
	// overWithin is how long it may take until a service is used through another replica, once
	// the active pod of the importing gateway ends.
	overWithin = 10 * time.Second
	// clientPatience is how long a client waits for an answer that may not come, before it asks again.
	clientPatience = 2 * time.Second
)

// clusterset is two clusters that export services to each other. Both have the same ranges of
// pods and Services, and CoreDNS. The operator has an address in either network.
//
//	edge 192.168.7.10 ─┬─ 192.168.7.1 nat 198.51.100.20 ── wan ─┬─ 198.51.100.10 cloud
//	                   │                                        ├─ 198.51.100.40 relay
//	                   └──────────────── operator ──────────────┘
type clusterset struct {
	edge, cloud *cluster
	wan         *netlab.Network
	operator    *netlab.Host
}

const setRelay = "198.51.100.40"

// newClusterset starts the clusters with further images, has gateways in them that may export
// and import everywhere, and peers them.
func newClusterset(t *testing.T, further ...string) *clusterset {
	t.Helper()
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24"))
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	lab.NAT("nat", netlab.NATOptions{Kind: netlab.PortRestricted,
		WAN: wan, WANAddr: netip.MustParseAddr(cloudNATAddr), LAN: lan, LANAddr: netip.MustParseAddr(edgeGateway)})
	edge, cloud, operator, relay := lab.Host("edge"), lab.Host("cloud"), lab.Host("operator"), lab.Host("relay")
	edge.Attach("eth0", lan, netip.MustParseAddr(edgeNode))
	edge.DefaultRoute(netip.MustParseAddr(edgeGateway))
	cloud.Attach("eth0", wan, netip.MustParseAddr(cloudNode))
	cloud.DefaultRoute(netip.MustParseAddr(cloudNATAddr))
	operator.Attach("eth0", wan, netip.MustParseAddr("198.51.100.50"))
	operator.Attach("eth1", lan, netip.MustParseAddr("192.168.7.50"))
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
	s := &clusterset{wan: wan, operator: operator,
		edge:  &cluster{t: t, name: "edge", node: edge, helm: helm, dns: dns},
		cloud: &cluster{t: t, name: "cloud", node: cloud, helm: helm, dns: dns},
	}
	startClusters(ctx, t, append(imageArchives(ctx, t), further...), map[string]*cluster{edgeNode: s.edge, cloudNode: s.cloud})
	for one, values := range map[*cluster][]string{
		s.cloud: {"service.type=NodePort", fmt.Sprintf("service.nodePort=%d", cloudNodePort), "replicas=2"},
		s.edge:  {"service.type=ClusterIP"},
	} {
		t.Cleanup(one.showLogOfFailure)
		for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
			one.apply(string(text), "apply", "--server-side", "-f", "-")
		}
		one.restricted(gatewayNamespace)
		one.kubectl("create", "secret", "generic", "relay", "-n", gatewayNamespace, "--from-literal=password="+turnPassword)
		one.upgrade(release, gatewayNamespace, append(values, "mcs.enabled=true", "mcs.allNamespaces=true", "secretMounts[0].name=relay", "secretMounts[0].secretName=relay",
			"discovery.turnServers[0].address="+setRelay+":3478", "discovery.turnServers[0].username="+turnUser,
			"discovery.turnServers[0].passwordFile=/etc/postern-secrets/relay/password")...)
	}
	ticket := s.cloud.invite("edge", "name: edge")
	s.edge.join("cloud", ticket, "allow: [auth]")
	for one, other := range s.both() {
		one.waitPeer(other.name, "connected", func(p peerObject) bool { return p.Status.State == "connected" })
		one.kubectl("patch", "peer", "-n", gatewayNamespace, other.name, "--type=merge", "-p", `{"spec":{"services":{"export":["*"],"import":["*"]}}}`)
	}
	return s
}

// cutDirect leaves the clusters the relay alone, and waits until edge uses it. If that is edge's own
// relay, cloud sees its node's address instead: what comes to a NodePort comes from there.
func (s *clusterset) cutDirect(t *testing.T) {
	t.Helper()
	s.wan.Drop(fmt.Sprintf("ip protocol udp ip saddr %s ip daddr %s", cloudNATAddr, cloudNode), fmt.Sprintf("ip protocol udp ip saddr %s ip daddr %s", cloudNode, cloudNATAddr))
	s.edge.waitPeer(s.cloud.name, "relayed", func(p peerObject) bool { return p.Status.State == "connected" && p.Status.Path.Kind == api.PathRelay })
	s.cloud.waitPeer(s.edge.name, "connected", func(p peerObject) bool { return p.Status.State == "connected" })
}

func (s *clusterset) both() map[*cluster]*cluster {
	return map[*cluster]*cluster{s.edge: s.cloud, s.cloud: s.edge}
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

// TestServicesAcrossClusters exports a service in the cluster behind the NAT and uses it at a machine
// without a cluster, and in the other by its clusterset name, from a pod, while the gateway there changes over to another replica, and
// until it is withdrawn.
func TestServicesAcrossClusters(t *testing.T) {
	s := newClusterset(t)
	for one := range s.both() {
		one.restricted("shop")
	}
	s.cloud.run("shop", "server", tenantServer)
	asking := func(limit time.Duration, args ...string) (string, error) {
		return s.cloud.Kubectl(within(t, limit), "", append([]string{"exec", "-n", "shop", "server", "--", "/bin/testserver"}, args...)...)
	}
	ask := func(args ...string) (string, error) { return asking(patience, args...) }
	s.edge.apply(shop, "apply", "-n", "shop", "-f", "-")
	s.edge.kubectl("rollout", "status", "-n", "shop", "statefulset/web", "--timeout=90s")
	begin := time.Now()
	var first time.Duration
	answers := map[string]bool{}
	for len(answers) < 2 {
		out, err := asking(clientPatience, "get", "http://web.shop.svc.clusterset.local/")
		if err == nil {
			answers[out] = true
			first = min(cmp.Or(first, time.Hour), time.Since(begin))
		}
		if time.Since(begin) > patience {
			t.Fatalf("the service is not used whole: %v, %v", answers, err)
		}
	}
	t.Logf("the service is used %v after its pods were ready, and both of them after %v", first.Round(100*time.Millisecond), time.Since(begin).Round(100*time.Millisecond))
	for out := range answers {
		if !strings.Contains(out, "web-") {
			t.Errorf("somebody else answered: %s", out)
		}
	}
	if first > importedWithin {
		t.Errorf("that is more than %v", importedWithin)
	}
	if out, err := ask("udp", "web.shop.svc.clusterset.local:9000", "hello"); err != nil || !strings.Contains(out, "hello") {
		t.Errorf("by UDP: %q, %v", out, err)
	}
	for _, pod := range []string{"web-0", "web-1"} {
		if out, err := ask("get", "http://"+pod+".edge.each.shop.svc.clusterset.local:8080/"); err != nil || !strings.Contains(out, pod) {
			t.Errorf("%s alone: got %q, %v", pod, out, err)
		}
	}

	s.onMachine(t)

	address := s.cloud.kubectl("get", "serviceimport", "-n", "shop", "web", "-o", "jsonpath={.spec.ips[0]}")
	active := s.cloud.kubectl("get", "pod", "-n", gatewayNamespace, "-l", "postern.dev/role=active", "-o", "name")
	s.cloud.kubectl("delete", "-n", gatewayNamespace, active)
	for begin = time.Now(); ; {
		out, err := asking(clientPatience, "get", "http://web.shop.svc.clusterset.local/")
		if err == nil && strings.Contains(out, "web-") {
			break
		}
		if time.Since(begin) > patience {
			t.Fatalf("the service is not used through another replica: %v", err)
		}
	}
	if took := time.Since(begin); took > overWithin {
		t.Errorf("the service was used through another replica after %v, want at most %v", took, overWithin)
	} else {
		t.Logf("the service is used through another replica after %v", took.Round(100*time.Millisecond))
	}
	if now := s.cloud.kubectl("get", "serviceimport", "-n", "shop", "web", "-o", "jsonpath={.spec.ips[0]}"); now != address {
		t.Errorf("the service has the address %s, and had %s before another replica took over", now, address)
	}

	s.edge.kubectl("delete", "serviceexport", "-n", "shop", "--all")
	begin = time.Now()
	for s.cloud.kubectl("get", "serviceimports,services,endpointslices", "-n", "shop", "-o", "name") != "" {
		if time.Since(begin) > patience {
			t.Fatal("the import is still there")
		}
	}
	if took := time.Since(begin); took > withdrawnWithin {
		t.Errorf("it was withdrawn after %v, want at most %v", took, withdrawnWithin)
	}

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
		if time.Since(begin) > gone {
			t.Fatalf("an uninstalled gateway leaves %s", left)
		}
	}
}
