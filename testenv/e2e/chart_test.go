//go:build linux && e2e

package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// accountFolder is where a pod has the files of its ServiceAccount.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// chart renders the chart with helm, without a cluster.
type chart struct {
	t    *testing.T
	helm string
}

func newChart(t *testing.T) chart {
	t.Helper()
	program, err := kube.Helm(within(t, 10*time.Minute), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return chart{t: t, helm: program}
}

// template renders the chart with values, each in the form of --set.
func (c chart) template(more []string, values ...string) (string, error) {
	c.t.Helper()
	args := append([]string{c.helm, "template", release, chartFolder, "-n", gatewayNamespace}, more...)
	return netlab.Run(within(c.t, patience), "", "", append(args, set(values)...)...)
}

// objects renders the chart and returns the objects by kind and name.
func (c chart) objects(values ...string) map[string]map[string]any {
	c.t.Helper()
	out, err := c.template(nil, values...)
	if err != nil {
		c.t.Fatal(err)
	}
	found := map[string]map[string]any{}
	decoder := yaml.NewDecoder(strings.NewReader(out))
	for {
		var o map[string]any
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			c.t.Fatalf("%v in:\n%s", err, out)
		}
		if o != nil {
			found[o["kind"].(string)+" "+at(o, "metadata", "name").(string)] = o
		}
	}
}

// at follows keys into nested maps; nil if there is nothing.
func at(o any, keys ...string) any {
	for _, k := range keys {
		m, _ := o.(map[string]any)
		o = m[k]
	}
	return o
}

// full are values that enable most of the chart.
var full = []string{"name=edge", "replicas=2", "service.type=NodePort", "service.nodePort=31820", "service.externalTrafficPolicy=Local",
	"gateway.port=4500", "gateway.mtu=1300", "log.level=debug", "log.format=text",
	"discovery.advertise={203.0.113.8:40582}", "discovery.stunServers={stun.example.net:3478}",
	"discovery.turnServers[0].address=turn.example.net:3478",
	"discovery.portMapping.mode=auto", "discovery.portMapping.router=192.168.1.1", "discovery.exclude={10.244.0.0/16}",
	"discovery.keepalive=15s", "services.named[0].name=registry", "services.named[0].port=5000", "services.named[0].address=10.0.0.5:5000",
	"issuer.ttl=12h", "issuer.access[0].clusterRole=view", "issuer.access[1].role=edit", "issuer.access[1].namespace=tenant",
	"metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true", "metrics.dashboard.enabled=true", "peerServicesFrom={tenant}",
	"mcs.enabled=true", "mcs.namespaces={shop,blog}", "mcs.dns.enabled=true", "mcs.dns.clusterIP=10.96.0.53", "leaseSeconds=10", "metrics.podMonitor.enabled=true",
	"commonLabels.team=network", "podLabels.team=edge", "podSecurityContext.runAsUser=1000", "updateStrategy.type=OnDelete", "revisionHistoryLimit=3",
	"extraEnv[0].name=GODEBUG", "extraEnv[0].value=madvdontneed=1", "extraVolumes[0].name=ca", "extraVolumes[0].configMap.name=ca",
	"extraVolumeMounts[0].name=ca", "extraVolumeMounts[0].mountPath=/etc/ca", "dnsPolicy=None", "dnsConfig.nameservers={192.0.2.53}",
	"service.ipFamilyPolicy=PreferDualStack", "service.ipFamilies={IPv6,IPv4}",
	"key.existingSecret=edge-key"}

// TestChartMakesConfigurationsThatLoad renders the chart with several values. The program under
// test, which knows every field, accepts the result.
func TestChartMakesConfigurationsThatLoad(t *testing.T) {
	c := newChart(t)
	for _, v := range []struct {
		name   string
		values []string
	}{
		{"defaults", []string{"name=edge"}},
		{"everything", full},
		{"no API server", []string{"name=edge", "services.apiServer.enabled=false", "issuer.type=none"}},
		{"certificates", []string{"name=edge", "issuer.type=csr", "issuer.ttl=2h"}},
		{"auth outside the tunnel", []string{"name=edge", "outOfBand.enabled=true"}},
		{"auth outside the tunnel with TLS", []string{"name=edge", "outOfBand.enabled=true", "outOfBand.tlsSecret=auth", "outOfBand.nodePort=30443"}},
		{"services of clusters in all namespaces", []string{"name=edge", "mcs.enabled=true", "mcs.allNamespaces=true"}},
		{"another release", []string{"name=edge", "fullnameOverride=gw", "issuer.serviceAccount.namespace=tenants"}},
		{"relay with a password", []string{"name=edge", "secretMounts[0].name=turn", "secretMounts[0].secretName=relay",
			"discovery.turnServers[0].address=turn.example.net:3478", "discovery.turnServers[0].username=u",
			"discovery.turnServers[0].passwordFile=/etc/postern-secrets/turn/password"}},
		{"behind a proxy", []string{"name=edge", "secretMounts[0].name=turn", "secretMounts[0].secretName=proxy", "proxy.url=http://proxy.example.net:3128",
			"proxy.username=u", "proxy.passwordFile=/etc/postern-secrets/turn/password", "proxy.noProxy={10.0.0.0/8,.example.net}"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := chart{t: t, helm: c.helm}
			if out, err := netlab.Run(within(t, patience), "", "", append([]string{c.helm, "lint", "--strict", chartFolder}, set(v.values)...)...); err != nil {
				t.Error(out, err)
			}
			for _, o := range c.objects(v.values...) {
				if text, ok := at(o, "data", "gateway.yaml").(string); ok {
					validate(t, text)
					return
				}
			}
			t.Error("there is no ConfigMap with a gateway.yaml")
		})
	}
}

func set(values []string) (args []string) {
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// validate makes the program under test load a configuration. The files that it names, which are
// a pod's, are replaced by stand-ins.
func validate(t *testing.T, text string) {
	t.Helper()
	dir := tempDir(t)
	ca, err := pki.NewCA("cluster")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := ca.Server("auth.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := serving.Write(dir, "tls"); err != nil {
		t.Fatal(err)
	}
	key, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer(accountFolder, dir, "/etc/postern-secrets/turn", dir, "/etc/postern-auth", dir, "/etc/postern-key", dir).Replace(text)
	for name, content := range map[string][]byte{"ca.crt": ca.CertPEM(), "password": []byte("secret"), "private.key": []byte(key.Base64()), "gateway.yaml": []byte(here)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := netlab.Run(within(t, patience), "", "", posternBinary(t), "config", "validate", filepath.Join(dir, "gateway.yaml"))
	if err != nil {
		t.Errorf("the configuration is refused: %v%s\n%s", err, out, text)
	}
}

// TestChartRefusesWrongValues shows that a mistake is found and named when the chart is
// installed.
func TestChartRefusesWrongValues(t *testing.T) {
	c := newChart(t)
	for want, values := range map[string][]string{
		"name is missing":             {},
		"'/name'":                     {"name=Edge"},
		"'listn' not allowed":         {"name=edge", "listn=3"},
		"'/service/type'":             {"name=edge", "service.type=ExternalName"},
		"'/discovery/advertise/":      {"name=edge", "discovery.advertise={203.0.113.8}"},
		"'/peerServicesFrom/0'":       {"name=edge", "peerServicesFrom={*}"},
		"'/mcs/namespaces/0'":         {"name=edge", "mcs.enabled=true", "mcs.namespaces={*}"},
		"mcs.enabled needs to know":   {"name=edge", "mcs.enabled=true"},
		"'/replicas'":                 {"name=edge", "replicas=3"},
		"/namespace'":                 {"name=edge", "issuer.serviceAccount.namespace=kube-system"},
		"'passwordFile' required":     {"name=edge", "discovery.turnServers[0].address=a:1", "discovery.turnServers[0].username=u"},
		"'/proxy/url'":                {"name=edge", "proxy.url=socks5://proxy.example.net:1080"},
		"issuer.access binds":         {"name=edge", "issuer.type=none", "issuer.access[0].clusterRole=view"},
		"invalid propertyName":        {"name=edge", `commonLabels.app\.kubernetes\.io/name=x`},
		"'/podSecurityContext'":       {"name=edge", "podSecurityContext.runAsUser=0"},
		"leave hostPort out":          {"name=edge", "hostNetwork=true", "hostPort=4500"},
		"'/extraEnv/0/name'":          {"name=edge", "extraEnv[0].name=POD_UID", "extraEnv[0].value=x"},
		"'/extraVolumes/0/name'":      {"name=edge", "extraVolumes[0].name=state"},
		"without outOfBand.tlsSecret": {"name=edge", "outOfBand.enabled=true", "outOfBand.nodePort=30443"},
	} {
		if out, err := c.template(nil, values...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want an error with %q\n%s", values, err, want, out)
		}
	}
}

// TestChartServiceTypes: the type is NodePort in clusters that usually have no load balancer,
// which the chart recognises by the nodes.
func TestChartServiceTypes(t *testing.T) {
	ctx := within(t, 10*time.Minute)
	c := newChart(t)
	api := kubetest.With(t, kube.Options{Dir: tempDir(t)})
	for _, v := range []struct {
		provider, want string
		values         []string
	}{
		{"aws:///eu-west-1a/i-0123456789", "LoadBalancer", nil},
		{"kind://podman/test/test-control-plane", "NodePort", nil},
		{"k3s://node", "NodePort", nil},
		{"k3s://node", "LoadBalancer", []string{"service.type=LoadBalancer"}},
		{"", "LoadBalancer", nil},
		{"", "ClusterIP", []string{"service.type=ClusterIP"}},
	} {
		node := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"one"},"spec":{"providerID":%q}}`, v.provider)
		api.Run(t, node, "apply", "-f", "-")
		out, err := api.Helm(ctx, c.helm, append([]string{"install", release, chartFolder, "--dry-run=server"}, set(append(v.values, "name=edge"))...)...)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "\n  type: "+v.want+"\n") {
			t.Errorf("nodes of provider %q, values %v: want type %s in:\n%s", v.provider, v.values, v.want, out)
		}
		api.Run(t, "", "delete", "node", "one")
	}
}

// TestChartAndManifestGrantTheSame: gateways without Helm get their rights over the accounts of
// peers from a manifest.
func TestChartAndManifestGrantTheSame(t *testing.T) {
	role := newChart(t).objects("name=edge")["Role postern-peer-accounts"]
	b, err := os.ReadFile("../../cmd/postern/deploy/rbac/peer-accounts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var o map[string]any
		if err := decoder.Decode(&o); err != nil {
			t.Fatalf("no Role in the manifest: %v", err)
		}
		if o["kind"] != "Role" {
			continue
		}
		if role == nil || !reflect.DeepEqual(role["rules"], o["rules"]) || at(role, "metadata", "namespace") != at(o, "metadata", "namespace") {
			t.Errorf("the chart's Role is\n%v\nand the manifest's\n%v", role, o)
		}
		return
	}
}

// TestChartObjects checks the effects of a second replica and of the options.
func TestChartObjects(t *testing.T) {
	c := newChart(t)
	least, most := c.objects("name=edge"), c.objects(full...)
	for _, name := range []string{"PodDisruptionBudget postern", "ServiceMonitor postern", "PodMonitor postern", "PrometheusRule postern", "Service postern-metrics", "ConfigMap postern-dashboard"} {
		if least[name] != nil || most[name] == nil {
			t.Errorf("%s: there by default: %v, when it is asked for: %v", name, least[name] != nil, most[name] != nil)
		}
	}
	for _, name := range []string{"CustomResourceDefinition peers.postern.dev", "CustomResourceDefinition tickets.postern.dev"} {
		if at(least[name], "metadata", "annotations", "helm.sh/resource-policy") != "keep" {
			t.Errorf("there is no %s that stays", name)
		}
	}
	for name, o := range most {
		if at(o, "metadata", "labels", "team") != "network" || at(o, "metadata", "labels", "app.kubernetes.io/name") != "postern" {
			t.Errorf("%s has the labels %v", name, at(o, "metadata", "labels"))
		}
	}
	pod := at(most["StatefulSet postern"], "spec", "template")
	if got := at(pod, "metadata", "labels", "team"); got != "edge" {
		t.Errorf("a pod's own label is %v", got)
	}
	if got := fmt.Sprint(at(pod, "spec", "securityContext")); got != "map[fsGroup:65532 runAsGroup:65532 runAsNonRoot:true runAsUser:1000 seccompProfile:map[type:RuntimeDefault]]" {
		t.Errorf("the pod runs as %s", got)
	}
	rules, err := os.ReadFile("../../cmd/postern/deploy/alerts/postern.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var alerts any
	if err := yaml.Unmarshal(rules, &alerts); err != nil || alerts == nil || !reflect.DeepEqual(at(most["PrometheusRule postern"], "spec"), alerts) {
		t.Errorf("the alerts are not those of folder alerts: %v", err)
	}
	dashboard, _ := at(most["ConfigMap postern-dashboard"], "data", "postern.json").(string)
	source, err := os.ReadFile("../../cmd/postern/deploy/grafana/postern.json")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(yaml.Unmarshal([]byte(dashboard), &got), yaml.Unmarshal(source, &want)); err != nil || got == nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the dashboard is not the one of folder grafana: %v", err)
	}
}

// TestChartAsksForNoUserOnOpenShift: there each namespace admits a different range of users.
func TestChartAsksForNoUserOnOpenShift(t *testing.T) {
	out, err := newChart(t).template([]string{"--api-versions", "security.openshift.io/v1", "--show-only", "templates/statefulset.yaml"}, "name=edge")
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := yaml.Unmarshal([]byte(out), &o); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(at(o, "spec", "template", "spec", "securityContext")); got != "map[runAsNonRoot:true seccompProfile:map[type:RuntimeDefault]]" {
		t.Errorf("the pod runs as %s", got)
	}
}

// TestChartPassesOn values whose meaning only others know.
func TestChartPassesOn(t *testing.T) {
	c := newChart(t)
	const gateway, service, pod = "StatefulSet postern", "Service postern", "spec.template.spec."
	rows := []struct{ value, object, at, want string }{
		{"service.ipFamilyPolicy=PreferDualStack", service, "spec.ipFamilyPolicy", ""},
		{"service.ipFamilies={IPv6,IPv4}", service, "spec.ipFamilies", "[IPv6 IPv4]"},
		{"service.loadBalancerIP=203.0.113.9", service, "spec.loadBalancerIP", ""},
		{"updateStrategy.type=OnDelete", gateway, "spec.updateStrategy.type", ""},
		{"revisionHistoryLimit=3", gateway, "spec.revisionHistoryLimit", ""},
		{"leaseSeconds=9", gateway, "spec.minReadySeconds", ""}, // so that an upgrade moves the role only once at a time
		{"priorityClassName=high", gateway, pod + "priorityClassName", ""},
		{"podSecurityContext.fsGroup=7", gateway, pod + "securityContext.fsGroup", ""},
		{"dnsPolicy=None", gateway, pod + "dnsPolicy", ""},
		{"dnsConfig.nameservers={192.0.2.53}", gateway, pod + "dnsConfig.nameservers", "[192.0.2.53]"},
		{"extraEnv[0].name=GODEBUG", gateway, pod + "containers", "name:GODEBUG"},
		{"extraVolumes[0].name=ca", gateway, pod + "volumes", "name:ca"},
		{"extraVolumeMounts[0].name=ca,extraVolumeMounts[0].mountPath=/etc/ca", gateway, pod + "containers", "mountPath:/etc/ca"},
		{"metrics.podMonitor.enabled=true", "PodMonitor postern", "kind", "PodMonitor"},
		{"crds.keep=false", "CustomResourceDefinition peers.postern.dev", "metadata.annotations", "controller-gen"},
	}
	values := []string{"name=edge", "service.type=LoadBalancer", "replicas=2"}
	for _, r := range rows {
		values = append(values, r.value)
	}
	objects := c.objects(values...)
	for _, r := range rows {
		_, same, _ := strings.Cut(r.value, "=")
		if got, want := fmt.Sprint(at(objects[r.object], strings.Split(r.at, ".")...)), cmp.Or(r.want, same); !strings.Contains(got, want) {
			t.Errorf("%s: %s of %s is %s, want %s", r.value, r.at, r.object, got, want)
		}
	}
	if got := at(objects["CustomResourceDefinition peers.postern.dev"], "metadata", "annotations", "helm.sh/resource-policy"); got != nil {
		t.Errorf("the definitions are kept: %v", got)
	}
}

// TestChartOnTheNodesNetwork: the pod must resolve the cluster's names there, too.
func TestChartOnTheNodesNetwork(t *testing.T) {
	c := newChart(t)
	for want, values := range map[string][]string{
		"true ClusterFirstWithHostNet": {"hostNetwork=true"}, "true Default": {"hostNetwork=true", "dnsPolicy=Default"}, "<nil> <nil>": nil,
	} {
		objects := c.objects(append(values, "name=edge", "service.type=ClusterIP")...)
		pod := at(objects["StatefulSet postern"], "spec", "template", "spec")
		if got := fmt.Sprint(at(pod, "hostNetwork"), " ", at(pod, "dnsPolicy")); got != want {
			t.Errorf("%v: the pod has %s, want %s", values, got, want)
		}
		if nodes := objects["ClusterRole postern-postern"] != nil; nodes != (values != nil) {
			t.Errorf("%v: it may list nodes: %v", values, nodes)
		}
	}
}

// TestChartTwiceInACluster: a second release leaves the definitions to the first. It says what it
// cannot share, and how to take over the definitions once the first is gone.
func TestChartTwiceInACluster(t *testing.T) {
	ctx := within(t, 10*time.Minute)
	c := newChart(t)
	api := kubetest.With(t, kube.Options{Dir: tempDir(t)})
	install := func(release, namespace string) (string, error) {
		return api.Helm(ctx, c.helm, append([]string{"upgrade", "--install", release, chartFolder, "-n", namespace, "--create-namespace"},
			set([]string{"name=edge", "service.type=ClusterIP"})...)...)
	}
	const takeOver = "kubectl annotate crd peers.postern.dev tickets.postern.dev --overwrite meta.helm.sh/release-name=west meta.helm.sh/release-namespace=two"
	for range 2 { // install and upgrade
		for _, r := range [][2]string{{"postern", "one"}, {"west", "two"}} {
			out, err := install(r[0], r[1])
			if err != nil {
				t.Fatal(err)
			}
			if second := r[0] == "west"; strings.Contains(out, takeOver) != second {
				t.Errorf("%s says how to take over the kinds: %v, want %v\n%s", r[0], !second, second, out)
			}
		}
	}
	if _, err := install("postern", "three"); err == nil || !strings.Contains(err.Error(), "the accounts of release postern in namespace one: give this release another name") {
		t.Errorf("a release of the same name elsewhere: %v", err)
	}
	if _, err := api.Helm(ctx, c.helm, "uninstall", "postern", "-n", "one"); err != nil {
		t.Fatal(err)
	}
	api.Run(t, "", strings.Fields(takeOver)[1:]...)
	if _, err := install("west", "two"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"peers.postern.dev", "tickets.postern.dev"} {
		if got := api.Run(t, "", "get", "crd", kind, "-o", `jsonpath={.metadata.labels.app\.kubernetes\.io/instance}`); got != "west-postern" {
			t.Errorf("%s is labelled %q, want west-postern", kind, got)
		}
	}
	if _, err := api.Helm(ctx, c.helm, "uninstall", "west", "-n", "two"); err != nil {
		t.Fatal(err)
	}
	api.Run(t, "", "get", "crd", "peers.postern.dev", "tickets.postern.dev")
}

// TestChartTakesValuesOfAnOlderOne: an upgrade with --reuse-values lacks the values that came
// after v0.1.0.
func TestChartTakesValuesOfAnOlderOne(t *testing.T) {
	c := newChart(t)
	want := c.objects("name=edge")
	newer := []string{"commonLabels", "podSecurityContext", "extraEnv", "extraVolumes", "extraVolumeMounts", "dnsPolicy", "dnsConfig", "updateStrategy",
		"service.loadBalancerIP", "service.ipFamilyPolicy", "service.ipFamilies", "metrics.podMonitor", "metrics.prometheusRule", "key",
		"gateway.connectionsPerSecond", "hostNetwork", "proxy", "peerServicesFrom", "mcs", "rbac.policy"}
	values := []string{"name=edge"}
	for _, name := range newer {
		values = append(values, name+"=null")
	}
	if got := c.objects(values...); !reflect.DeepEqual(got, want) {
		t.Errorf("without what is new the chart makes\n%v\nwant\n%v", got, want)
	}
}

// TestChartShowsNoTokensOutside: out-of-band auth without TLS is only reachable inside the
// cluster, whatever the type of the gateway's Service.
func TestChartShowsNoTokensOutside(t *testing.T) {
	c := newChart(t)
	const inside = "Service postern-out-of-band"
	for _, kind := range []string{"LoadBalancer", "NodePort", "ClusterIP"} {
		values := []string{"name=edge", "service.type=" + kind, "service.externalIPs={203.0.113.8}", "outOfBand.enabled=true"}
		for tls, want := range map[bool]map[string]string{
			true:  {"Service postern": "UDP TCP ", inside: ""},
			false: {"Service postern": "UDP ", inside: "TCP "},
		} {
			if tls {
				values = append(values, "outOfBand.tlsSecret=auth")
			}
			objects := c.objects(values...)
			values = values[:4]
			for name, ports := range want {
				var got string
				list, _ := at(objects[name], "spec", "ports").([]any)
				for _, p := range list {
					got += fmt.Sprint(at(p, "protocol"), " ")
				}
				if got != ports {
					t.Errorf("%s, TLS %v: %s has ports %q, want %q", kind, tls, name, got, ports)
				}
			}
			if spec := at(objects[inside], "spec"); !tls && (at(spec, "type") != "ClusterIP" || at(spec, "externalIPs") != nil) {
				t.Errorf("%s: it is shown outside: %v", kind, spec)
			}
		}
	}
}

// TestChartSetsEachVariableOnce: server-side apply refuses two variables of one name.
func TestChartSetsEachVariableOnce(t *testing.T) {
	pod := newChart(t).objects("name=edge")["StatefulSet postern"]
	containers, _ := at(pod, "spec", "template", "spec", "containers").([]any)
	if len(containers) != 1 {
		t.Fatalf("the pod has %d containers", len(containers))
	}
	seen := map[any]bool{}
	variables, _ := at(containers[0], "env").([]any)
	for _, v := range variables {
		if name := at(v, "name"); seen[name] {
			t.Errorf("%v is there twice", name)
		} else {
			seen[name] = true
		}
	}
	if !seen["POD_IP"] {
		t.Error("there is no POD_IP")
	}
}

// TestChartWithoutPolicies: without NetworkPolicies the gateway creates none either.
func TestChartWithoutPolicies(t *testing.T) {
	c := newChart(t)
	for _, enabled := range []bool{true, false} {
		objects := c.objects("name=edge", fmt.Sprint("networkPolicy.enabled=", enabled))
		rules := fmt.Sprint(at(objects["Role postern"], "rules"))
		if objects["NetworkPolicy postern"] != nil != enabled || strings.Contains(rules, "networkpolicies") != enabled {
			t.Errorf("enabled %v: a policy: %v, rights: %s", enabled, objects["NetworkPolicy postern"] != nil, rules)
		}
	}
}
