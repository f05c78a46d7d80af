package kube

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Kubernetes' libraries are large and change often: other packages use this one instead. Test
// environments may import them.
func TestKubernetesIsImportedHereAndNowhereElse(t *testing.T) {
	const module = "github.com/postern-dev/postern/"
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	found := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, i := range p.Imports {
			ours := strings.HasPrefix(p.ImportPath, module+"control/kube")
			switch {
			case !strings.HasPrefix(i, "k8s.io/") && !strings.HasPrefix(i, "sigs.k8s.io/") || strings.HasPrefix(p.ImportPath, module+"testenv/"):
			case ours:
				found++
			default:
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
	if found == 0 {
		t.Error("the search found no imports of Kubernetes, not even in this package")
	}
}
