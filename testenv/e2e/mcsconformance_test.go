//go:build linux && e2e && mcs

package e2e

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/mcs"
	"github.com/postern-dev/postern/testenv/netlab"
)

const (
	// reports is the folder of the suite's reports.
	reports = "../../dist/mcs-conformance"
	// suiteTime bounds the suite, which takes some minutes.
	suiteTime = 30 * time.Minute
	// onlyFlat is the one spec that is not passed. It requires that a Headless service's
	// addresses are those of the exporter's pods, which is meaningless with equal pod ranges.
	onlyFlat = "should return the ready endpoint addresses of all the backing pods"
)

// spec is the part of a spec in ginkgo's report that is read.
type spec struct {
	ContainerHierarchyTexts  []string
	ContainerHierarchyLabels [][]string
	LeafNodeLabels           []string
	LeafNodeType             string
	LeafNodeText             string
	State                    string
	Failure                  struct{ Message string }
}

func (s spec) required() bool {
	for _, labels := range append(s.ContainerHierarchyLabels, s.LeafNodeLabels) {
		for _, l := range labels {
			if l == "Required" {
				return true
			}
		}
	}
	return false
}

// TestMCSConformance runs the unmodified conformance suite of the Multi-Cluster Services API
// twice: edge, behind the NAT, exports over the direct path, and cloud over a relay.
func TestMCSConformance(t *testing.T) {
	c := newConformance(t, "edge", "cloud")
	t.Run("edge-direct", func(t *testing.T) { c.run(t, "edge-direct", "edge,cloud") })
	c.cutDirect(t)
	t.Run("cloud-relayed", func(t *testing.T) { c.run(t, "cloud-relayed", "cloud,edge") })
}

// TestMCSConformanceOfThree runs it with three clusters: edge exports, and also the second one
// where two are needed, and all import.
func TestMCSConformanceOfThree(t *testing.T) {
	newConformance(t, "edge", "branch", "cloud").run(t, "three", "edge,branch,cloud")
}

// mcsSuite is what is needed to run the suite.
type mcsSuite struct {
	*clusterset
	suite, folder, kubeconfig string
}

// newConformance returns peered clusters that may export and import everywhere, with the suite's
// images.
func newConformance(t *testing.T, names ...string) *mcsSuite {
	t.Helper()
	ctx := within(t, suiteTime)
	suite, err := mcs.Suite(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	images, err := mcs.Images(ctx, tempDir(t))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs(reports)
	if err != nil {
		t.Fatal(err)
	}
	s := startClusterset(t, netip.Prefix{}, images, names...)
	s.install("mcs.enabled=true", "mcs.allNamespaces=true")
	s.peer()
	return &mcsSuite{s, suite, folder, s.kubeconfig(t)}
}

// run runs the suite with the clusters in an order, and evaluates its report.
func (c *mcsSuite) run(t *testing.T, name, order string) {
	t.Helper()
	// The suite writes report.html and report.yaml to its working directory.
	here := filepath.Join(c.folder, name)
	if err := os.MkdirAll(here, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(here, "output.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	report := filepath.Join(here, "report.json")
	p := c.operator.Start(netlab.Command{Dir: here, Log: log, Args: []string{c.suite, "-kubeconfig", c.kubeconfig, "-contexts", order,
		"-ginkgo.no-color", "-ginkgo.v", "-ginkgo.json-report", report, "-test.timeout", suiteTime.String(), "-project", "postern"}})
	_, err = p.Wait(within(t, suiteTime))
	judge(t, report, err)
}

// judge evaluates a report: all required specs must pass, and all others except onlyFlat.
func judge(t *testing.T, report string, ended error) {
	t.Helper()
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("the suite made no report: %v; it ended with %v", err, ended)
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(b, &suites); err != nil || len(suites) != 1 {
		t.Fatalf("the report cannot be read: %v", err)
	}
	count := map[bool][2]int{} // of required ones and others: passed, all
	for _, x := range suites[0].SpecReports {
		if x.LeafNodeType != "It" {
			continue
		}
		n := count[x.required()]
		n[1]++
		if x.State == "passed" {
			n[0]++
		} else if name := strings.Join(append(x.ContainerHierarchyTexts, x.LeafNodeText), " "); !strings.Contains(name, onlyFlat) {
			t.Errorf("%s: %s\n%s", x.State, name, x.Failure.Message)
		}
		count[x.required()] = n
	}
	must, may := count[true], count[false]
	t.Logf("%d of %d required and %d of %d optional specs passed", must[0], must[1], may[0], may[1])
	if must[1] != 14 || may[1] != 13 {
		t.Errorf("the suite has %d required and %d optional specs, want 14 and 13", must[1], may[1])
	}
}

// kubeconfig writes a kubeconfig with a context for each cluster.
func (s *clusterset) kubeconfig(t *testing.T) string {
	t.Helper()
	type named struct {
		Name    string `json:"name"`
		Cluster any    `json:"cluster,omitempty"`
		User    any    `json:"user,omitempty"`
		Context any    `json:"context,omitempty"`
	}
	out := struct {
		APIVersion string  `json:"apiVersion"`
		Kind       string  `json:"kind"`
		Clusters   []named `json:"clusters"`
		Users      []named `json:"users"`
		Contexts   []named `json:"contexts"`
	}{APIVersion: "v1", Kind: "Config"}
	for _, one := range s.all {
		var have struct {
			Clusters []struct{ Cluster any }
			Users    []struct{ User any }
		}
		if err := json.Unmarshal([]byte(one.kubectl("config", "view", "--raw", "--flatten", "-o", "json")), &have); err != nil {
			t.Fatal(err)
		}
		out.Clusters = append(out.Clusters, named{Name: one.name, Cluster: have.Clusters[0].Cluster})
		out.Users = append(out.Users, named{Name: one.name, User: have.Users[0].User})
		out.Contexts = append(out.Contexts, named{Name: one.name, Context: map[string]string{"cluster": one.name, "user": one.name}})
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(tempDir(t), "kubeconfig")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
