package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The data path must stay usable, and testable, without a cluster, a screen or a metrics
// library; and what it is built on must not reach up to it. A linter forbids the direct
// imports; this sees the indirect ones.
func TestLayersImportDownwardsOnly(t *testing.T) {
	const module = "github.com/postern-dev/postern/"
	for _, layer := range []struct {
		packages  []string
		forbidden []string
	}{
		{[]string{"netstack", "tunnel/...", "discovery/..."},
			[]string{"k8s.io/", "sigs.k8s.io/", "github.com/charmbracelet/", "github.com/prometheus/", module + "control", module + "tui"}},
		{[]string{"netstack", "tunnel/..."}, []string{module + "discovery"}},
		{[]string{"control/..."}, []string{"github.com/charmbracelet/", module + "tui", module + "cmd"}},
		{[]string{"tunnel/peer"}, []string{module + "netstack", module + "tunnel/uapi", "golang.zx2c4.com/", "gvisor.dev/"}},
		{[]string{"tunnel/foreign"}, []string{module + "tunnel/peer", module + "tunnel/u", "golang.org/x/", "golang.zx2c4.com/", "gvisor.dev/"}},
		// Checks ask nobody for words, and a report is read by itself: control/gateway joins the two.
		{[]string{"control/verdict"}, []string{module + "control/check", module + "control/report", module + "control/gateway"}},
		{[]string{"control/check"}, []string{module + "control/report", module + "control/gateway"}},
		{[]string{"control/report"}, []string{module + "control/check", module + "control/gateway"}},
		// Of what is below it the screen knows how texts of others are shown, and no more.
		{[]string{"tui"}, []string{module + "tunnel/peer", module + "tunnel/u", "golang.zx2c4.com/", module + "netstack", module + "control/gateway"}},
	} {
		args := []string{"list", "-deps"}
		for _, p := range layer.packages {
			args = append(args, module+p)
		}
		out, err := exec.CommandContext(t.Context(), "go", args...).Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for _, f := range layer.forbidden {
				if strings.HasPrefix(dep, f) {
					t.Errorf("%v imports %s, directly or not", layer.packages, dep)
				}
			}
		}
	}
}
