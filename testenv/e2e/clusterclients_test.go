//go:build linux && e2e && mcs

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// clientsVariable and flowsVariable set how many clients and flows of datagrams there are.
	clientsVariable, manyClients = "POSTERN_CLIENTS", 1000
	flowsVariable, manyFlows     = "POSTERN_FLOWS", 100_000
	// perClient is how many flows each address has.
	perClient = 100
	// lastFlows is how many of the last flows have an address each: a client that has many gets no
	// more while few are left.
	lastFlows = 200
	// flowGuess is what a gateway reserves for a flow when it derives their maximum from an eighth
	// of its memory limit, and flowMemory what one takes at most of its process (control/forward), in
	// bytes.
	flowGuess, flowMemory = 3500, 550
	// flowIdle is how long a flow is kept that is not used.
	flowIdle = 5 * time.Minute
	// heapGrowth is how many times as large as what is in use the heap may be between collections.
	heapGrowth = 2
	// moreAfterFlows is how much may remain of what a hundred thousand flows took, as gaps between what
	// is in use, in bytes.
	moreAfterFlows = 16 << 20
	// mostOfSystem is how many flows one exporter gets at most: each has a local port of its system.
	mostOfSystem = 20_000
	// unequal is how much more than its part an exporter may get, as connections are spread at random.
	unequal = 1.2
	// shortly is how long a client waits for an answer that does not come.
	shortly = "3s"
)

var (
	// clientsRange is the range of the pods, and clientsRoute the part of it that a pod of cloud
	// has for itself.
	clientsRange = netip.MustParsePrefix("10.244.0.0/20")
	clientsRoute = netip.MustParsePrefix("10.244.8.0/21")
	// firstClient is the address of the first client, firstLast that of the first that has one flow,
	// otherClient that of the client of another service, and oneMore that of the first that is one too
	// many.
	firstClient = netip.MustParseAddr("10.244.8.0")
	firstLast   = netip.MustParseAddr("10.244.14.0")
	otherClient = netip.MustParseAddr("10.244.14.255")
	oneMore     = netip.MustParseAddr("10.244.15.0")
)

// keptServices are services of the same pods: one with session affinity, one of UDP that other gateways
// export as well, and one of both protocols.
const keptServices = `apiVersion: v1
kind: Service
metadata: {name: kept}
spec:
  selector: {app: kept}
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: flows}
spec: {selector: {app: kept}, ports: [{name: echo, port: 9000, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {selector: {app: kept}, ports: [{name: http, port: 80, targetPort: 8080}, {name: echo, port: 9000, protocol: UDP}]}
`

// TestManyClients has a thousand clients of cloud use a service of edge with session affinity, and then
// a hundred thousand flows of datagrams open through one import.
func TestManyClients(t *testing.T) {
	flows := sizeOf(t, flowsVariable, manyFlows)
	s := startClusterset(t, clientsRange, nil, "edge", "cloud")
	// The maximum number of flows is what fits this memory, and not half as many of one peer: several
	// peers export the service.
	s.install("mcs.enabled=true", "mcs.allNamespaces=true", "resources.limits.memory=6Gi",
		"extraEnv[0].name=GOMEMLIMIT", fmt.Sprintf("extraEnv[0].value=%dB", 8*flowGuess*flows))
	s.peer()
	for _, one := range s.all {
		one.restricted("shop")
	}
	s.cloud.run("shop", "client", servingPod("client", "client"))
	s.cloud.giveAddresses(t)
	for i := range 4 {
		s.edge.run("shop", fmt.Sprint("kept-", i), servingPod(fmt.Sprint("kept-", i), "kept"))
	}
	s.edge.apply(keptServices+"---\n"+exports([]string{"kept", "flows", "other"}), "apply", "-n", "shop", "-f", "-")
	s.keepPods(t, sizeOf(t, clientsVariable, manyClients))
	s.openFlows(t, flows)
}

// giveAddresses routes a range of addresses to the pod of clients, as to a node of its own: the pod's
// programs may use each of them, the node sends them to the pod, and the gateways send them to the node.
// They belong to the cluster's pods, so kube-proxy does not replace them, and the gateway sees them.
func (c *cluster) giveAddresses(t *testing.T) {
	t.Helper()
	in := func(namespace, pod, program string, args ...string) {
		pid, _ := c.process(namespace, pod, program)
		if _, err := netlab.Run(within(t, patience), "", "", append([]string{"nsenter", "--target", strconv.Itoa(pid), "--net", "--"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	in("shop", "client", "/bin/testserver", "ip", "route", "add", "local", clientsRoute.String(), "dev", "lo")
	pod := c.kubectl("get", "pod", "-n", "shop", "client", "-o", "jsonpath={.status.podIP}")
	c.node.Route(clientsRoute, netip.MustParseAddr(pod))
	for _, name := range []string{"all", "cni0"} { // or the pods would be told of a shorter way
		c.node.Sysctl("net.ipv4.conf."+name+".send_redirects", "0")
	}
	bridge := clientsRange.Addr().Next()
	for _, gateway := range strings.Fields(c.kubectl("get", "pods", "-n", gatewayNamespace, "-l", "app.kubernetes.io/name=postern", "-o", "jsonpath={.items[*].metadata.name}")) {
		in(gatewayNamespace, gateway, "/postern", "ip", "route", "add", clientsRoute.String(), "via", bridge.String())
	}
	// For as long as a gateway keeps a flow, or the node would lead its next datagram elsewhere.
	for _, name := range []string{"udp_timeout", "udp_timeout_stream"} {
		c.node.Sysctl("net.netfilter.nf_conntrack_"+name, "600")
	}
}

// keepPods asks from many addresses who answers, before and after pods come and go and gateways are
// killed. A client only gets another pod if its own goes, or after the exporter's gateway ended, if one
// came since.
func (s *clusterset) keepPods(t *testing.T, count int) {
	t.Helper()
	const url = "http://kept.shop.svc.clusterset.local/"
	answers := func(what string) {
		t.Helper()
		eventually(within(t, patience), t, what, func() (bool, string) {
			out, err := s.cloud.Kubectl(within(t, slow()*clientPatience), "", inClient("get", url)...)
			return err == nil && strings.Contains(out, "kept-"), fmt.Sprint(out, err)
		})
	}
	ready := func(n float64) {
		t.Helper()
		s.edge.waitMetric(n, "postern_service_ready_backends", `service="shop/kept"`)
	}
	ask := func() (who []string) {
		t.Helper()
		var all []connection
		s.cloud.report(&all, "clients", firstClient.String(), strconv.Itoa(count), url)
		for n, x := range all {
			if x.Error != "" {
				t.Errorf("client %d is not answered: %s", n, x.Error)
			}
			who = append(who, x.Who)
		}
		return who
	}
	ready(4)
	answers("the service is used")
	was := ask()
	pods := map[string]int{}
	for _, who := range was {
		pods[who]++
	}
	t.Logf("the pods of %d clients: %v", count, pods)
	if len(pods) != 4 {
		t.Errorf("%d clients use %d pods, want all 4", count, len(pods))
	}
	moved := func(what string, may func(from, to string) bool) {
		t.Helper()
		now, out := ask(), map[string]int{}
		for n := range now {
			if now[n] != was[n] {
				out[was[n]+" to "+now[n]]++
				if !may(was[n], now[n]) {
					t.Errorf("%s: client %d moved from %s to %s", what, n, was[n], now[n])
				}
			}
		}
		was = now
		t.Logf("%s: there moved %v", what, out)
	}
	nobody := func(string, string) bool { return false }
	moved("nothing changes", nobody)
	s.edge.run("shop", "kept-4", servingPod("kept-4", "kept"))
	ready(5)
	moved("a pod comes", nobody)
	gone := was[0]
	s.edge.kubectl("delete", "pod", "-n", "shop", gone)
	ready(4)
	moved("a pod goes", func(from, _ string) bool { return from == gone })
	s.cloud.killGateway()
	answers("the service is used after the importer's gateway was killed")
	moved("the importer's gateway is killed", nobody)
	s.edge.killGateway()
	answers("the service is used after the exporter's gateway was killed")
	ready(4)
	moved("the exporter's gateway is killed", func(_, to string) bool { return to == "kept-4" })
}

// depot is a gateway without a cluster that exports a service which echoes datagrams.
type depot struct {
	*gateway
	key string // public
}

// newDepots starts gateways, each on a host of its own, that export shop/flows to cloud.
func (s *clusterset) newDepots(t *testing.T, count int) (all []depot) {
	t.Helper()
	var hub api.Status
	if err := json.Unmarshal([]byte(s.cloud.kubectl("exec", "-n", gatewayNamespace, s.cloud.activePod(), "--", "/postern", "status", "-o", "json")), &hub); err != nil {
		t.Fatal(err)
	}
	var manifest strings.Builder
	for i := range count {
		host := s.lab.Host(fmt.Sprint("depot-", i))
		host.Attach("eth0", s.wan, netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}))
		at := netip.MustParseAddrPort("127.0.0.1:9000")
		c, err := host.ListenUDP(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go echo(c)
		key := newPrivateKey(t)
		d := depot{key: fmt.Sprint(key.Public())}
		d.gateway = newGateway(t, host, fmt.Sprint("depot-", i), func(g *api.GatewaySpec) {
			g.PrivateKeyFile = writeSecret(t, tempDir(t), "key", key.Base64())
			g.Services.Named = []api.NamedService{{Name: "echo", Protocol: api.UDP, Port: 9000, Address: at.String(), Export: "shop/flows"}}
			g.Peers = []api.Peer{{Name: "cloud", PublicKey: hub.Gateway.PublicKey, Endpoints: []string{fmt.Sprintf("%s:%d", cloudNode, cloudNodePort)},
				Services: &api.PeerServices{Export: []string{"shop"}}}}
		})
		d.launch()
		fmt.Fprintf(&manifest, "---\napiVersion: postern.dev/v1alpha1\nkind: Peer\nmetadata: {name: %s, labels: {%s}}\nspec: {publicKey: %q, allow: [auth], services: {import: [shop]}}\n",
			d.name, strings.Replace(depotLabel, "=", ": ", 1), d.key)
		all = append(all, d)
	}
	s.cloud.apply(manifest.String(), "apply", "-n", gatewayNamespace, "-f", "-")
	return all
}

const depotLabel = "depot=lab"

// echo sends each datagram back until the socket is closed.
func echo(c *net.UDPConn) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(b[:n], from)
	}
}

// openFlows opens as many flows of datagrams as there may be, through one import. One more is refused and
// counted. Those that are open go on, as do other services.
func (s *clusterset) openFlows(t *testing.T, count int) {
	t.Helper()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	// A quarter of the exporters' files: half is for flows, and half of that for one peer.
	each := min(mostOfSystem, int(files.Max)/4)
	exporters := max(3, int(unequal*float64(count))/each+1)
	t.Logf("%d exporters", exporters)
	s.newDepots(t, exporters-1)
	waitObject(s.cloud, importsPath, "flows", "imported from all", func(x v1beta1.ServiceImport) bool { return len(x.Status.Clusters) == exporters })
	found := map[string]bool{}
	err := s.cloud.WaitFor(within(t, patience), derivedSlicesPath, func(b []byte) bool {
		var x discoveryv1.EndpointSlice
		if json.Unmarshal(b, &x) == nil && x.Labels[v1beta1.LabelServiceName] == "flows" && len(x.Endpoints) == 1 && x.Endpoints[0].Conditions.Ready != nil && *x.Endpoints[0].Conditions.Ready {
			found[x.Labels[v1beta1.LabelSourceCluster]] = true
		}
		return len(found) == exporters
	})
	if err != nil {
		t.Fatalf("%d of %d exporters are endpoints: %v", len(found), exporters, err)
	}

	const patient = "60s"
	type outcome struct {
		Answered, Unanswered int
		Error                string
	}
	use := func(service string, first netip.Addr, each, count int, patience string) (o outcome) {
		t.Helper()
		s.cloud.report(&o, "flows", service+".shop.svc.clusterset.local:9000", first.String(), strconv.Itoa(each), strconv.Itoa(count), patience)
		return o
	}
	answered := func(what, service string, first netip.Addr, each, count int) {
		t.Helper()
		if o := use(service, first, each, count, patient); o.Answered != count {
			t.Errorf("%s: %d flows are answered, want %d: %s", what, o.Answered, count, o.Error)
		}
	}
	metric := func(name string, labels ...string) int {
		t.Helper()
		text, err := s.cloud.metrics()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := sumSeries(t, text, name, labels...)
		return int(n)
	}
	open := func() int { return metric("postern_forward_open_udp_flows") }
	refused := func(labels ...string) int {
		return metric("postern_forward_refused_udp_flows_total", append(labels, `direction="outbound"`)...)
	}

	pid, _ := s.cloud.process(gatewayNamespace, s.cloud.activePod(), "/postern")
	answered("another service before", "other", otherClient, 1, 1)
	before, refusedBefore := rssAnon(t, pid), refused()
	begin := time.Now()
	used := begin // since when each flow has been used
	// The other service has one of them. A machine that is so slow that the first ones end has the rest
	// again.
	rest := count - lastFlows - 1
	for open() < count {
		if time.Since(begin) > 10*time.Minute {
			t.Fatalf("%d flows are open, want %d", open(), count)
		}
		used = time.Now()
		answered("the flows", "flows", firstClient, perClient, rest)
		answered("the last flows", "flows", firstLast, 1, lastFlows)
		answered("another service meanwhile", "other", otherClient, 1, 1)
	}
	more := rssAnon(t, pid) - before
	t.Logf("%d flows are open after %v, in %.1f MB more, %d bytes each", open(), time.Since(begin).Round(time.Second), mb(more), more/count)
	if most := heapGrowth*flowMemory*count + moreAfterChurn; more > most {
		t.Errorf("they take %.1f MB, want at most %.1f MB, %d times %d bytes each, and %.0f MB for their packets", mb(more), mb(most), heapGrowth, flowMemory, mb(moreAfterChurn))
	}
	if n := refused() - refusedBefore; n != 0 {
		t.Errorf("%d were refused", n)
	}
	// On a very slow machine the first ones end before all is tried, and others have their places.
	full := func() bool { return time.Since(used) < flowIdle }

	const total = `reason="total_flow_limit"`
	refusedBefore = refused(total)
	if o := use("flows", oneMore, 1, 1, shortly); full() && o.Answered != 0 {
		t.Errorf("one more flow: %+v", o)
	}
	if n := refused(total) - refusedBefore; full() && n == 0 {
		t.Error("one more flow was not counted as refused")
	}
	// While more of them try, those that are open are answered, and so is the rest.
	p := s.cloud.startClient("flows", "flows.shop.svc.clusterset.local:9000", oneMore.String(), "1", "250", shortly)
	answered("open flows", "flows", firstClient, perClient, max(perClient, rest/10))
	answered("the last open flows", "flows", firstLast, 1, lastFlows)
	answered("an open flow of another service", "other", otherClient, 1, 1)
	for range 10 {
		for _, name := range []string{"other", "kept"} {
			out, err := s.cloud.Kubectl(within(t, patience), "", inClient("get", "http://"+name+".shop.svc.clusterset.local/")...)
			if err != nil || !strings.Contains(out, "kept-") {
				t.Errorf("connections to %s: %q, %v", name, out, err)
			}
		}
	}
	if _, err := p.Wait(within(t, patience*slow())); err != nil {
		t.Fatal(err)
	}
	var o outcome
	if err := json.Unmarshal([]byte(p.Stdout()), &o); err != nil {
		t.Fatal(err)
	}
	n := open()
	if all := full(); all && (o.Answered != 0 || n != count) {
		t.Errorf("%d flows are open, want %d, and %d further ones were answered", n, count, o.Answered)
	} else if !all {
		t.Logf("the machine is too slow to tell: after %v, %d flows are open", time.Since(used).Round(time.Second), n)
	}
	t.Logf("%d datagrams of further flows were refused", refused(total)-refusedBefore)

	// They end with the export and with the peers, and the memory is free for others.
	s.edge.kubectl("delete", "serviceexport", "-n", "shop", "--all")
	s.cloud.kubectl("delete", "peers", "-n", gatewayNamespace, "-l", depotLabel)
	eventually(within(t, patience), t, "all flows have ended", func() (bool, string) {
		n := open()
		return n == 0, fmt.Sprint(n)
	})
	eventually(within(t, quietWithin), t, "the memory of the flows is free", func() (bool, string) {
		more := rssAnon(t, pid) - before
		return more <= moreAfterFlows, fmt.Sprintf("%.1f MB more than before", mb(more))
	})
	t.Logf("when all have ended, the gateway has %.1f MB more than before", mb(rssAnon(t, pid)-before))
}
