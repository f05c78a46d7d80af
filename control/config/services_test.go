package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

func TestServicesOfUDPAndOfSeveralPorts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.yaml")
	text := head + `spec:
  services:
    named:
    - {name: dns, protocol: UDP, port: 53, address: "10.0.0.1:53"}
    - {name: dns-tcp, port: 53, address: "10.0.0.1:53"}
    - {name: http3, protocol: UDP, port: 80, address: "10.0.0.1:443"}
    - {name: media, protocol: UDP, ports: 5000-5010, address: "10.0.0.2:65525"}
  peers:
  - {name: cloud, local: {named: {dns: "127.0.0.1:53/UDP", media: "127.0.0.1:6000-6010/UDP"}}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Load(file, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Services.Named {
		got = append(got, s.Name+" "+s.Ports.String()+" "+s.Address)
	}
	for _, service := range []string{"dns", "media"} {
		got = append(got, r.Peers[0].Local[service].String())
	}
	want := []string{"dns 53/UDP 10.0.0.1:53", "dns-tcp 53 10.0.0.1:53", "http3 80/UDP 10.0.0.1:443", "media 5000-5010/UDP 10.0.0.2:65525",
		"127.0.0.1:53/UDP", "127.0.0.1:6000-6010/UDP"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, v := range r.Values() {
		if v.Path == "spec.services.named[3].port" {
			t.Errorf("a range is shown with the port %q", v.Value)
		}
	}
}
