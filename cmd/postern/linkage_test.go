package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pion/stun's client file imports pion/dtls, which has GO-2026-4479, and so does that of
// the version that pion/turn uses. Of the first only the message codec is used here, of the
// second only what TURN takes, so the linker must have dropped dtls's connection code.
func TestNoDTLSConnectionCodeIsLinked(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "postern")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), "pion/stun/v2.(*Message)") {
		t.Fatal("the symbols of pion/stun are not there: the test would not see dtls either")
	}
	for line := range strings.Lines(string(symbols)) {
		if strings.Contains(line, "pion/dtls/v2.(*Conn)") || strings.Contains(line, "pion/dtls/v3.(*Conn)") {
			t.Errorf("dtls connection code is linked: %s", strings.TrimSpace(line))
		}
	}
}

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
		{[]string{"tui"}, []string{module + "tunnel", module + "netstack", module + "control/gateway"}},
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
