package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

func TestWhatAStockPeerCanBeGranted(t *testing.T) {
	stock := api.Peer{Name: "router", PublicKey: aliceKey, Stock: true, AllowedIPs: []string{"10.9.0.2/32"}}
	named := []NamedService{{Name: "registry", Ports: api.PortsOf(5000)}}
	stock.Allow = []string{api.ServiceAPIServer, "registry"}
	p, err := ResolvePeer(stock, named)
	if err != nil || !slices.Equal(p.Allow, stock.Allow) {
		t.Errorf("got %v and %v, want %v granted", p.Allow, err, stock.Allow)
	}
	stock.Allow = []string{"registry", api.ServiceAuth}
	if _, err := ResolvePeer(stock, named); err == nil || !strings.HasPrefix(err.Error(), "allow[1]: a stock peer cannot use auth") {
		t.Errorf("got %v, want a refusal of allow[1] that says why", err)
	}
}

func TestAStockPeersMistakenGrantIsNamedWithItsLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edge.yaml")
	text := peerHead + "    publicKey: " + aliceKey + "\n    stock: true\n    allowedIPs: [10.9.0.2]\n    allow:\n    - apiServer\n    - auth\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file, Overrides{})
	if want := file + ":13: spec.peers[0].allow[1]: a stock peer cannot use auth: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
}
