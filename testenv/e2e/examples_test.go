//go:build linux && e2e

package e2e

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
)

const examplesFolder = "../../examples"

// TestExamples validates every file below examples by its purpose: the program loads
// configurations, Helm renders values and the program loads the result, a real API server accepts
// objects, and coturn accepts the relay's configuration. A file that nothing accepts is a
// mistake.
func TestExamples(t *testing.T) {
	cluster := kubetest.With(t, kube.Options{Dir: tempDir(t)})
	cluster.Define(t)
	for _, namespace := range []string{gatewayNamespace, "argocd", tenant} {
		cluster.Run(t, "", "create", "namespace", namespace)
	}
	err := filepath.WalkDir(examplesFolder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(examplesFolder, path)
		t.Run(name, func(t *testing.T) {
			switch {
			case filepath.Ext(path) == ".md":
			case name == "coturn/turnserver.conf":
				tryRelay(t, string(text))
			case name == "argocd/argocd-values.yaml": // values of another project's chart
			case strings.HasSuffix(name, "values.yaml"):
				tryValues(t, string(text))
			case filepath.Base(path) == "kustomization.yaml":
				cluster.Run(t, "", "apply", "--dry-run=server", "-k", filepath.Dir(path))
			default:
				tryDocuments(t, cluster, text)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tryDocuments tries a file of configurations or objects.
func tryDocuments(t *testing.T, cluster kubetest.Cluster, text []byte) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o map[string]any
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		document, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		switch o["kind"] {
		case "Gateway":
			tryConfiguration(t, string(document))
		case "HelmChart":
			tryValues(t, at(o, "spec", "valuesContent").(string))
		case "Application": // Argo CD's own
			for _, source := range at(o, "spec", "sources").([]any) {
				if files, _ := at(source, "helm", "valueFiles").([]any); len(files) == 1 {
					if _, err := os.Stat(strings.Replace(files[0].(string), "$this", examplesFolder+"/gitops", 1)); err != nil {
						t.Error(err)
					}
				}
			}
		default:
			cluster.Run(t, string(document), "apply", "--dry-run=server", "-f", "-")
		}
	}
}

// folders are the folders of files that the examples' configurations name.
var folders = regexp.MustCompile(`/etc/(postern|kubernetes/pki|turnserver)/`)

// standIns puts stand-ins of the files that a configuration names into a folder, and replaces the
// folders' names.
func standIns(t *testing.T, text, dir string) string {
	t.Helper()
	ca, err := pki.NewCA("example")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"issuer", "ca", "tls"} {
		if _, _, err := pair.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "turn.password"), "change-me\n", 0o600)
	return folders.ReplaceAllString(text, dir+"/")
}

func tryConfiguration(t *testing.T, text string) {
	t.Helper()
	dir := tempDir(t)
	file := filepath.Join(dir, "gateway.yaml")
	writeFile(t, file, standIns(t, text, dir), 0o600)
	if out, err := netlab.Run(within(t, patience), "", "", posternBinary(t), "config", "validate", file); err != nil {
		t.Errorf("%v%s", err, out)
	}
}

// tryValues renders the chart with values.
func tryValues(t *testing.T, values string) {
	t.Helper()
	file := filepath.Join(tempDir(t), "values.yaml")
	writeFile(t, file, values, 0o600)
	c := newChart(t)
	out, err := c.template([]string{"--values", file})
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(out))
	for {
		var o map[string]any
		if err := decoder.Decode(&o); err != nil {
			t.Fatalf("there is no gateway.yaml: %v", err)
		}
		if text, ok := at(o, "data", "gateway.yaml").(string); ok {
			validate(t, text)
			return
		}
	}
}

// tryRelay runs coturn with the example's configuration, and the example's gateway must get an
// allocation from it.
func tryRelay(t *testing.T, text string) {
	lab := netlab.New(t)
	wan := lab.Network("wan", netip.MustParsePrefix("203.0.113.0/24"))
	relay, edge := lab.Host("relay"), lab.Host("edge")
	relay.Attach("eth0", wan, netip.MustParseAddr("203.0.113.5"))
	edge.Attach("eth0", wan, netip.MustParseAddr("203.0.113.9"))

	dir := tempDir(t)
	file := filepath.Join(dir, "turnserver.conf")
	writeFile(t, file, standIns(t, text, dir), 0o600)
	server := relay.Start(netlab.Command{Args: []string{"turnserver", "-c", file, "--log-file", "stdout", "--userdb", filepath.Join(dir, "db"), "--pidfile", filepath.Join(dir, "pid")}})

	example, err := os.ReadFile(filepath.Join(examplesFolder, "coturn", "edge.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc api.Gateway
	here := strings.NewReplacer("turn.example.net", "203.0.113.5", "stun.example.net", "203.0.113.5").Replace(standIns(t, string(example), dir))
	if err := yaml.Unmarshal([]byte(here), &doc); err != nil {
		t.Fatal(err)
	}
	doc.Spec.Discovery.STUNServers = doc.Spec.Discovery.STUNServers[:1] // both names are one server here
	for _, transport := range []string{"udp", "tcp"} {
		g := newGateway(t, edge, "edge", func(s *api.GatewaySpec) {
			s.Discovery = doc.Spec.Discovery
			s.Discovery.TURNServers[0].Transport = transport
		}).start()
		ctx := within(t, patience)
		eventually(ctx, t, "edge has an allocation over "+transport, func() (bool, string) {
			n, _, said := g.netCheck()
			return len(n.TURNServers) == 1 && n.TURNServers[0].Error == "" && n.TURNServers[0].Relayed != "", said + server.Stdout()
		})
		g.stop(syscall.SIGTERM)
	}
}
