package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

func TestABundleThatNoPeerWouldTakeIsRefused(t *testing.T) {
	cert, _ := authority(t, true)
	dir := t.TempDir()
	file, bundle := filepath.Join(dir, "edge.yaml"), filepath.Join(dir, "bundle.pem")
	text := head + "spec:\n  services:\n    apiServer: {address: \"a:1\", caFile: bundle.pem}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{api.MaxCAData / len(cert), api.MaxCAData/len(cert) + 1} {
		if err := os.WriteFile(bundle, []byte(strings.Repeat(cert, n)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file, Overrides{})
		fits := n*len(cert) <= api.MaxCAData
		if fits && err != nil {
			t.Errorf("%d bytes: %v", n*len(cert), err)
		}
		want := fmt.Sprintf("%s:6: spec.services.apiServer.caFile: %s has %d bytes, and peers take at most 32768", file, bundle, n*len(cert))
		if !fits && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
}
