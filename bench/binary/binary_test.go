package binary

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/control/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A gateway accepts the generated configuration files without a warning.
func TestConfigurationsAreAccepted(t *testing.T) {
	for _, c := range []configuration{
		{name: "serving", port: 41820, service: "127.0.0.1:5201"},
		{name: "dialling", mtu: 1280},
	} {
		dir := t.TempDir()
		file, socket, err := c.write(dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := config.Load(file, config.Overrides{LookupEnv: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		wantMTU := 1280
		if c.mtu == 0 {
			wantMTU = 1420
		}
		if r.Name != c.name || r.MTU != wantMTU || r.AdminSocket != socket || len(r.Warnings) > 0 {
			t.Errorf("%s: got name %s, MTU %d, socket %s, warnings %v", c.name, r.Name, r.MTU, r.AdminSocket, r.Warnings)
		}
	}
}

func TestTheEnvironmentDoesNotConfigureGateways(t *testing.T) {
	got := environment([]string{"PATH=/bin", "POSTERN_MTU=1280", "GOMAXPROCS=1", "GOMEMLIMIT=1", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If a program does not start, the error contains its output, and nothing is left of it.
func TestAGatewayThatEndsIsToldOf(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	program := filepath.Join(t.TempDir(), "postern")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'postern: no luck today' >&2\nexit 2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Subject(t.Context(), load.Spec{Program: program, Duration: time.Second})
	if err == nil || !strings.Contains(err.Error(), "gateway serving ended: exit status 2: postern: no luck today") {
		t.Errorf("got %v, want the program's output", err)
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := Subject(t.Context(), load.Spec{Duration: time.Second}); err == nil || !strings.Contains(err.Error(), "which postern?") {
		t.Errorf("without a program: got %v", err)
	}
}
