package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/discovery/lan"
)

func TestLANIsOffUnlessEnabled(t *testing.T) {
	r, err := Load(writeConfig(t, head), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Discovery.LAN; l.Enabled || l.TTL != lan.DefaultTTL || l.AutoPeer != nil || !l.Secret.IsZero() || len(l.Allow) != 0 {
		t.Errorf("got %+v", l)
	}
}

func TestLANSettings(t *testing.T) {
	const key, otherKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
	load := func(text string) (LAN, string) {
		file := writeConfig(t, head+"spec:\n  discovery:\n    lan: {enabled: true, "+text+"}\n")
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "lan.key"), []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "password"), []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(file, Overrides{})
		if err != nil {
			return LAN{}, err.Error()
		}
		return r.Discovery.LAN, ""
	}
	got, problem := load("interfaces: [eth1, eth0], ttl: 10s, autoPeer: [" + key + ", " + key + "], secretFile: lan.key, allow: [auth]")
	if problem != "" {
		t.Fatal(problem)
	}
	if fmt.Sprint(got.Interfaces, got.TTL, len(got.AutoPeer), got.Allow) != "[eth0 eth1] 10s 1 [auth]" || got.Secret.Base64() != key || !got.Enabled {
		t.Errorf("got %+v", got)
	}
	named, problem := load("autoPeer: [cloud=" + key + ", " + otherKey + "]")
	if problem != "" || len(named.AutoPeer) != 2 || named.AutoPeer[0].Name != "cloud" || named.AutoPeer[0].Key != got.AutoPeer[0].Key ||
		named.AutoPeer[1].Name != "" || named.AutoPeer[1].Key.String() != otherKey {
		t.Errorf("got %+v, %s", named.AutoPeer, problem)
	}
	if other, _ := load("ttl: 10s"); got.Equal(other) || !got.Equal(got) {
		t.Error("different settings count as equal")
	}
	for text, want := range map[string]string{
		"ttl: 1s":                     "spec.discovery.lan.ttl: 1s is not a number of whole seconds from 5s to 1h15m0s",
		"ttl: 5500ms":                 "spec.discovery.lan.ttl: 5.5s is not",
		"ttl: 0s":                     "spec.discovery.lan.ttl: 0s is not",
		"autoPeer: [x]":               "spec.discovery.lan.autoPeer[0]: ",
		"autoPeer: [cloud=x]":         "spec.discovery.lan.autoPeer[0]: ",
		"autoPeer: [C_1=" + key + "]": "spec.discovery.lan.autoPeer[0]: ",
		"autoPeer: [a=" + key + ", b=" + key + "]":      "spec.discovery.lan.autoPeer[1]: its name or key is in the list already",
		"autoPeer: [a=" + key + ", a=" + otherKey + "]": "spec.discovery.lan.autoPeer[1]: its name or key is in the list already",
		"interfaces: ['']":                              "spec.discovery.lan.interfaces[0]: empty",
		"secretFile: password":                          "password holds no secret of 32 random bytes",
		"secretFile: nowhere":                           "nowhere does not exist",
		"allow: [blob]":                                 `spec.discovery.lan.allow[0]: "blob" is not a service of this gateway`,
		"autoPeers: []":                                 "unknown field",
		"interfaces: [" + key + ", a":                   "",
	} {
		if _, problem := load(text); !strings.Contains(problem, want) || problem == "" {
			t.Errorf("%s: got %q, want %q in it", text, problem, want)
		}
	}
}
