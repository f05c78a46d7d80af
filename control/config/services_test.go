package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func TestTokensAreIssuedByDefaultForAnHourInANamespaceOfTheirOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.yaml")
	for given, want := range map[string]ServiceAccount{
		"{}":                             {Namespace: "postern-peers", TTL: time.Hour},
		"{namespace: tenants, ttl: 30m}": {Namespace: "tenants", TTL: 30 * time.Minute},
	} {
		text := head + "spec:\n  services:\n    auth:\n      issuer: {serviceAccount: " + given + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(file, Overrides{})
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		if r.Services.ServiceAccount == nil || *r.Services.ServiceAccount != want || r.Services.LocalCA != nil {
			t.Errorf("%s: got %+v, want %+v and no CA", given, r.Services.ServiceAccount, want)
		}
	}
}
