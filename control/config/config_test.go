package config

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/tunnel/peer"
)

// full uses every supported field.
const full = head + `spec:
  stateDir: state
  privateKeyFile: group.key
  listen: {port: 40582}
  mtu: 1400
  admin: {socket: run/postern.sock}
  http: {address: "127.0.0.1:9520"}
  proxy: {url: "http://proxy.example.net:3128", username: edge, passwordFile: group.key, noProxy: [10.0.0.0/8, .example.net]}
  discovery:
    advertise: ["203.0.113.8:40582"]
    stunServers: ["stun.example.net:3478"]
    turnServers: [{address: "turn.example.net:5349", username: u, passwordFile: group.key, transport: tls, serverName: relay.example.net, caFile: ca.crt}]
    exclude: [10.244.0.0/16]
    keepalive: 15s
  services:
    apiServer: {address: "127.0.0.1:6443", serverName: kubernetes.default.svc, caFile: ca.crt}
    auth:
      issuer: {localCA: {certFile: ca.crt, keyFile: ca.key, ttl: 12h}}
    named: [{name: registry, port: 5000, address: "10.0.0.5:5000", export: shop-a/registry}]
  peers:
  - name: cloud
    publicKey: ` + bobKey + `
    presharedKeyFile: good.key
    endpoints: ["198.51.100.7:51820", "gw.example.net:51820", "[2001:db8::7]:51820"]
    mode: InBand
    allow: [registry, auth, apiServer, auth]
    local: {apiServer: "127.0.0.1:7443", named: {registry: "127.0.0.1:5000"}, services: {"shop-a/dns:53/UDP": "127.0.0.1:5353/UDP"}}
    services: {export: ["shop-*", kube-system], import: ["*"]}
  - name: router
    publicKey: ` + aliceKeyOfStock + `
    stock: true
    allowedIPs: [10.9.0.2, 10.10.0.0/24]
    labels: {region: eu-west, example.com/tier: "1"}
  - name: later
    allow: [auth]
`

// aliceKeyOfStock is the public key of the scalar 1 followed by zeros, clamped: any
// third key will do.
const aliceKeyOfStock = "L+V9o0fNYkMVKNqsX7spBzD/9oSvxM/C7ZDCX7jFIEA="

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(secretFiles(t), "edge.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEveryFieldIsResolved(t *testing.T) {
	file := writeConfig(t, full)
	r, err := Load(file, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	check := func(what string, got, want any) {
		t.Helper()
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("%s differs (-want +got):\n%s", what, d)
		}
	}
	check("name", r.Name, "edge")
	check("stateDir", r.StateDir, filepath.Join(dir, "state"))
	check("port", r.ListenPort, uint16(40582))
	check("mtu", r.MTU, 1400)
	check("socket", r.AdminSocket, filepath.Join(dir, "run/postern.sock"))
	check("http", r.HTTPAddress, "127.0.0.1:9520")
	turn := r.Discovery.TURNServers[0]
	if password, err := os.ReadFile(filepath.Join(dir, "group.key")); err != nil || string(turn.Password) != strings.TrimSpace(string(password)) {
		t.Errorf("the relay's password is not that of its file (%v)", err)
	}
	if printed := fmt.Sprintf("%v %+v %#v", turn, turn, turn); strings.Contains(printed, string(turn.Password)) {
		t.Errorf("the relay's password is printed: %s", printed)
	}
	turn.Password = ""
	check("discovery", r.Discovery, Discovery{
		Advertise: []string{"203.0.113.8:40582"}, STUNServers: []string{"stun.example.net:3478"}, TURNServers: r.Discovery.TURNServers,
		Exclude: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Keepalive: 15 * time.Second,
		LAN: LAN{TTL: 2 * time.Minute},
	})
	check("relay", turn, relay.Server{Address: "turn.example.net:5349", Username: "u", Transport: relay.TransportTLS,
		ServerName: "relay.example.net", CAData: r.Services.APIServer.CAData})
	check("endpoint names", r.Peers[0].EndpointNames, []string{"gw.example.net:51820"})
	check("public key", r.PrivateKey.Public().String(), aliceKey)
	check("CA", *r.Services.LocalCA, LocalCA{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), 12 * time.Hour})
	check("named", r.Services.Named, []NamedService{{"registry", api.PortsOf(5000), "10.0.0.5:5000", mcs.Name{Namespace: "shop-a", Name: "registry"}, ""}})
	check("server name", r.Services.APIServer.ServerName, "kubernetes.default.svc")
	if !strings.Contains(string(r.Services.APIServer.CAData), "BEGIN CERTIFICATE") {
		t.Errorf("the API server's CA was not read: %q", r.Services.APIServer.CAData)
	}
	cloud := r.Peers[0]
	check("peer's key", cloud.PublicKey.String(), bobKey)
	check("preshared key", cloud.PresharedKey.Base64(), alicePrivate)
	check("endpoints", cloud.Endpoints, []netip.AddrPort{netip.MustParseAddrPort("198.51.100.7:51820"), netip.MustParseAddrPort("[2001:db8::7]:51820")})
	check("allow", cloud.Allow, []string{"apiServer", "auth", "registry"})
	check("local", cloud.Local, map[string]api.ListenAddress{
		"apiServer": {Addr: netip.MustParseAddr("127.0.0.1"), Ports: api.PortsOf(7443)}, "registry": {Addr: netip.MustParseAddr("127.0.0.1"), Ports: api.PortsOf(5000)},
		"shop-a/dns:53/UDP": {Addr: netip.MustParseAddr("127.0.0.1"), Ports: api.Ports{Protocol: api.UDP, First: 5353, Last: 5353}},
	})
	check("services", []mcs.Patterns{cloud.Export, cloud.Import}, []mcs.Patterns{{"kube-system", "shop-*"}, {"*"}})
	check("allowedIPs", r.Peers[1].AllowedIPs, []netip.Prefix{netip.MustParsePrefix("10.9.0.2/32"), netip.MustParsePrefix("10.10.0.0/24")})
	check("labels", r.Peers[1].Labels, map[string]string{"region": "eu-west", "example.com/tier": "1"})
	check("options only", r.Peers[2].PublicKey.IsZero(), true)
	check("warnings", len(r.Warnings), 0)
}

func TestDefaultsAreContracts(t *testing.T) {
	r, err := Load(writeConfig(t, head), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(r.StateDir, r.PrivateKeyFile, r.ListenPort, r.MTU, r.AdminSocket, r.HTTPAddress, r.Services.LocalCA)
	want := fmt.Sprint("/var/lib/postern", "/var/lib/postern/private.key", 51820, 0, "/run/postern/postern.sock", "", (*LocalCA)(nil))
	if got != want {
		t.Errorf("defaults:\n got %s\nwant %s", got, want)
	}
	if !r.PrivateKey.IsZero() {
		t.Error("a private key from nowhere")
	}
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := writeConfig(t, head+"spec:\n  mtu: 1300\n  discovery:\n    advertise: [\"a:1\", \"b:2\"]\n")
	env := map[string]string{}
	flags := map[string]string{}
	shown := func(path string) string {
		t.Helper()
		r, err := Load(file, Overrides{Flags: flags, LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok }})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.Values(), func(v Value) bool { return v.Path == path })
		if i < 0 {
			return "absent"
		}
		v := r.Values()[i]
		return v.Value + " from " + strings.TrimPrefix(v.Origin, file)
	}
	expect := func(path, want string) {
		t.Helper()
		if got := shown(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	expect("spec.listen.port", "51820 from default")
	expect("spec.mtu", "1300 from :5")
	expect("spec.discovery.advertise[1]", "b:2 from :7")
	env["POSTERN_MTU"], env["POSTERN_ADVERTISE"], env["POSTERN_STATE_DIR"] = "1350", "c:3", ""
	expect("spec.mtu", "1350 from POSTERN_MTU")
	expect("spec.discovery.advertise[0]", "c:3 from POSTERN_ADVERTISE")
	expect("spec.discovery.advertise[1]", "absent")
	expect("spec.stateDir", "/var/lib/postern from default")
	flags["mtu"], flags["listen-port"] = "1400", "0"
	expect("spec.mtu", "1400 from --mtu")
	expect("spec.listen.port", "0 from --listen-port")
}

func TestMistakesAboveTheFileNameTheirSource(t *testing.T) {
	file := writeConfig(t, head)
	for name, tc := range map[string]struct {
		o    Overrides
		want string
	}{
		"flag":        {Overrides{Flags: map[string]string{"listen-port": "many"}}, `--listen-port: "many" is not a port from 0 to 65535`},
		"environment": {Overrides{LookupEnv: func(k string) (string, bool) { return "1", k == "POSTERN_MTU" }}, "POSTERN_MTU: 1 is outside 1280 to 9000 (0 lets the gateway choose)"},
		"list":        {Overrides{Flags: map[string]string{"advertise": "a:1,b"}}, `--advertise: "b" has no port (want b:PORT)`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(file, tc.o); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAllMistakesAreReportedInOrder(t *testing.T) {
	file := writeConfig(t, head+"spec:\n  mtu: 1\n  peers:\n  - {name: A}\n  http: {address: x}\n")
	_, err := Load(file, Overrides{Flags: map[string]string{"listen-port": "x"}})
	var lines []string
	for _, l := range strings.Split(fmt.Sprint(err), "\n") {
		lines = append(lines, strings.TrimPrefix(strings.SplitN(l, ": ", 2)[0], file))
	}
	if want := []string{"--listen-port", ":5", ":7", ":8"}; !slices.Equal(lines, want) {
		t.Errorf("got problems at %v, want %v; all: %v", lines, want, err)
	}
}

func TestSettingsWithoutEffectAreWarnedOf(t *testing.T) {
	r, err := Load(writeConfig(t, head+`spec:
  discovery:
    turnServers: [{address: "turn.example.net:3478", username: u, passwordFile: good.key}]
    portMapping: {mode: auto}
    lan: {interfaces: [eth0], allow: [auth]}
  peers:
  - {name: cloud, allow: [apiServer]}
`), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range r.Warnings {
		got = append(got, w.Path)
	}
	want := []string{"spec.discovery.lan.allow", "spec.discovery.lan.enabled", "spec.peers[0].allow[0]"}
	if !slices.Equal(got, want) {
		t.Errorf("warnings at %v, want %v", got, want)
	}
}

func TestARouterIsAskedOnlyWhenToldTo(t *testing.T) {
	router := netip.MustParseAddr("192.168.7.1")
	for _, c := range []struct {
		text     string
		want     PortMapping
		mode     string
		warnings int
	}{
		{"{}", PortMapping{}, "off", 0},
		{"{portMapping: {}}", PortMapping{}, "off", 0},
		{"{portMapping: {mode: auto}}", PortMapping{Enabled: true}, "auto", 0},
		{"{portMapping: {mode: off}}", PortMapping{}, "off", 0},
		{"{portMapping: {router: 192.168.7.1}}", PortMapping{true, router}, "auto", 0},
		{"{portMapping: {mode: auto, router: 192.168.7.1}}", PortMapping{true, router}, "auto", 0},
		{"{portMapping: {mode: off, router: 192.168.7.1}}", PortMapping{}, "off", 1},
	} {
		r, err := Load(writeConfig(t, head+"spec:\n  discovery: "+c.text+"\n"), Overrides{})
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		if got := r.Discovery.PortMapping; got != c.want || r.Document.Spec.Discovery.PortMapping.Mode != c.mode || len(r.Warnings) != c.warnings {
			t.Errorf("%s: got %+v, mode %s, warnings %v; want %+v, mode %s, %d warnings", c.text, got,
				r.Document.Spec.Discovery.PortMapping.Mode, r.Warnings, c.want, c.mode, c.warnings)
		}
	}
}

func TestUnreadableFileSaysWhy(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), Overrides{}); err == nil || !strings.Contains(err.Error(), "none.yaml: no such file") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	got := fileError("/x/key", &fs.PathError{Op: "open", Path: "/x/key", Err: fs.ErrPermission})
	if want := "/x/key may not be read by this user (chown it to the gateway's)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	file := writeConfig(t, head+"#"+strings.Repeat("x", maxFileSize))
	if _, err := Load(file, Overrides{}); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("got %v, want the limit", err)
	}
}

func TestDefaultPrivateKeyMustBePrivateToo(t *testing.T) {
	file := writeConfig(t, head+"spec: {stateDir: state}\n")
	state := filepath.Join(filepath.Dir(file), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(state, "private.key")
	if err := os.WriteFile(key, []byte(alicePrivate), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Load(file, Overrides{}); err != nil || r.PrivateKeyFile != key {
		t.Fatalf("got %v, want the key at %s", err, key)
	}
	if err := os.Chmod(key, 0o604); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s:4: spec.privateKeyFile: %s has mode 0604: every user may read it (chmod 600 %s)", file, key, key)
	if _, err := Load(file, Overrides{}); err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	r, err := Load(writeConfig(t, full), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %v", r, r, r, r.Values())
	if strings.Contains(all, alicePrivate) || strings.Contains(all, "PRIVATE KEY") {
		t.Error("a secret was printed")
	}
}

func TestDiffTellsWhatAReloadMustDo(t *testing.T) {
	file := writeConfig(t, full)
	load := func(text string) *Resolved {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(file, Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := load(full)
	if d := Diff(old, load("# moved by a line\n"+full)); !d.IsEmpty() {
		t.Errorf("a comment is a change: %+v", d)
	}
	d := Diff(old, load(strings.NewReplacer("name: later", "name: newcomer", "\"127.0.0.1:7443\"", "\"127.0.0.1:7444\"", "\"127.0.0.1:9520\"", "\"127.0.0.1:9521\"").Replace(full)))
	if got, want := fmt.Sprint(d.Added, d.Removed, d.Changed, d.Fields, d.RestartError()),
		"[newcomer] [later] [cloud] [{spec.http.address 127.0.0.1:9520 127.0.0.1:9521 false}] <nil>"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	d = Diff(old, load(strings.Replace(full, "port: 40582", "port: 40583", 1)))
	if err := d.RestartError(); err == nil || err.Error() != "a running gateway cannot change spec.listen.port (40582 → 40583) (restart it to apply)" {
		t.Errorf("another port: got %v", err)
	}
	psk := filepath.Join(filepath.Dir(file), "good.key")
	if err := os.WriteFile(psk, []byte(bobKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := Diff(old, load(full)); !slices.Equal(d.Changed, []string{"cloud"}) || len(d.Fields) != 0 {
		t.Errorf("another preshared key in the same file: got %+v, want cloud changed", d)
	}
	key := filepath.Join(filepath.Dir(file), "group.key")
	if err := os.WriteFile(key, []byte(bobKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Diff(old, load(full)).RestartError(); err == nil || !strings.HasPrefix(err.Error(), "a running gateway cannot change spec.privateKeyFile") {
		t.Errorf("another private key in the same file: got %v", err)
	}
}

// A change of a field that does not count would be ignored until something else changes.
func TestEachFieldOfAPeerCountsAsAChange(t *testing.T) {
	key, err := peer.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	none, err := Load(writeConfig(t, head+"spec: {}\n"), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	changed := func(field string, value reflect.Value, set func(p *Peer, v reflect.Value)) {
		t.Helper()
		if value.IsZero() {
			t.Fatalf("this test has no value for %s", field)
		}
		var p Peer
		set(&p, value)
		if Diff(none.WithPeers([]Peer{{}}), none.WithPeers([]Peer{p})).IsEmpty() {
			t.Errorf("another %s is no change", field)
		}
	}
	direct := check.DirectFacts{AuthURL: "a", APIServerURL: "b", CA: []byte("c"), Token: "d", Used: true}
	full := reflect.ValueOf(Peer{
		Name: "cloud", PublicKey: peer.PublicKey{1}, PresharedKey: key, Joined: true, Endpoints: []netip.AddrPort{{}}, EndpointNames: []string{""},
		Allow: []string{""}, Local: map[string]api.ListenAddress{"": {}}, Stock: true, Labels: map[string]string{"": ""},
		AllowedIPs: []netip.Prefix{{}}, Mode: api.ModeOutOfBand, Direct: direct, Export: mcs.Patterns{""}, Import: mcs.Patterns{""},
	})
	for i := range full.NumField() {
		changed(full.Type().Field(i).Name, full.Field(i), func(p *Peer, v reflect.Value) { reflect.ValueOf(p).Elem().Field(i).Set(v) })
	}
	for d, i := reflect.ValueOf(direct), 0; i < d.NumField(); i++ {
		changed("direct "+d.Type().Field(i).Name, d.Field(i), func(p *Peer, v reflect.Value) { reflect.ValueOf(&p.Direct).Elem().Field(i).Set(v) })
	}
}

func TestPeersOfCommandsAreCheckedAsThoseOfTheFile(t *testing.T) {
	named := []NamedService{{Name: "registry", Ports: api.PortsOf(5000)}}
	p, err := ResolvePeer(api.Peer{Name: "cloud", PublicKey: bobKey, Allow: []string{"registry"}}, named)
	if err != nil || !slices.Equal(p.Allow, []string{"registry"}) {
		t.Errorf("got %v, %v; want registry allowed", p.Allow, err)
	}
	for want, e := range map[string]api.Peer{
		`name: name "B" is not a DNS label (lower-case letters, digits and inner hyphens)`:      {Name: "B", PublicKey: bobKey},
		`allow[0]: "x" is not a service of this gateway (there are: auth, apiServer, registry)`: {Name: "b", PublicKey: bobKey, Allow: []string{"x"}},
		"presharedKeyFile: the gateway does not read files for others (send the key itself)":    {Name: "b", PublicKey: bobKey, PresharedKeyFile: "/etc/shadow"},
	} {
		if _, err := ResolvePeer(e, named); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestHostNames(t *testing.T) {
	for s, want := range map[string]bool{
		"example.net": true, "a": true, "a.b.": true, "xn--bcher-kva.example": true, "_sip.example": true, "kubernetes.default.svc": true,
		"": false, ".": false, "a..b": false, "-a": false, "a-": false, "1.2.3": false, "a b": false, "ä": false, strings.Repeat("a", 64): false,
	} {
		if got := isHostName(s); got != want {
			t.Errorf("isHostName(%q) = %v, want %v", s, got, want)
		}
	}
}
